"""How a producer hands its facts to the log: in order, never waiting, never flooding it.

One batch is on its way at a time, so the order of one source is kept whatever is lost. While the
log is away, also before it was ever reached, facts go to a spool on disk; when it is back a `spool`
fact says so first and the rest comes late, as it was seen. When the log fills up, samples become
fewer, then none. Numbers and stamps are the producer's own (`producers/origin.py`); a restart has a
new start_ns, and what its earlier life had spooled is delivered as that life's.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.observed import Observation, SpoolAnnounced
from nemesis.schemas.registry import BY_STRUCT
from nemesis.streams.batch import Message
from nemesis.streams.errors import LogFullError, LogUnavailableError, UndeliverableError
from nemesis.streams.keeper import Rate, fill_ppm, rate_of
from nemesis.streams.log import Log
from nemesis.streams.spool import Spool

BATCH_MESSAGES: Final = 500
MEMORY_MESSAGES_MAX: Final = 2000  # before the spool is used at all: a second of a busy cell
AWAY_S: Final = 2.0  # a server that restarts is back by then; longer is an outage worth a fact
SPOOL_BYTES: Final = 64 * 2**20
RETRY_S: Final = 0.2
FULL_RETRY_S: Final = 1.0
FILL_PERIOD_S: Final = 60.0
_KERNEL: Final = "kernel"
_log: Final = logging.getLogger(__name__)

Stamp = Callable[[str, int], Mapping[str, Any]]
"""(kind, at_ns) -> the fields with which an observation starts."""


class Publisher:
    """One producer's way to the log; `run` carries, `offer` never waits, for the log neither."""

    def __init__(
        self,
        stamp: Stamp,
        now_ns: Callable[[], int],
        spool_path: Path,
        *,
        spool_bytes: int = SPOOL_BYTES,
        durable: Collection[str] = (),
        on_rate: Callable[[Rate], None] = lambda rate: None,
    ) -> None:
        """`durable`: kinds of facts that lie on disk once `offer` has returned, so that a kill of
        the process loses none; `on_rate` hears what the log's fill level allows, at each change.

        Raises:
            SpoolError: the spool cannot be opened.
        """
        self.rate: Rate = "full"
        self.dropped_count = 0
        """Facts given up since the last `spool` fact: no room, or the log will never take them."""
        self.has_room = True
        """Whether the disk took what was last to go there."""
        self._stamp: Final = stamp
        self._now_ns: Final = now_ns
        self._on_rate: Final = on_rate
        self._durable: Final = frozenset(durable)
        self._queue: Final[deque[Message]] = deque()
        self._spool_path: Final = spool_path
        self._spool: Final = Spool(spool_path, spool_bytes)
        self._was_reached = False
        self._in_flight: list[Message] = []
        self._in_spool_count = 0
        """How many of the spool's first messages are those in flight."""
        self._failing_since: tuple[float, int] | None = None
        """(loop time in s, now_ns) of the first failure since the last success."""
        self._away_since_ns = now_ns() if len(self._spool) else None
        self._news: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._news.set()

    @property
    def waiting_count(self) -> int:
        """Facts that are not in the log yet."""
        in_flight = 0 if self._in_spool_count else len(self._in_flight)
        return in_flight + len(self._queue) + len(self._spool)

    def offer(self, observation: Observation) -> None:
        """Take a fact to be delivered."""
        token = BY_STRUCT[type(observation)].token
        if self.rate == "kernel" and token != _KERNEL:
            self.dropped_count += 1
            return
        message = Message(
            subject=telemetry_subject(observation.node, token),
            payload=encode_observation(observation),
        )
        self._queue.append(message)
        full = len(self._queue) > MEMORY_MESSAGES_MAX
        if not self._was_reached:
            self._away_since_ns = self._away_since_ns or self._now_ns()
        if not self._was_reached or len(self._spool) or full or token in self._durable:
            self._spill()
        self._idle.clear()
        self._news.set()

    async def run(self, log: Log) -> None:
        """Deliver to the log, now that it was reached, until cancelled."""
        self._was_reached = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver(log))
            tasks.create_task(self._watch_fill(log))

    async def drained(self) -> None:
        """Wait until everything that was offered is in the log or given up."""
        await self._idle.wait()

    def close(self) -> None:
        """Keep what is not delivered for the next life."""
        if self._in_flight and not self._in_spool_count:
            self._spool.put_first(self._in_flight)
            self._in_flight = []
        self._spill()
        self._spool.close()

    def _spill(self) -> None:
        """Move the queue to disk: from here on everything goes through it, in order.

        What the disk has no room for stays in memory, as much as fits there: a node whose disk is
        full can still tell of its GPUs.
        """
        before = self._spool.evicted_count
        if self._queue:
            while self._queue and self._spool.append(self._queue[0]):
                self._queue.popleft()
            self._note_room(has_room=not self._queue)
        self.dropped_count += self._spool.evicted_count - before
        while len(self._queue) > MEMORY_MESSAGES_MAX:
            lines = (n for n, each in enumerate(self._queue) if not each.subject.endswith(_KERNEL))
            del self._queue[next(lines, 0)]
            self.dropped_count += 1

    def _note_room(self, *, has_room: bool) -> None:
        if has_room != self.has_room:
            what = "there is room again" if has_room else "no room: facts wait in memory, some drop"
            _log.warning("%s: %s", self._spool_path, what)
        self.has_room = has_room

    async def _deliver(self, log: Log) -> None:
        while True:
            self._news.clear()
            while self._take():
                await self._settle(log)
            self._idle.set()
            await self._news.wait()

    def _take(self) -> bool:
        """Put the next messages in flight; what was spooled is older than what is queued."""
        if len(self._spool):
            self._in_flight = self._spool.head(BATCH_MESSAGES)
            self._in_spool_count = len(self._in_flight)
        else:
            count = min(BATCH_MESSAGES, len(self._queue))
            self._in_flight = [self._queue.popleft() for _ in range(count)]
        return bool(self._in_flight)

    async def _settle(self, log: Log) -> None:
        """Send what is in flight until all of it is stored or given up."""
        size = len(self._in_flight)
        while self._in_flight:
            try:
                await self._announce(log)
                await log.commit(self._in_flight[:size])
            except LogUnavailableError:
                if log.connection.client.is_closed:
                    raise  # by us, or because our seed was replaced: it will not come back
                self._note_failure()
                await asyncio.sleep(RETRY_S)
            except LogFullError:
                self._set_rate("kernel")
                self._give_up([m for m in self._in_flight if not m.subject.endswith(_KERNEL)])
                await asyncio.sleep(FULL_RETRY_S)
            except UndeliverableError:
                if size == 1:
                    self._give_up(self._in_flight[:1])
                size = 1  # one of them is refused for good: each alone tells which, still in order
            else:
                self._failing_since = None
                del self._in_flight[:size]
        self._spool.drop(self._in_spool_count)
        self._in_spool_count = 0

    def _give_up(self, messages: list[Message]) -> None:
        self.dropped_count += len(messages)
        self._in_flight = [m for m in self._in_flight if m not in messages]

    def _note_failure(self) -> None:
        """After AWAY_S without success this is an outage."""
        now_s = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now_s, self._now_ns()
        elif now_s - self._failing_since[0] > AWAY_S:
            self._away_since_ns = self._away_since_ns or self._failing_since[1]
            self._spill()

    async def _announce(self, log: Log) -> None:
        """After an outage: say that what follows is late."""
        if self._away_since_ns is None:
            return
        announced = SpoolAnnounced(
            **self._stamp("spool", self._now_ns()),
            since_ns=self._away_since_ns,
            spooled_count=self.waiting_count,
            dropped_count=self.dropped_count,
        )
        with suppress(UndeliverableError):  # a switch collector may not say so
            await log.publish(
                telemetry_subject(announced.node, "spool"), encode_observation(announced)
            )
        self._away_since_ns = None
        self.dropped_count = 0

    async def _watch_fill(self, log: Log) -> None:
        while True:
            with suppress(LogUnavailableError):
                self._set_rate(rate_of(await fill_ppm(log)))
            await asyncio.sleep(FILL_PERIOD_S)

    def _set_rate(self, rate: Rate) -> None:
        if rate != self.rate:
            self.rate = rate
            self._on_rate(rate)
