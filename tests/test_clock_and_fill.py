"""The tick of the log, its fill level, and the alarm when the clock stops."""

import asyncio
import time
from pathlib import Path

import pytest

from nemesis.processors.fold import Fold, Input
from nemesis.schemas.facts import Fact, Record, decode_conclusion, decode_observation
from nemesis.streams import keeper, ticker
from nemesis.streams.log import Bounds
from nemesis.streams.server import Server
from tests.cells import in_cell, until

SECOND_NS = 1_000_000_000


def bounds(used: int, limit: int) -> Bounds:
    return Bounds(
        first_seq=1,
        last_seq=9,
        messages_count=9,
        used_bytes=used,
        limit_bytes=limit,
        last_stored_ns=5,
    )


def test_ticks_of_one_second_are_one_fact_whoever_ticks() -> None:
    assert ticker.tick_of(7 * SECOND_NS) == ticker.tick_of(8 * SECOND_NS - 1)
    tick = ticker.tick_of(7 * SECOND_NS + 3)
    assert (tick.node, tick.n, tick.at_ns) == ("clock", 7, 7 * SECOND_NS)


class Seconds:
    """A processor that writes down every tick that it is handed."""

    name, version, reads = "seconds", 1, ("tick",)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def configure(self, settings: bytes) -> None: ...

    def step(self, fact: Fact) -> list[object]:
        self.seen.append(fact.at_ns)
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, snapshot: bytes) -> None: ...


@pytest.mark.server
def test_two_tickers_at_any_speed_make_one_clock(tmp_path: Path) -> None:
    began = time.monotonic_ns()

    def fast() -> int:
        return 1000 * SECOND_NS + (time.monotonic_ns() - began) * 50

    async def body(server: Server) -> None:
        async with (
            await server.connect("ticker") as one,
            await server.connect("ticker") as two,
            await server.connect("reader") as log,
        ):
            tasks = [asyncio.ensure_future(ticker.run(each, fast, speed=50)) for each in (one, two)]

            async def enough() -> bool:
                return (await log.bounds()).last_seq >= 30

            await until(enough, "thirty ticks")
            await server.kill()
            await server.restart()
            last = 0

            async def goes_on() -> bool:
                nonlocal last
                last = (await log.bounds()).last_seq
                return last >= 60

            await until(lambda: log.connection.client.is_connected, "the log is back")
            await until(goes_on, "the clock goes on")
            for task in tasks:
                task.cancel()
            records: list[Record] = [r async for r in log.read_range(1, last)]
            seconds = Seconds()
            fold = Fold(seconds)  # type: ignore[arg-type]
            for record in records:
                fold.step(Input(record))
            ticks = [decode_observation("tick", r.payload).at_ns for r in records]
            # one that was on its way for longer than a second came behind the other's next
            later = [tick for at, tick in enumerate(ticks) if tick > max(ticks[:at], default=0)]
            assert seconds.seen == later
            assert len(set(ticks)) < len(ticks), "both tickers were heard"

    in_cell(tmp_path, body)


@pytest.mark.server
def test_a_clock_that_goes_back_does_not_take_log_time_with_it(tmp_path: Path) -> None:
    times = iter([*range(10, 13), *range(5, 13), *range(13, 400)])

    async def body(server: Server) -> None:
        async with await server.connect("ticker") as log, await server.connect("reader") as reader:
            now = 0

            def jumping() -> int:
                nonlocal now
                now = next(times, now) * SECOND_NS if now < 10**12 else now
                return now

            task = asyncio.ensure_future(ticker.run(log, jumping, speed=1e9))

            async def past() -> bool:
                return (await reader.bounds()).last_seq >= 5

            await until(past, "five ticks")
            task.cancel()
            ticks = [
                decode_observation("tick", r.payload).at_ns async for r in reader.read_range(1, 5)
            ]
            assert ticks == sorted(set(ticks))

    in_cell(tmp_path, body)


@pytest.mark.parametrize(
    ("used", "limit", "fill_ppm", "rate"),
    [
        (0, 100, 0, "full"),
        (79, 100, 790_000, "full"),
        (80, 100, 800_000, "half"),
        (90, 100, 900_000, "kernel"),
        (200, 100, 1_000_000, "kernel"),
        (200, -1, 0, "full"),
    ],
)
def test_the_fill_level_says_what_producers_may_send(
    used: int, limit: int, fill_ppm: int, rate: str
) -> None:
    data = keeper.measured(bounds(used, limit), 7)
    assert data.fill_ppm == fill_ppm
    assert keeper.rate_of(data.fill_ppm) == rate
    assert data.at_ns == 7


@pytest.mark.server
def test_the_keeper_measures_and_tells_when_the_clock_stops_and_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "WATCH_PERIOD_S", 0.02)
    monkeypatch.setattr(keeper, "TICK_SILENCE_S", 0.3)

    async def body(server: Server) -> None:
        async with (
            await server.connect("keeper") as log,
            await server.connect("ticker") as clock,
            await server.connect("node/n001") as node,
        ):
            assert await keeper.fill_ppm(node) == 0
            alarms: list[str] = []
            task = asyncio.ensure_future(keeper.run(log, lambda: 77, alarms.append, period_s=0.1))
            await until(lambda: len(alarms) == 1, "silence is told")
            ticking = asyncio.ensure_future(ticker.run(clock, time.time_ns))
            await until(lambda: len(alarms) == 2, "the clock is back")
            ticking.cancel()
            await server.kill()
            await until(lambda: len(alarms) == 3, "a log that is away ticks no more")
            await server.restart()
            assert "no tick for" in alarms[0]
            assert alarms[1] == "the clock ticks again"

            async def measured() -> bool:
                return await node.last("nemesis.events.log_measured.log") is not None

            await until(lambda: node.connection.client.is_connected, "the node is back")
            await until(measured, "a node may read the fill level")
            record = await node.last("nemesis.events.log_measured.log")
            assert record is not None
            event, data = decode_conclusion("log_measured", record.payload)
            assert (event.id, data.at_ns) == ("keeper/77", 77)
            assert data.last_seq >= 1
            task.cancel()

    in_cell(tmp_path, body)
