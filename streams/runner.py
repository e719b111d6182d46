"""The runner: processors at work on one log, in one process.

Crash-only: whatever goes wrong for good ends the process with one sentence, and opening is the
only way to recover (Candea and Fox, "Crash-Only Software", HotOS 2003). All state is in the log,
so an end costs the time of one restart, and it happens to be tested all day.
One reader and one decoding serve all processors of the process; each has a lane of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from nemesis.processors.fold import Input
from nemesis.processors.processor import Processor
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.inferred import Inference
from nemesis.schemas.kept import LogShortened, ProcessorDiverged, ProcessorStarted
from nemesis.streams.deaths import Deaths
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    ShortenedError,
)
from nemesis.streams.lane import SNAPSHOT_PERIOD_S, Lane
from nemesis.streams.port import RunnerLog
from nemesis.streams.status import CopyStatus, remove_status, write_status
from nemesis.streams.watch import Watch

RETRY_S: Final = 0.1
FLUSH_TIMEOUT_S: Final = 5.0
DIFFERENCES_TOLD_MAX: Final = 100  # of a copy that differs everywhere, the first ones say it all

_log: Final = logging.getLogger(__name__)


class Runner:
    """Several processors on one log. `run` returns after `stop`, or raises."""

    def __init__(
        self,
        members: Sequence[tuple[Processor, RunnerLog]],
        *,
        folder: Path,
        start_ns: int,
        snapshot_period_s: float = SNAPSHOT_PERIOD_S,
    ) -> None:
        """`members`: processors, each with the connection that may write for it.

        `folder` keeps what must outlive the process; `start_ns` makes the runner's ids.
        """
        self.watch: Final = Watch(list(dict.fromkeys(log for _, log in members)))
        self._folder: Final = folder
        self._start_ns: Final = start_ns
        self._said_count = 0
        self._told_count = 0
        self.lanes: Final = [
            Lane(
                log,
                each,
                deaths=Deaths(folder, f"{each.name}@{each.version}"),
                watch=self.watch,
                snapshot_period_s=snapshot_period_s,
            )
            for each, log in members
        ]
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self._over: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._opened: Final = asyncio.Event()
        self._started: Final[list[Lane]] = []
        """Opened and not yet told."""
        self._stopped = False
        self._clock_alarm = False

    def stop(self) -> None:
        """Stop reading, write what is concluded, and return from `run`."""
        self._stopped = True
        if not self._over.done():
            self._over.set_result(None)

    async def run(self) -> None:
        """Open, read, conclude and write until stopped.

        Raises:
            NemesisError: this copy must leave and start again; the message says why.
        """
        try:
            for lane in self.lanes:
                await self._until_available(partial(self._open, lane))
            self._spawn("watch", self.watch.run(self._each_second))
            self._spawn("read", self._read())
            await self._over
            await self._finish()
        except ShortenedError as error:
            await self._tell_shortened(error)
            raise
        finally:
            await self._end("watch", "read", *(lane.label for lane in self.lanes))
            if self._stopped:
                remove_status(self._folder, self.status())
            for lane in self.lanes:
                lane.deaths.close()

    def status(self) -> list[CopyStatus]:
        """Where each processor of this process stands."""
        return [CopyStatus.of(lane, self.watch) for lane in self.lanes]

    async def _open(self, lane: Lane) -> None:
        await self._end(lane.label)
        if await lane.open():
            self._spawn(lane.label, lane.committer.run())
            self._started.append(lane)
            self._opened.set()

    async def _tell_started(self) -> None:
        for lane in [each for each in self._started if not each.is_reading_again]:
            await self._say(
                lane,
                ProcessorStarted(
                    at_ns=lane.fold.log_time_ns,
                    reason=f"a copy of {lane.name} took up work at input {lane.state_from}",
                    name=lane.name,
                    version=lane.processor.version,
                    in_seq=lane.position.in_seq,
                    state_from=lane.state_from,
                    how=lane.how,
                    missed_count=lane.missed_count,
                ),
            )
            self._started.remove(lane)

    async def _read(self) -> None:
        """Read for all lanes that are open; start over, further back, when another one opens."""
        while True:
            self._opened.clear()
            for lane in self.lanes:
                lane.begin()
            reading = [lane.read_seq for lane in self.lanes if lane.stage == "reading"]
            if not reading:
                await self._opened.wait()
                continue
            passing = asyncio.ensure_future(self._pass_on(min(reading)))
            opened = asyncio.ensure_future(self._opened.wait())
            try:
                await asyncio.wait({passing, opened}, return_when=asyncio.FIRST_COMPLETED)
                if passing.done():
                    await passing
            finally:
                opened.cancel()
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)  # one reader at a time

    async def _pass_on(self, last_seq: int) -> None:
        self.watch.begin()
        async with self.lanes[0].log.reader(last_seq + 1) as reader:
            while True:
                lost_count = self.watch.lost_count
                records = await reader.next()
                await self.watch.verified()  # what comes after a lost connection may be another log
                if self.watch.lost_count != lost_count:
                    return  # nobody knows which log these are of: read them again
                self.watch.arrived(records[-1])
                for lane in self.lanes:
                    if lane.stage == "reading":
                        await lane.verified()
                for record in records:
                    await self._feed(record, last_seq)
                    last_seq = record.seq
                await asyncio.sleep(0)

    async def _feed(self, record: Record, last_seq: int) -> None:
        """Hand one record to every lane; those between the last one and it have expired."""
        if record.seq != last_seq + 1:
            for lane in self.lanes:
                lane.lost(last_seq + 1, record.seq - 1)
        item = Input(record)
        if item.token == "tick" and item.decoded() is not None:
            self.watch.ticked(item.value.at_ns)
        for lane in self.lanes:
            if lane.feed(item):
                await self._let_write(lane)
        self.watch.read(record)

    async def _let_write(self, lane: Lane) -> None:
        while lane.full:
            await lane.committer.room()

    async def _each_second(self) -> None:
        for lane in self.lanes:
            if lane.stage == "waiting":
                await self._open(lane)
        await self._tell_started()
        for lane in self.lanes:
            while lane.differences:
                await self._tell_difference(lane)
        silent = self.watch.clock_silent
        if silent != self._clock_alarm:
            self._clock_alarm = silent
            _log.warning("%s", self.watch.clock_state)
        write_status(self._folder, self.status())

    async def _tell_difference(self, lane: Lane) -> None:
        difference = lane.differences[0]
        if self._told_count < DIFFERENCES_TOLD_MAX:
            await self._say(
                lane,
                ProcessorDiverged(
                    at_ns=lane.fold.log_time_ns,
                    reason=f"a copy of {lane.name} concludes otherwise than the log says",
                    name=lane.name,
                    fact=difference.id,
                    mine_sha256=difference.mine_sha256,
                    theirs_sha256=difference.theirs_sha256,
                ),
                key=difference.id,
                once=True,
            )
            self._told_count += 1
        lane.differences.pop(0)

    async def _tell_shortened(self, error: ShortenedError) -> None:
        async def tell() -> None:
            for lane in self.lanes:
                if lane.stage == "waiting":
                    continue
                await self._say(
                    lane,
                    LogShortened(
                        at_ns=lane.fold.log_time_ns,
                        reason=error.message,
                        name=lane.name,
                        read_seq=error.read_seq,
                        last_seq=error.last_seq,
                    ),
                )

        await self._until_available(tell)

    async def _say(self, lane: Lane, data: Inference, *, key: str = "", once: bool = False) -> None:
        """Write a fact of the runner itself; it answers no input."""
        self._said_count += 1
        subject, payload = encode_conclusion(
            id=f"{lane.name}/runner/{self._start_ns}/{self._said_count}",
            source=f"/processors/{lane.name}",
            at_ns=data.at_ns,
            data=data,
            key=key or lane.name,
        )
        try:
            await lane.log.publish(subject, payload, expected_last_subject_seq=0 if once else None)
        except PositionMovedError:
            _log.info("%s was said before", subject)

    async def _finish(self) -> None:
        """Write what is concluded, if the log takes it in time."""
        await self._end("read", *(lane.label for lane in self.lanes))
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await asyncio.gather(*(lane.committer.flush() for lane in self.lanes))
        except TimeoutError:
            _log.info("the log did not take the last conclusions; the next copy will write them")

    async def _until_available(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        said = ""
        while not self._stopped:
            try:
                return await what()
            except (LogUnavailableError, LogFullError) as error:
                if error.message != said:
                    said = error.message
                    _log.info("waiting for the log: %s", said)
                await asyncio.sleep(RETRY_S)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[name] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    async def _end(self, *names: str) -> None:
        tasks = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
