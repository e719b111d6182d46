"""Thousands of small disasters under a simulated clock: each run is one seed.

After TigerBeetle's VOPR: N copies, requests and answers lost, copies killed at any await, a log
that comes back older. After every run the log equals what an undisturbed run would have said.
"""

import asyncio
import os
import random
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.processor import Processor
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.streams.batch import Message
from nemesis.streams.runner import Runner
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.oracle import judge, recorded, started
from tests.faults.processors import CATALOGUE, Counting
from tests.faults.virtual_time import run

Made = Callable[[], Processor]
CPU_S_MAX = 60.0
SEEDS = int(os.environ.get("NEMESIS_FAULT_SEEDS", "18"))


class Copy:
    """One process: killed, it starts again with nothing but its folder."""

    def __init__(self, log: MemoryLog, faults: Faults, folder: Path, *made: Made) -> None:
        self.log, self.faults, self.folder, self.made = log, faults, folder, made
        self.lives = 0
        self.ends: list[str] = []
        self.runner: Runner | None = None
        self._life: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Run for ever, as under a supervisor."""
        while True:
            self.lives += 1
            client = MemoryClient(self.log, self.faults)
            self.runner = Runner(
                [(make(), client) for make in self.made],
                folder=self.folder,
                start_ns=self.lives,
            )
            self._life = asyncio.ensure_future(self.runner.run())
            try:
                await self._life
                return
            except NemesisError as error:
                self.ends.append(f"{type(error).__name__}: {error.message}")
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    self._life.cancel()
                    raise
                await asyncio.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL, wherever it waits now."""
        if self._life is not None:
            self._life.cancel()


def in_turn(seed: int, count: int, *, nodes: int = 3, worse: bool = False) -> list[Message]:
    """Lines of several nodes, some of them faults, and a tick after every twenty."""
    dice = random.Random(seed)
    numbers = dict.fromkeys(range(nodes), 0)
    texts = ["ok", "ok", "ok", "fault", "cured", "burst 3"]
    messages = []
    for at in range(count):
        node = dice.randrange(nodes)
        numbers[node] += 1
        text = dice.choice(texts)
        if worse and at % 97 == 96:
            text = dice.choice(["crash", "burst 1000", "large 70000"])
        messages.append(traffic.line(numbers[node], text, node=f"n{node:03}", at_s=at / 20))
        if at % 20 == 19:
            messages.append(traffic.tick(at // 20))
        if worse and at in (count // 3, count // 2):
            messages.append(traffic.activation("counting", 1, every=dice.randrange(2, 9)))
        if worse and at == 2 * count // 3:
            messages.append(traffic.activation("counting", 2, every=5, number=1))
    return messages


async def play(
    log: MemoryLog,
    copies: list[Copy],
    messages: list[Message],
    *,
    dice: random.Random,
    kills: int = 0,
    worse: Callable[[int], None] = lambda at: None,
    settle_s: float = 40.0,
) -> None:
    """Write the messages over half a minute, kill now and then, and let everything come to rest."""
    living = [asyncio.ensure_future(copy.live()) for copy in copies]
    doomed = set(dice.sample(range(len(messages)), kills))
    for at, message in enumerate(messages):
        worse(at)
        while log.full:  # noqa: ASYNC110  # as a producer does
            await asyncio.sleep(0.1)
        log.append(message)
        await asyncio.sleep(dice.random() * 0.06)
        if at in doomed:
            dice.choice(copies).kill()
    for copy in copies:
        copy.faults.lost_per_mille = 0
    await asyncio.sleep(settle_s)
    for copy in copies:
        assert copy.runner is not None
        copy.runner.stop()
    await asyncio.sleep(10)
    for task in living:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def begin(log: MemoryLog) -> None:
    log.append(traffic.tick(0), traffic.activation("counting", 1), traffic.activation("echoing", 1))


def settled(log: MemoryLog, copies: list[Copy], *, said_min: int = 20) -> None:
    """Judge the log, and that it was not one copy alone that did the work of all."""
    judge(log.records, CATALOGUE)
    assert len(recorded(log.records, "counting")) > said_min
    assert started(log.records, "processor_diverged") == []
    end = max(each.seq for each in log.records if not each.subject.startswith("nemesis.cursor."))
    for copy in copies:
        assert copy.runner is not None
        reading = [each for each in copy.runner.status() if each.stage != "waiting"]
        names = {make().name for make in copy.made}
        assert {each.name for each in reading} == names
        for status in reading:
            assert status.read_seq >= end - 60, f"{status.name} of a copy stands at {status}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_copies_killed_at_any_await_and_answers_lost_change_nothing(
    seed: int, tmp_path: Path
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        log = MemoryLog()
        begin(log)
        faults = Faults(seed, lost_per_mille=(0, 20, 100)[seed % 3])
        both = [CATALOGUE["counting"][1], CATALOGUE["echoing"][1]]
        copies = [Copy(log, faults, tmp_path, *both) for _ in range(1 + seed % 3)]
        await play(log, copies, in_turn(seed, 500), dice=dice, kills=8)
        settled(log, copies)
        assert (faults.injected_count > 0) == (seed % 3 > 0)

    run(main(), cpu_s_max=CPU_S_MAX)


@pytest.mark.parametrize("seed", [*range((SEEDS + 1) // 2), 5009])  # a break in a handover
def test_floods_crashes_upgrades_full_and_older_stores_change_nothing(
    seed: int, tmp_path: Path
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        log = MemoryLog()
        begin(log)
        faults = Faults(seed, lost_per_mille=(0, 30)[seed % 2])
        made = [CATALOGUE["counting"][1], CATALOGUE["counting"][2], CATALOGUE["echoing"][1]]
        copies = [Copy(log, faults, tmp_path, *made) for _ in range(1 + seed % 3)]

        def worse(at: int) -> None:
            if at % 150 == 149:
                log.full = True
                asyncio.get_running_loop().call_later(3, lambda: setattr(log, "full", False))
            if seed % 4 == 3 and at == 200:
                log.roll_back(log.last_seq - 100)

        await play(log, copies, in_turn(seed, 400, worse=True), dice=dice, kills=6, worse=worse)
        settled(log, copies)
        said = [payload for _, _, payload in recorded(log.records, "counting")]
        assert any(b"by version 2" in payload for payload in said)

    run(main(), cpu_s_max=CPU_S_MAX)


@pytest.mark.parametrize("seed", [*range((SEEDS + 1) // 2), 1979])  # an exchange while one reads
def test_a_store_that_ends_inside_a_batch_is_built_upon_and_says_each_thing_once(
    seed: int, tmp_path: Path
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        log = MemoryLog()
        begin(log)
        faults = Faults(seed, lost_per_mille=(0, 30)[seed % 2])
        made = [CATALOGUE["counting"][1], CATALOGUE["counting"][2], CATALOGUE["echoing"][1]]
        copies = [Copy(log, faults, tmp_path, *made) for _ in range(1 + seed % 3)]
        due = sorted(dice.sample(range(40, 250), 6))

        def tear(at: int) -> None:
            torn = [seq for seq in range(log.last_seq - 150, log.last_seq) if inside(log, seq)]
            if due and due[0] <= at and torn:
                due.pop(0)
                log.roll_back(dice.choice(torn))

        await play(log, copies, in_turn(seed, 250, worse=True), dice=dice, kills=3, worse=tear)
        settled(log, copies, said_min=10)  # of what six tears left of the log
        assert log.torn_count >= 3

    run(main(), cpu_s_max=CPU_S_MAX)


def inside(log: MemoryLog, seq: int) -> bool:
    """Whether a store may end here: inside a batch, behind the activations of `begin`."""
    return seq > 20 and log.inside_a_batch(seq)


def test_an_input_without_conclusions_is_answered_when_nothing_else_happens(tmp_path: Path) -> None:
    async def main() -> None:
        log = MemoryLog()
        begin(log)
        copy = Copy(log, Faults(1), tmp_path, CATALOGUE["echoing"][1])
        living = asyncio.ensure_future(copy.live())
        for n in (1, 2):
            await asyncio.sleep(5)
            seq = log.append(traffic.line(n, "ok"))
            await asyncio.sleep(2)
            assert copy.runner is not None
            assert copy.runner.status()[0].in_seq == seq
        written = log.last_seq
        await asyncio.sleep(600)
        assert log.last_seq == written, "a log at rest grows"
        living.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)


def test_a_copy_can_be_stopped_while_the_log_is_away(tmp_path: Path) -> None:
    async def main() -> None:
        log = MemoryLog()
        copy = Copy(log, Faults(1, lost_per_mille=1000), tmp_path, CATALOGUE["echoing"][1])
        living = asyncio.ensure_future(copy.live())
        await asyncio.sleep(5)
        assert copy.runner is not None
        copy.runner.stop()
        await asyncio.sleep(10)
        assert living.done()

    run(main(), cpu_s_max=CPU_S_MAX)


def test_a_ticker_that_had_run_ahead_is_told_with_how_far(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        log = MemoryLog()
        begin(log)
        copy = Copy(log, Faults(1), tmp_path, CATALOGUE["counting"][1])
        living = asyncio.ensure_future(copy.live())
        log.append(traffic.tick(50))
        for second in range(1, 60):
            await asyncio.sleep(1)
            log.append(traffic.tick(second, start_ns=2))
        await asyncio.sleep(2)
        living.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)
    alarms = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert alarms[1:] == ["the clock ticks again"]
    assert re.match(r"the clock stands still: ticks come 4\d s behind log time", alarms[0])


def test_what_the_log_refuses_for_good_is_replaced_by_a_fact_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log = MemoryLog()
        begin(log)
        log.refuses = lambda message: b"4 of 9" in message.payload
        copies = [Copy(log, Faults(1), tmp_path, CATALOGUE["counting"][1]) for _ in range(2)]
        messages = [traffic.line(1, "burst 9"), traffic.line(2, "burst 3")]
        await play(log, copies, messages, dice=random.Random(1))
        said = recorded(log.records, "counting")
        assert [identity for identity, _, _ in said[:9]] == [f"counting/4/{k}" for k in range(9)]
        assert [token(subject) for _, subject, _ in said].count("conclusion_undeliverable") == 1
        assert len(said) == 12
        assert started(log.records, "processor_diverged") == []

    run(main(), cpu_s_max=CPU_S_MAX)


def test_inputs_that_expired_unread_are_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        log = MemoryLog()
        begin(log)
        copy = Copy(log, Faults(1), tmp_path, CATALOGUE["counting"][1])
        living = asyncio.ensure_future(copy.live())
        await asyncio.sleep(30)
        copy.runner = None
        living.cancel()
        await asyncio.sleep(5)
        first = log.append(*[traffic.line(n, "ok") for n in range(1, 41)]) - 39
        log.expire(first + 5, first + 24)
        copies = [Copy(log, Faults(2), tmp_path, CATALOGUE["counting"][1]) for _ in range(2)]
        await play(log, copies, [traffic.tick(9)], dice=random.Random(1))
        lost = started(log.records, "input_lost")
        assert [(each.from_seq, each.to_seq) for each in lost] == [(first + 5, first + 24)]
        assert len(recorded(log.records, "counting")) == 2

    run(main(), cpu_s_max=CPU_S_MAX)


@pytest.mark.parametrize("grown", [0, 200])
def test_an_older_store_is_noticed_also_when_it_has_outgrown_what_was_read(
    grown: int, tmp_path: Path
) -> None:
    async def main() -> None:
        log = MemoryLog()
        begin(log)
        copy = Copy(log, Faults(1), tmp_path, CATALOGUE["echoing"][1])
        living = asyncio.ensure_future(copy.live())
        for n in range(1, 101):
            log.append(traffic.line(n, "ok"))
        await asyncio.sleep(30)
        log.roll_back(60)
        log.append(traffic.tick(1), *[traffic.line(n, "new") for n in range(101, 101 + grown)])
        await asyncio.sleep(30)
        [told] = started(log.records, "log_shortened")
        assert told.read_seq > 60
        judge(log.records, {"echoing": CATALOGUE["echoing"]})
        assert len(recorded(log.records, "echoing")) > 10 + grown // 3
        living.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)


def test_two_copies_that_disagree_are_told(tmp_path: Path) -> None:
    class Broken(Counting):
        """As one on a machine whose arithmetic is wrong."""

        def _note(self, fact: Fact, text: str, *, urgent: bool = False) -> Conclusion:
            return super()._note(fact, text.replace("count", "c0unt"), urgent=urgent)

    async def main() -> None:
        log = MemoryLog()
        begin(log)
        faults = Faults(1)
        copies = [
            Copy(log, faults, tmp_path / "a", Counting),
            Copy(log, faults, tmp_path / "b", Broken),
        ]
        await play(log, copies, in_turn(1, 100), dice=random.Random(1))
        told = started(log.records, "processor_diverged")
        assert len(told) == 10
        assert {each.mine_sha256 == each.theirs_sha256 for each in told} == {False}

    run(main(), cpu_s_max=CPU_S_MAX)


def test_processors_in_one_process_or_in_two_say_the_same(tmp_path: Path) -> None:
    said = []
    for together in (True, False):
        log = MemoryLog()

        async def main(log: MemoryLog = log, together: bool = together) -> None:
            begin(log)
            faults = Faults(1)
            made = [CATALOGUE["counting"][1], CATALOGUE["echoing"][1]]
            groups = [made] if together else [[each] for each in made]
            copies = [
                Copy(log, faults, tmp_path / f"{together}{at}", *group)
                for at, group in enumerate(groups)
            ]
            await play(log, copies, in_turn(1, 200), dice=random.Random(1))
            settled(log, copies)

        run(main(), cpu_s_max=CPU_S_MAX)
        said.append(
            [
                msgspec.json.decode(p)["data"]["text"]
                for _, _, p in recorded(log.records, "counting")
            ]
        )
    assert said[0] == said[1]


def token(subject: str) -> str:
    return subject.split(".")[2]
