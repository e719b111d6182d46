"""Thousands of small disasters under a simulated clock: each run is one seed.

After TigerBeetle's VOPR: N copies, requests and answers lost, copies killed at any await, a log
that comes back older. After every run the log equals what an undisturbed run would have said.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.processor import Processor
from nemesis.schemas.errors import NemesisError
from nemesis.streams.batch import Message
from nemesis.streams.runner import Runner
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.oracle import judge, recorded, started
from tests.faults.processors import CATALOGUE
from tests.faults.virtual_time import run

Made = Callable[[], Processor]
SEEDS = range(25)


class Copy:
    """One process: killed, it starts again with nothing but its folder."""

    def __init__(self, log: MemoryLog, faults: Faults, folder: Path, *made: Made) -> None:
        self.log, self.faults, self.folder, self.made = log, faults, folder, made
        self.lives = 0
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
            except NemesisError:
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


def in_turn(seed: int, count: int, *, nodes: int = 3) -> list[Message]:
    """Lines of several nodes, some of them faults, and a tick after every twenty."""
    dice = random.Random(seed)
    numbers = dict.fromkeys(range(nodes), 0)
    messages = []
    for at in range(count):
        node = dice.randrange(nodes)
        numbers[node] += 1
        text = dice.choice(["ok", "ok", "ok", "fault", "cured", f"burst {dice.randrange(5)}"])
        messages.append(traffic.line(numbers[node], text, node=f"n{node:03}", at_s=at / 20))
        if at % 20 == 19:
            messages.append(traffic.tick(at // 20))
    return messages


async def play(
    log: MemoryLog,
    copies: list[Copy],
    messages: list[Message],
    *,
    dice: random.Random,
    kills: int = 0,
    settle_s: float = 30.0,
) -> None:
    """Write the messages over half a minute, kill now and then, and let everything come to rest."""
    living = [asyncio.ensure_future(copy.live()) for copy in copies]
    doomed = sorted(dice.sample(range(len(messages)), kills))
    for at, message in enumerate(messages):
        log.append(message)
        await asyncio.sleep(dice.random() * 0.06)
        if doomed and doomed[0] == at:
            del doomed[0]
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


def settled(log: MemoryLog, copies: list[Copy]) -> None:
    """Judge the log, and that it was not one copy alone that did the work of all."""
    judge(log.records, CATALOGUE)
    assert len(recorded(log.records, "counting")) > 20
    assert started(log.records, "processor_diverged") == []
    end = max(each.seq for each in log.records if not each.subject.startswith("nemesis.cursor."))
    for copy in copies:
        assert copy.runner is not None
        for status in copy.runner.status():
            assert status.read_seq >= end - 60, f"{status.name} of a copy stands at {status}"


@pytest.mark.parametrize("seed", SEEDS)
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

    run(main())


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

        run(main())
        said.append(
            [
                msgspec.json.decode(p)["data"]["text"]
                for _, _, p in recorded(log.records, "counting")
            ]
        )
    assert said[0] == said[1]


def _text(payload: bytes) -> str:
    return str(msgspec.json.decode(payload)["data"]["text"])
