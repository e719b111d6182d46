"""Reading in order: nothing lost, nothing twice, whatever happens to the server on the way."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from nemesis.schemas.facts import Record
from nemesis.streams import reader as reader_module
from nemesis.streams.errors import (
    InputGapError,
    LogUnavailableError,
    ShortenedError,
    UndeliverableError,
)
from nemesis.streams.log import Log, Message
from nemesis.streams.reader import Reader
from nemesis.streams.server import Server
from tests.cells import in_cell, until

pytestmark = pytest.mark.server
SAMPLE = "nemesis.telemetry.n001.sample"


def with_logs(folder: Path, body: Callable[[Server, Log, Log], Awaitable[None]]) -> None:
    async def run(server: Server) -> None:
        async with await server.connect("sim") as sim, await server.connect("reader") as log:
            await body(server, sim, log)

    in_cell(folder, run)


async def fill(log: Log, first: int, last: int, *, ttl_s: int | None = None) -> None:
    """Samples that say their own sequence."""
    for start in range(first, last + 1, 1000):
        await log.commit(
            [
                Message(subject=SAMPLE, payload=b"%d" % number, ttl_s=ttl_s)
                for number in range(start, min(start + 1000, last + 1))
            ]
        )


async def take(reader: Reader, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        got = await reader.next(30)
        assert got, f"only {len(records)} of {count}"
        records += got
    return records


def in_order(records: list[Record], first: int, last: int) -> bool:
    return [(r.seq, r.payload) for r in records] == [
        (number, b"%d" % number) for number in range(first, last + 1)
    ]


def test_a_backlog_of_many_pulls_and_what_comes_later_are_one_sequence(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 20_000)
        async with log.reader(1) as reader:
            records = await take(reader, 20_000)
            assert reader.pending_count == 0
            await fill(sim, 20_001, 20_003)
            records += await take(reader, 3)
            assert in_order(records, 1, 20_003)
            assert await reader.next(0.1) == []
            assert (reader.last_seq, reader.restart_count) == (20_003, 0)

    with_logs(tmp_path, body)


def test_reading_starts_at_any_sequence_also_at_one_that_is_to_come(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 10)
        async with log.reader(7) as reader:
            assert in_order(await take(reader, 4), 7, 10)
        async with log.reader(12) as reader:
            assert await reader.next(0.1) == []
            await fill(sim, 11, 12)
            assert in_order(await take(reader, 1), 12, 12)

    with_logs(tmp_path, body)


def test_a_killed_server_costs_no_record_and_repeats_none(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 9000)
        async with log.reader(1) as reader:
            records = await take(reader, 1)
            last = 9000
            for _ in range(3):
                await server.kill()
                await server.restart()
                await until(lambda: sim.connection.client.is_connected, "the writer is back")
                await fill(sim, last + 1, last + 500)
                last += 500
                records += await take(reader, last - len(records))
            assert in_order(records, 1, last)
            assert reader.restart_count >= 3

    with_logs(tmp_path, body)


@pytest.mark.parametrize("grown", [False, True])
def test_a_log_that_was_rolled_back_is_not_read_on(tmp_path: Path, grown: bool) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        store, older = server.folder / "store", tmp_path / "older"
        await fill(sim, 1, 10)
        await server.kill()
        shutil.copytree(store, older)
        await server.restart()
        await until(lambda: sim.connection.client.is_connected, "the writer is back")
        await fill(sim, 11, 20)
        async with log.reader(1) as reader:
            await take(reader, 20)
            await server.kill()
            shutil.rmtree(store)
            shutil.copytree(older, store)
            await server.restart()
            if grown:
                await until(lambda: sim.connection.client.is_connected, "the writer is back")
                await fill(sim, 11, 30)
            with pytest.raises(ShortenedError, match="record 20 was read"):
                await reader.next(30)

    with_logs(tmp_path, body)


def test_a_server_that_dies_before_the_first_record_does_not_make_us_start_over(
    tmp_path: Path,
) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 1000)
        async with log.reader(1001) as reader:
            await reader.start()
            await server.kill()
            assert await reader.next(0.1) == []
            await server.restart()
            await until(lambda: sim.connection.client.is_connected, "the writer is back")
            await fill(sim, 1001, 1001)
            assert in_order(await take(reader, 1), 1001, 1001)

    with_logs(tmp_path, body)


def test_a_consumer_that_the_server_forgot_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "SILENCE_S", 0.8)

    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 10)
        async with log.reader(1) as reader:
            records = await take(reader, 10)
            # the subscription is gone, as after a proxy swallowed it: silence is all there is
            assert reader._subscription is not None
            await log.connection.unsubscribe(reader._subscription)
            await fill(sim, 11, 20)
            records += await take(reader, 10)
            assert in_order(records, 1, 20)
            assert reader.restart_count == 1

    with_logs(tmp_path, body)


def test_a_reader_that_is_called_seldom_does_not_take_its_own_absence_for_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "SILENCE_S", 0.8)

    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 1)
        async with log.reader(1) as reader:
            await take(reader, 1)
            await asyncio.sleep(1)
            await fill(sim, 2, 2)
            assert in_order(await take(reader, 1), 2, 2)
            # and short waits do not hide a real one
            assert reader._subscription is not None
            await log.connection.unsubscribe(reader._subscription)
            await fill(sim, 3, 3)
            records: list[Record] = []

            async def arrived() -> bool:
                records.extend(await reader.next(0.05))
                return bool(records)

            await until(arrived, "the next record, through a new consumer")
            assert in_order(records, 3, 3)

    with_logs(tmp_path, body)


def test_expired_records_are_a_jump_and_no_loss(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 5)
        await fill(sim, 6, 10, ttl_s=1)
        await fill(sim, 11, 12)

        async def expired() -> bool:
            return await log.get(6) is None and await log.get(10) is None

        await until(expired, "the records in the middle have expired")
        async with log.reader(1) as reader:
            assert [r.seq for r in await take(reader, 7)] == [1, 2, 3, 4, 5, 11, 12]
        assert [r.seq async for r in log.read_range(4, 11)] == [4, 5, 11]
        assert [r.seq async for r in log.read_range(6, 10)] == []

    with_logs(tmp_path, body)


def test_a_range_ends_at_the_end_of_the_log(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        assert [r async for r in log.read_range(1, 100)] == []
        await fill(sim, 1, 5)
        assert [r.seq async for r in log.read_range(1, 100)] == [1, 2, 3, 4, 5]
        assert [r.seq async for r in log.read_range(2, 3)] == [2, 3]
        assert [r.seq async for r in log.read_range(4, 3)] == []
        await fill(sim, 6, 7, ttl_s=1)

        async def expired() -> bool:
            return await log.get(7) is None

        await until(expired, "the end has expired")
        assert [r.seq async for r in log.read_range(6, 7)] == []
        assert [r.seq async for r in log.read_range(5, 7)] == [5]

    with_logs(tmp_path, body)


def test_a_person_follows_one_subject(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        for number in range(1, 7):
            kind = "kernel" if number % 2 else "sample"
            await sim.publish(f"nemesis.telemetry.n001.{kind}", b"%d" % number)
        seen: list[int] = []
        async for record in log.follow(2, subject="nemesis.telemetry.*.kernel"):
            seen.append(record.seq)
            if record.seq == 5:
                break
        assert seen == [3, 5]

    with_logs(tmp_path, body)


def test_a_delivery_that_never_arrived_is_loss(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 3)
        async with log.reader(1) as reader:
            receive, dropped = reader._on_message, 0

            async def lossy(msg: Msg) -> None:
                nonlocal dropped
                if msg.data == b"2":
                    dropped += 1
                else:
                    await receive(msg)

            reader._on_message = lossy  # type: ignore[method-assign]
            with pytest.raises(InputGapError, match="delivery 3 instead of 2 at sequence 3"):
                await take(reader, 3)
            assert dropped == 1
        async with log.reader(1) as again:
            assert in_order(await take(again, 3), 1, 3)

    with_logs(tmp_path, body)


def test_what_may_not_be_read_is_told_at_once(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        async with Log(log.connection, stream="NEMESIS_TRUTH").reader(1) as reader:
            with pytest.raises(UndeliverableError, match="reader may not"):
                await reader.start()

    with_logs(tmp_path, body)


def test_a_closed_connection_ends_reading(tmp_path: Path) -> None:
    async def body(server: Server, sim: Log, log: Log) -> None:
        await fill(sim, 1, 1)
        other = await server.connect("reader")
        reader = other.reader(1)
        await take(reader, 1)
        await other.close()
        with pytest.raises(LogUnavailableError):
            await reader.next(30)
        await reader.close()

    with_logs(tmp_path, body)
