"""Reads the log for the page: what was, then what comes, for as long as the server runs.

The past is read by subject: inventories and events; samples of the past say nothing that is shown.
Then everything is followed, because who has fallen silent can be told by hearing all.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from nemesis.replay.slices import matching
from nemesis.schemas.facts import Record
from nemesis.streams.contexts import Target
from nemesis.streams.errors import InputGapError, LogUnavailableError, ShortenedError
from nemesis.streams.log import Log
from nemesis.streams.provision import require_streams
from nemesis.streams.ticker import TICK_SUBJECT
from nemesis.streams.watch import CLOCK_SILENT_S
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.hub import Hub

ROLE: Final = "dashboard"
CHECK_PERIOD_S: Final = 1.0
READY_LOOK_S: Final = 0.05
RECORDS_AT_ONCE: Final = 500  # between two looks at what browsers ask for
_PAST: Final = ("nemesis.telemetry.*.inventory", "nemesis.events.>")


class Live:
    """Feeds a hub from a log."""

    def __init__(self, hub: Hub, log: Log, *, cell: str, where: str) -> None:
        self.hub: Final = hub
        self.log: Final = log
        self.task: asyncio.Task[None] | None = None
        """Ends only with an error."""
        self._cell: Final = cell
        self._where: Final = where

    async def run(self) -> None:
        """Read for ever; a log that was rolled back is read anew.

        Raises:
            LogUnavailableError: the connection is closed for good.
        """
        while True:
            try:
                last_seq = await self._past()
            except (LogUnavailableError, InputGapError, ShortenedError):
                if self.log.connection.client.is_closed:
                    raise
                self.hub.connected = False
                self._begin_anew()
                await asyncio.sleep(CHECK_PERIOD_S)
                continue
            self.hub.ready = self.hub.connected = True
            self.hub.publish()
            following = asyncio.ensure_future(self._follow(last_seq + 1))
            watching = asyncio.ensure_future(self._watch())
            try:
                await asyncio.wait({following, watching}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, watching):
                    task.cancel()
            for task in (following, watching):
                with suppress(asyncio.CancelledError, InputGapError, ShortenedError):
                    await task
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.hub.replace(Board(cell=self._cell, where=self._where))
        self.hub.ready = False

    async def until_ready(self) -> None:
        """Return once the past has been read.

        Raises: as `run`.
        """
        while not self.hub.ready:
            self.check()
            await asyncio.sleep(READY_LOOK_S)

    def check(self) -> None:
        """Raise what reading has ended with, if it has."""
        if self.task is not None and self.task.done():
            self.task.result()

    async def fact(self, seq: int) -> Record | None:
        """A record of the log, if it still has it."""
        with suppress(LogUnavailableError):
            return await self.log.get(seq)
        return None

    async def last_sample(self, token: str) -> Record | None:
        """The newest sample of a node, by the token of its name."""
        with suppress(LogUnavailableError):
            return await self.log.last(f"nemesis.telemetry.{token}.sample")
        return None

    async def _past(self) -> int:
        """Read what was; the sequence up to which that is all."""
        board = self.hub.board
        last_seq = (await self.log.bounds()).last_seq
        count = 0
        for subject in _PAST:
            async for record in matching(self.log, subject):
                if record.seq > last_seq:
                    break
                board.see(record)
                count += 1
                if count % RECORDS_AT_ONCE == 0:
                    self.hub.publish()
                    await asyncio.sleep(0)
        tick = await self.log.last(TICK_SUBJECT)
        if tick is not None and tick.seq <= last_seq:
            board.see(tick)
        board.listen(time.time_ns())
        return last_seq

    async def _follow(self, from_seq: int) -> None:
        board = self.hub.board
        async with self.log.reader(from_seq) as reader:
            async for records in reader:
                for at, record in enumerate(records):
                    board.see(record)
                    if at % RECORDS_AT_ONCE == 0:
                        await asyncio.sleep(0)
                self.hub.publish()

    async def _watch(self) -> None:
        """Return when the log ends before what was read."""
        hub = self.hub
        log_time_ns, ticked_s = 0, time.monotonic()
        while True:
            await asyncio.sleep(CHECK_PERIOD_S)
            read_seq = hub.board.last_seq
            try:
                bounds = await self.log.bounds()
            except LogUnavailableError:
                if self.log.connection.client.is_closed:
                    raise
                connected = False
            else:
                connected = True
                if bounds.last_seq < read_seq:
                    return
            if hub.board.log_time_ns != log_time_ns:
                log_time_ns, ticked_s = hub.board.log_time_ns, time.monotonic()
            ticking = time.monotonic() - ticked_s < CLOCK_SILENT_S
            if (connected, ticking) != (hub.connected, hub.ticking):
                hub.connected, hub.ticking = connected, ticking
                hub.board.touch_log()
                hub.publish()


@asynccontextmanager
async def reading(target: Target, *, cell: str, where: str) -> AsyncIterator[Live]:
    """A hub that is being fed; ends with the context.

    Raises:
        WrongCredentialsError, LogUnavailableError: no way in.
        NoStreamsError: a server on which no log was made.
    """
    async with await target.connect(ROLE, name="nemesis dashboard") as log:
        await require_streams(log.connection, target.url)
        hub = Hub(Board(cell=cell, where=where))
        live = Live(hub, log, cell=cell, where=where)
        live.task = asyncio.create_task(live.run(), name="reading the log")
        try:
            yield live
        finally:
            live.task.cancel()
            await asyncio.wait({live.task})
