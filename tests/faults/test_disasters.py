"""What happens to a cell in a bad year, with real processes and a real server.

After each: the log by the readers' rule equals an undisturbed run's, nothing lost, nothing twice,
order kept, and every copy has advanced to the end. The same for the effects of actors:
tests/faults/test_recovery.py.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

import msgspec
import pytest

from nemesis.schemas.facts import telemetry_subject
from nemesis.schemas.kept import SnapshotTaken
from nemesis.streams.batch import Message
from nemesis.streams.position import SNAPSHOT_IN_LOG_BYTES_MAX
from nemesis.streams.provision import Limits
from tests.faults import traffic
from tests.faults.oracle import recorded, started
from tests.faults.stage import Stage, stage

KILLS = int(os.environ.get("NEMESIS_FAULT_KILLS", "20"))
pytestmark = [pytest.mark.server, pytest.mark.timeout(300 + 10 * KILLS)]


def test_copies_and_servers_killed_and_a_copy_that_stops_for_ten_seconds(tmp_path: Path) -> None:
    async def main() -> None:
        dice = random.Random(3)
        async with stage(tmp_path) as here, here.copies("a", "b"), here.traffic():
            for at in range(KILLS):
                await here.server.kill_and_restart()
                await asyncio.sleep(dice.random() * 0.5)
                if at % 2:
                    here.signal(dice.choice("ab"), signal.SIGKILL)
            assert here.server.kills == KILLS
            records = await here.settle()
            before = len(recorded(records, "counting"))

        async with stage(tmp_path / "paused") as here, here.copies("a", "b"):
            await here.lines(20)
            await here.settle()
            async with here.traffic():
                here.signal("a", signal.SIGSTOP)
                await asyncio.sleep(10)
                here.signal("a", signal.SIGCONT)
                records = await here.settle()
        assert before > 20
        assert started(records, "processor_diverged") == []

    asyncio.run(main())


def test_an_upgrade_and_a_change_of_settings_in_mid_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a", "b"):
            await here.lines(60)
            await here.write(traffic.activation("counting", 1, every=4, number=1))
            await here.lines(60)
            async with here.traffic():
                await here.write(traffic.activation("counting", 2, every=7, number=2))
                await here.until(lambda: _answers(here, "counting", 2))
                here.signal("a", signal.SIGKILL)
                await asyncio.sleep(1)
            records = await here.settle()
            said = b"".join(payload for _, _, payload in recorded(records, "counting"))
            assert b"by version 2" in said
            assert started(records, "processor_diverged") == []

    asyncio.run(main())


def test_what_producers_do_wrong(tmp_path: Path) -> None:
    """A restart within a boot, a spool of ten minutes, 900 KB at once, a flood in one step."""

    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a", "b"):
            await here.lines(40)
            for start_ns in (5, 9, 5):
                for _ in range(10):
                    await here.line("ok", start_ns=start_ns)
            await here.write(
                *[traffic.line(n, "again", start_ns=5, at_s=9) for n in range(1, 21)],
                *[traffic.line(n, "late", node="n009", at_s=n / 10) for n in range(1, 21)],
            )
            for _ in range(600):
                await here.tick()
            await here.write(
                *[traffic.line(n, "spooled", node="n009", at_s=n / 10) for n in range(21, 61)]
            )
            await here.line("large " + "9" * 900_000)
            await here.line("large 70000")
            await here.line("burst 1500")
            await here.write(
                Message(subject=telemetry_subject("n001", "kernel"), payload=b"\xc1" * 900_000)
            )
            await here.lines(40)
            records = await here.settle()
            assert len(started(records, "conclusion_undeliverable")) > 0
            burst = [i for i, _, payload in recorded(records, "counting") if b"of 1500" in payload]
            assert len(burst) == 1500

    asyncio.run(main())


def test_a_step_that_always_crashes_is_skipped_after_three_deaths(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a", "b"):
            await here.lines(20)
            await here.line("crash")
            await here.lines(20)
            await here.line("exit")
            await here.lines(20)
            records = await here.settle()
            skipped = started(records, "fact_skipped")
            assert [each.error for each in skipped] == [
                "ValueError: this step always crashes",
                "the process died in this step",
            ]

    asyncio.run(main())


def test_a_dead_clock_is_told_and_two_clocks_count_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a"):
            await here.lines(20)
            here.ticking = False

            async def alarmed() -> bool:
                await here.line("ok")
                return any(status.clock_silent for status in here.status("a"))

            await here.until(alarmed)
            here.ticking = True
            for second in range(30, 60):
                await here.write(traffic.tick(second), traffic.tick(second, start_ns=2))
            await here.lines(20)
            said = recorded(await here.settle(), "counting")
            assert len([1 for _, _, payload in said if b'"minute"' in payload]) <= 2

    asyncio.run(main())


def test_a_store_that_lost_its_last_hundred_messages_is_noticed_and_built_upon(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a", "b"):
            await here.lines(60)
            await here.settle()
            await here.server.save_store("older")
            await here.lines(100)
            await here.settle()
            await here.server.restore_store("older")
            records = await here.settle()
            assert len(started(records, "log_shortened")) > 0
            await here.lines(100)
            await here.settle()

    asyncio.run(main())


def test_a_store_that_ends_inside_a_batch_is_built_upon_and_says_each_thing_once(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a", "b"):
            for lost_min in (1, 100, 2):
                await here.lines(120)
                await here.settle()
                async with here.traffic():
                    await asyncio.sleep(0.5)
                    assert await here.server.tear_store(lost_min) >= lost_min
            records = await here.settle()
            assert len(started(records, "log_shortened")) > 0
            assert started(records, "processor_diverged") == []

    asyncio.run(main())


def test_a_state_too_large_for_the_log_is_restored_from_the_store_of_states(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a"):
            await here.lines(20)
            await here.line(f"hoard {SNAPSHOT_IN_LOG_BYTES_MAX + 1}")
            hoarded_seq = (await here.log.bounds()).last_seq
            await here.lines(20)

            async def stored() -> bool:
                record = await here.log.last("nemesis.cursor.counting.snapshot")
                taken = (
                    msgspec.msgpack.decode(record.payload, type=SnapshotTaken) if record else None
                )
                if taken is None or taken.in_seq < hoarded_seq:
                    await here.line("ok")
                    return False
                state = await here.log.states.get(taken.sha256)
                assert (taken.state, len(state or b"")) == (b"", taken.size_bytes)
                assert taken.size_bytes > SNAPSHOT_IN_LOG_BYTES_MAX
                return True

            await here.until(stored)
            await here.settle()
            here.signal("a", signal.SIGKILL)
            await here.lines(20)
            records = await here.settle()
            told = started(records, "processor_started")
            again = [each for each in told if (each.name, each.version) == ("counting", 1)]
            assert [each.how for each in again] == ["cold", "snapshot"]
            assert again[-1].state_from >= hoarded_seq

    asyncio.run(main())


def test_a_log_at_its_byte_limit_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        limits = Limits(log_bytes=2_000_000, store_bytes=8 * 2**20)
        async with stage(tmp_path, limits=limits) as here, here.copies("a"):
            await here.lines(40)
            await here.settle()
            await here.line("ok")

            async def full() -> bool:
                await here.fill_up()
                return any(status.log_full for status in here.status("a"))

            await here.until(full)
            await here.server.raise_limit(16 * 2**20)
            await here.lines(40)
            assert started(await here.settle(), "processor_diverged") == []

    asyncio.run(main())


async def _answers(here: Stage, name: str, version: int) -> bool:
    return any(
        status.name == name and status.version == version and status.in_seq > 0
        for copy in here.proxies
        for status in here.status(copy)
    )
