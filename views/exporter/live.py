"""Reads the log for the exporter: every event from the first on, then what comes.

It holds the seed `exporter`, which may write nothing. A log that was rolled back is counted anew,
which looks to Prometheus like any restart of a counter.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nemesis.processors.fold import Input
from nemesis.streams.errors import InputGapError, LogUnavailableError, ShortenedError
from nemesis.streams.log import Log
from nemesis.streams.lookup import first_since
from nemesis.streams.reader import Reader
from nemesis.streams.side_by_side import background
from nemesis.views.exporter.events import Events
from nemesis.views.exporter.series import Series
from nemesis.views.exporter.watching import SILENT_NS, Watching
from nemesis.views.standing import Status, measure

ROLE: Final = "exporter"
LOOK_PERIOD_S: Final = 5.0
READY_LOOK_S: Final = 0.05
RETRY_S: Final = 1.0
RECORDS_AT_ONCE: Final = 500  # between two looks at who asks
EVENTS: Final = "nemesis.events.>"
KERNEL: Final = "nemesis.telemetry.*.kernel"
COVERAGE: Final = "nemesis.telemetry.*.coverage"
_PPM: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000


class Live:
    """Feeds the series from a log."""

    def __init__(self, log: Log, *, look_period_s: float = LOOK_PERIOD_S) -> None:
        self.series = Series()
        self.counted = False
        """All that the log held is in the series."""
        self.reachable = False
        """The log answers."""
        self._log: Final = log
        self._look_period_s: Final = look_period_s

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            LogUnavailableError: the connection is closed for good.
        """
        while True:
            with suppress(LogUnavailableError, InputGapError, ShortenedError):
                await self._read()
            if self._log.connection.client.is_closed:
                raise LogUnavailableError("the connection to the log is closed")
            self.counted = self.reachable = False
            await asyncio.sleep(RETRY_S)

    async def _read(self) -> None:
        """Count from the beginning, until reading breaks."""
        self.series = series = Series()
        events, watching = Events(series), Watching(series)
        end = (await self._log.bounds()).last_seq
        recent = await first_since(self._log, time.time_ns() - SILENT_NS)
        past = [self._log.reader(1, subject=subject) for subject in (EVENTS, KERNEL)]
        from_seq = recent.seq if recent is not None else end + 1
        async with past[0], past[1], self._log.reader(from_seq, subject=COVERAGE) as coverage:
            for reader in past:
                await reader.start()
            async with background(
                _count(past[0], events.see),
                _count(past[1], events.see_kernel),
                _count(coverage, lambda item: _cover(watching, item)),
            ):
                await self._look(series, watching, past)

    async def _look(self, series: Series, watching: Watching, past: list[Reader]) -> None:
        """Set what is true now, each period; return when the log has become shorter."""
        while True:
            if not self.counted and any(reader.pending_count for reader in past):
                await asyncio.sleep(READY_LOOK_S)
                continue
            try:
                now = await measure(self._log, "")
            except LogUnavailableError:
                self.reachable = False
            else:
                if now.last_seq < max(reader.last_seq for reader in past):
                    return
                _show(series, now)
                series.set("exporter_lag_records", to=past[0].pending_count)
                watching.show(time.time_ns())
                self.counted = self.reachable = True
            series.set("log_reachable", to=self.reachable)
            await asyncio.sleep(self._look_period_s)


async def _count(reader: Reader, see: Callable[[Input], None]) -> None:
    async for records in reader:
        for number, record in enumerate(records):
            see(Input(record))
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)


def _cover(watching: Watching, item: Input) -> None:
    if (data := item.decoded()) is not None:
        watching.see(data, item.record.stored_ns)


def _show(series: Series, now: Status) -> None:
    series.set("log_used_bytes", to=now.used_bytes)
    series.set("log_limit_bytes", to=max(0, now.limit_bytes))
    series.set("log_fill_ratio", to=now.fill_ppm / _PPM)
    series.set("log_records", to=now.last_seq)
    age_ns = now.clock_age_ns
    series.set("clock_age_seconds", to=-1 if age_ns is None else max(0, age_ns) / _SECOND_NS)
    for each in now.processors:
        series.set("processor_lag_seconds", each.name, to=each.lag_ns / _SECOND_NS)
        series.set("processor_lag_records", each.name, to=each.lag_seq)
