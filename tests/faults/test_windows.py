"""Disasters of a processor with a window: what is read again is what was kept."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.fold import first_needed
from nemesis.replay.verify import plans_of, verify_log
from nemesis.schemas.facts import Record
from nemesis.schemas.kept import SnapshotTaken
from nemesis.streams.batch import Message
from tests.ecc_log import FILES, MODEL, NONE, Nodes, quiet, watched
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryLog
from tests.faults.oracle import judge, recorded, started
from tests.faults.processors import Counting, Looking, LookingNext
from tests.faults.test_simulated import CPU_S_MAX, SEEDS, Copy, in_turn, play
from tests.faults.virtual_time import run

LOOKING: Catalogue = {"looking": {1: Looking, 2: LookingNext}}


def begun() -> MemoryLog:
    log = MemoryLog()
    log.append(traffic.tick(0), traffic.activation("looking", 1))
    return log


@pytest.mark.parametrize("seed", range((SEEDS + 1) // 2))
def test_copies_killed_at_any_await_find_their_window_again(seed: int, tmp_path: Path) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        log = begun()
        faults = Faults(seed, lost_per_mille=(0, 20, 100)[seed % 3])
        copies = [Copy(log, faults, tmp_path, Looking, LookingNext) for _ in range(1 + seed % 3)]
        messages = in_turn(seed, 500)
        if seed % 2:
            messages.insert(300, traffic.activation("looking", 2, number=1))

        def older(at: int) -> None:
            if seed % 4 == 3 and at == 200:
                log.roll_back(log.last_seq - 100)

        await play(log, copies, messages, dice=dice, kills=8, worse=older)
        judge(log.records, LOOKING)
        assert len(recorded(log.records, "looking")) > 60
        assert started(log.records, "processor_diverged") == []
        again = started(log.records, "processor_started")
        assert len(again) > 5
        assert {each.missed_count for each in again} == {0}

    run(main(), cpu_s_max=CPU_S_MAX)


def test_what_expired_of_a_window_is_counted_and_not_told_as_lost(tmp_path: Path) -> None:
    async def main() -> None:
        log = begun()
        copy = Copy(log, Faults(1), tmp_path, Looking)
        living = asyncio.ensure_future(copy.live())
        messages = in_turn(1, 400)
        for each in messages:
            log.append(each)
            await asyncio.sleep(0.1)
        await asyncio.sleep(30)
        living.cancel()
        [*_, state] = [each for each in log.records if each.subject.endswith("looking.snapshot")]
        needed = first_needed(_state_in(state))
        log.expire(needed + 2, needed + 11)
        gone = 10 - sum(needed + 2 <= each.seq <= needed + 11 for each in log.records)
        following = Copy(log, Faults(2), tmp_path, Looking)
        await play(log, [following], messages[:1], dice=random.Random(1))
        assert started(log.records, "processor_started")[-1].missed_count == gone > 0
        assert started(log.records, "input_lost") == []

    run(main(), cpu_s_max=CPU_S_MAX)


def _state_in(record: Record) -> bytes:
    return msgspec.msgpack.decode(record.payload, type=SnapshotTaken).state


def messages_of(log: Nodes) -> list[Message]:
    """To be written by their producers."""
    return [Message(subject=each.subject, payload=each.payload) for each in log.records]


def raising() -> Nodes:
    """A GPU that a model speaks of after half an hour, and again when it is well."""
    log = quiet(watched("n1"), "n1")
    for code in (122, 0, 122):
        log.power("n1", code, 0)
        log.tick()
    return log


def test_a_copy_without_the_model_waits_and_one_that_has_it_answers_everything(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log = MemoryLog()
        without = Copy(log, Faults(1), tmp_path / "a", lambda: EccModel(NONE.get))
        living = asyncio.ensure_future(without.live())
        log.append(*messages_of(raising()))
        await asyncio.sleep(30)
        assert without.runner is not None
        (status,) = without.runner.status()
        assert (status.stage, status.in_seq) == ("waiting", 3)
        assert status.problem.startswith(f"ecc_model: the active model {MODEL} is not in this")
        assert recorded(log.records, "ecc_model") == []
        having = Copy(log, Faults(2), tmp_path / "b", lambda: EccModel(FILES.get))
        other = asyncio.ensure_future(having.live())
        await asyncio.sleep(30)
        judge(log.records, {"ecc_model": {1: lambda: EccModel(FILES.get)}})
        assert len(recorded(log.records, "ecc_model")) == 3
        assert without.lives == having.lives == 1
        living.cancel()
        other.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)


def test_replay_without_the_model_says_which_one_is_missing() -> None:
    log = raising()
    report = verify_log(
        log.records, plans_of(log.records), {}, lambda name, version: EccModel(NONE.get)
    )
    (own,) = report.processors
    assert report.verdict == "unverified"
    assert own.unverified == (
        f"ecc_model: the active model {MODEL} is not in this release;"
        " run the release that ships it, put its file into the folder NEMESIS_MODELS,"
        " or activate one that is here"
    )


def test_a_copy_killed_again_and_again_in_half_an_hour_says_what_an_undisturbed_one_says(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log, dice = MemoryLog(), random.Random(5)
        copy = Copy(log, Faults(1), tmp_path, lambda: EccModel(FILES.get))
        living = asyncio.ensure_future(copy.live())
        for message in messages_of(raising()):
            log.append(message)
            await asyncio.sleep(0.1)
            if dice.random() < 0.02:
                copy.kill()
        await asyncio.sleep(30)
        judge(log.records, {"ecc_model": {1: lambda: EccModel(FILES.get)}})
        assert len(recorded(log.records, "ecc_model")) == 3
        assert copy.lives > 10
        living.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)


def test_who_reads_again_does_not_keep_others_from_saying_that_they_are_at_work(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        log = begun()
        log.append(traffic.activation("counting", 1))
        copy = Copy(log, Faults(1), tmp_path, Looking, Counting)
        living = asyncio.ensure_future(copy.live())
        for each in in_turn(1, 400):
            log.append(each)
            await asyncio.sleep(0.1)
        copy.kill()
        await asyncio.sleep(10)
        told = [each.name for each in started(log.records, "processor_started")]
        assert sorted(told) == ["counting", "counting", "looking", "looking"]
        judge(log.records, {"counting": {1: Counting}})
        living.cancel()

    run(main(), cpu_s_max=CPU_S_MAX)
