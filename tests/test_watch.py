"""Promises of the watch: an older log is noticed, a halt too, an outage is neither."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nemesis.schemas.facts import Record
from nemesis.streams.errors import LogFullError, LogUnavailableError, ShortenedError
from nemesis.streams.watch import (
    CHECK_PERIOD_S,
    CLOCK_SILENT_S,
    RETRY_S,
    STALLED_S,
    StalledError,
    Watch,
)
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.virtual_time import run

SECOND_NS = 1_000_000_000


class Counted(MemoryClient):
    """A connection that counts what it is asked, breaks when told, and answers at once."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, Faults(0, delay_s=0))
        self.asked = 0
        self.away = 0
        """So many requests from now on are lost."""

    def cut(self) -> None:
        self._broken += 1

    async def ask(self) -> None:
        self.asked += 1
        await super().ask()
        if self.away:
            self.away -= 1
            raise LogUnavailableError("away")


def filled(count: int = 5) -> MemoryLog:
    log = MemoryLog()
    log.append(*(traffic.line(n + 1, "ok") for n in range(count)))
    return log


async def nothing() -> None:
    """Nothing else is due."""


def play(story: Callable[[MemoryLog, Counted, Watch], Awaitable[None]]) -> None:
    """Run a story about a log of five records that were all read."""

    async def main() -> None:
        log = filled()
        client = Counted(log)
        watch = Watch([client])
        watch.arrived(log.records[-1])
        watch.read(log.records[-1])
        await story(log, client, watch)

    run(main())


async def watched(watch: Watch, seconds: float) -> None:
    """Let it run for some time; raises what it raises."""
    try:
        async with asyncio.timeout(seconds):
            await watch.run(nothing)
    except TimeoutError:
        return


def test_a_watch_knows_of_no_log_at_first() -> None:
    async def main() -> None:
        watch = Watch([Counted(filled())])
        assert (watch.last_seq, watch.read_seq, watch.clock_silent) == (0, 0, False)

    run(main())


def test_an_unbroken_connection_needs_no_question() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.append(traffic.line(6, "ok"))
        await watch.verified()
        assert client.asked == 0

    play(story)


def test_after_a_break_the_log_is_compared_once() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        client.cut()
        await watch.verified()
        await watch.verified()
        assert (client.asked, watch.last_seq) == (1, 5)
        log.append(traffic.line(6, "ok"))
        client.cut()
        await watch.verified()
        assert (client.asked, watch.last_seq) == (3, 6)

    play(story)


def test_a_break_of_any_connection_is_one() -> None:
    async def main() -> None:
        log = filled()
        clients = [Counted(log), Counted(log)]
        watch = Watch(clients)
        clients[1].cut()
        await watch.verified()
        assert [client.asked for client in clients] == [1, 0]

    run(main())


def test_a_log_that_is_away_is_asked_again_until_it_answers() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        client.cut()
        client.away = 3
        began = asyncio.get_running_loop().time()
        await watch.verified()
        assert client.asked == 4
        assert asyncio.get_running_loop().time() - began == pytest.approx(3 * RETRY_S)

    play(story)


def one_by_one(count: int) -> MemoryLog:
    """A log that may come back with any of these as its last record."""
    log = MemoryLog()
    for n in range(count):
        log.append(traffic.line(n + 1, "ok"))
    return log


def test_a_log_that_ends_before_what_was_read_is_told_with_both_ends() -> None:
    async def main() -> None:
        log = one_by_one(5)
        watch = Watch([Counted(log)])
        watch.arrived(log.records[-1])
        log.roll_back(3)
        with pytest.raises(
            ShortenedError,
            match=r"^the log was rolled back: record 5 was read and is not there any more,"
            r" it ends at 3$",
        ) as raised:
            await watch.verified()
        error = raised.value
        assert (error.read_seq, error.last_seq) == (5, 3)
        assert error.hint == "the copy rebuilds its state from the log as it is now"

    run(main())


def test_a_log_that_was_written_anew_behind_an_older_store_is_noticed() -> None:
    async def main() -> None:
        log = one_by_one(5)
        watch = Watch([Counted(log)])
        watch.arrived(log.records[-1])
        log.roll_back(4)
        log.append(traffic.line(5, "other"), traffic.line(6, "other"))
        with pytest.raises(ShortenedError) as raised:
            await watch.verified()
        assert (raised.value.read_seq, raised.value.last_seq) == (5, 6)

    run(main())


def test_what_is_in_hand_must_lie_in_the_log_before_it_is_read() -> None:
    async def main() -> None:
        log = one_by_one(5)
        watch = Watch([Counted(log)])
        watch.arrived(log.records[-1])
        watch.read(log.records[2])
        log.roll_back(3)
        with pytest.raises(ShortenedError, match="record 5 was read"):
            await watch.verified()

    run(main())


def test_a_record_that_expired_after_it_was_read_says_nothing() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.append(traffic.line(6, "ok"))
        log.expire(1, 5)
        client.cut()
        await watch.verified()
        assert client.asked == 2

    play(story)


def test_a_watch_that_has_read_nothing_asks_for_no_record() -> None:
    async def main() -> None:
        client = Counted(filled())
        watch = Watch([client])
        client.cut()
        await watch.verified()
        assert (client.asked, watch.last_seq, watch.read_seq) == (1, 5, 0)

    run(main())


def test_each_second_it_compares_and_then_does_what_else_is_due() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        at: list[tuple[float, int]] = []

        async def each() -> None:
            at.append((asyncio.get_running_loop().time(), client.asked))
            if len(at) == 3:
                raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            await watch.run(each)
        assert at == [(1 * CHECK_PERIOD_S, 1), (2 * CHECK_PERIOD_S, 2), (3 * CHECK_PERIOD_S, 3)]

    play(story)


def test_a_log_that_goes_on_without_us_is_a_halt_after_ten_seconds() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.append(traffic.line(6, "ok"))
        await watched(watch, STALLED_S + 0.5)
        with pytest.raises(
            StalledError,
            match=r"^nothing arrived for 10 s after record 5, the log ends at 6$",
        ):
            await watched(watch, 5)

    play(story)


def test_a_log_that_grew_again_to_just_where_it_ended_is_another_one() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.roll_back(3)
        log.append(traffic.line(8, "new"), traffic.line(9, "new"))
        with pytest.raises(ShortenedError, match="record 5 was read"):
            await watch.verified()

    play(story)


def test_a_log_without_news_is_no_halt() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        await watched(watch, 3 * STALLED_S)
        assert client.asked == 3 * STALLED_S - 1

    play(story)


def test_a_record_that_comes_in_starts_the_ten_seconds_anew() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.append(traffic.line(6, "ok"), traffic.line(7, "ok"))
        await watched(watch, STALLED_S - 1.5)
        watch.read(log.records[5])
        await watched(watch, STALLED_S + 0.5)
        assert watch.read_seq == 6
        with pytest.raises(StalledError, match="after record 6, the log ends at 7"):
            await watched(watch, 5)

    play(story)


def test_a_log_that_is_away_is_not_halted() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        log.append(traffic.line(6, "ok"))
        client.away = 20
        await watched(watch, 20 + STALLED_S + 0.5)
        with pytest.raises(StalledError):
            await watched(watch, 5)

    play(story)


def test_a_full_log_stops_nothing() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        calls = 0

        async def each() -> None:
            nonlocal calls
            calls += 1
            raise LogFullError("full")

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.5):
                await watch.run(each)
        assert calls == 5

    play(story)


def test_the_clock_is_silent_after_five_seconds_without_a_tick() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        await asyncio.sleep(CLOCK_SILENT_S)
        assert not watch.clock_silent
        await asyncio.sleep(0.1)
        assert watch.clock_silent
        watch.read(Record(6, "nemesis.telemetry.n001.kernel", 0, b""))
        assert watch.clock_silent
        assert watch.clock_state == "no clock tick for 5 s"
        watch.ticked(9)
        assert not watch.clock_silent
        assert watch.clock_state == "the clock ticks again"

    play(story)


def test_a_tick_that_is_told_again_is_no_clock() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        for _ in range(7):
            watch.ticked(SECOND_NS)
            await asyncio.sleep(1)
        assert watch.clock_silent

    play(story)


def test_ticks_that_do_not_advance_log_time_are_no_clock() -> None:
    async def story(log: MemoryLog, client: Counted, watch: Watch) -> None:
        watch.ticked(100 * SECOND_NS)
        for second in range(60, 67):
            await asyncio.sleep(1)
            watch.ticked(second * SECOND_NS)
        assert watch.clock_silent
        assert watch.clock_state == (
            "the clock stands still: ticks come 34 s behind log time,"
            " some ticker's clock had run ahead"
        )
        watch.ticked(101 * SECOND_NS)
        assert not watch.clock_silent
        watch.begin()
        watch.ticked(3 * SECOND_NS)  # what is read again is not behind
        await asyncio.sleep(CLOCK_SILENT_S + 1)
        assert watch.clock_state == "no clock tick for 5 s"

    play(story)
