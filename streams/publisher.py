"""How a producer hands its facts to the log: in order, never waiting, never flooding it.

One batch is on its way at a time, so the order of one source is kept whatever is lost. While the
log is away facts go to a spool on disk; when it is back a `spool` fact says so first and the rest
comes late, as it was seen. When the log fills up, samples become fewer, then none. Numbers and
stamps are the producer's own (`producers/origin.py`); a restart has a new start_ns, and what its
earlier life had spooled is delivered as that life's.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
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

Stamp = Callable[[str, int], Mapping[str, Any]]
"""(kind, at_ns) -> the fields with which an observation starts."""


class Publisher:
    """One producer's way to the log; `run` carries, `offer` never waits."""

    def __init__(
        self,
        log: Log,
        stamp: Stamp,
        now_ns: Callable[[], int],
        spool_path: Path,
        *,
        spool_bytes: int = SPOOL_BYTES,
        on_rate: Callable[[Rate], None] = lambda rate: None,
    ) -> None:
        """`on_rate` hears what the log's fill level allows whenever that changes.

        Raises:
            SpoolError: the spool cannot be opened.
        """
        self.rate: Rate = "full"
        self.dropped_count = 0
        """Facts given up since the last `spool` fact: no room, or the log will never take them."""
        self._log: Final = log
        self._stamp: Final = stamp
        self._now_ns: Final = now_ns
        self._on_rate: Final = on_rate
        self._queue: Final[deque[Message]] = deque()
        self._spool: Final = Spool(spool_path, spool_bytes)
        self._away_since_ns: int | None = now_ns() if len(self._spool) else None
        self._spooling = bool(len(self._spool))
        self._news: Final = asyncio.Event()
        if self._spooling:
            self._news.set()

    @property
    def waiting_count(self) -> int:
        """Facts that are not in the log yet."""
        return len(self._queue) + len(self._spool)

    def offer(self, observation: Observation) -> None:
        """Take a fact to be delivered."""
        token = BY_STRUCT[type(observation)].token
        if self.rate == "kernel" and token != "kernel":
            self.dropped_count += 1
            return
        self._keep(
            Message(
                subject=telemetry_subject(observation.node, token),
                payload=encode_observation(observation),
            )
        )
        self._news.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver())
            tasks.create_task(self._watch_fill())

    async def drained(self) -> None:
        """Wait until everything that was offered is in the log."""
        while self.waiting_count:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Keep what is not delivered for the next life."""
        self._spill()
        self._spool.close()

    def _keep(self, message: Message) -> None:
        if not self._spooling and len(self._queue) < MEMORY_MESSAGES_MAX:
            self._queue.append(message)
            return
        self._spill()
        if not self._spool.append(message):
            self.dropped_count += 1

    def _spill(self) -> None:
        """From here on everything goes through the file, so that order is kept."""
        self._spooling = True
        while self._queue:
            if not self._spool.append(self._queue[0]):
                self.dropped_count += 1
            self._queue.popleft()

    async def _deliver(self) -> None:
        while True:
            self._news.clear()
            while self.waiting_count:
                await self._deliver_some()
            await self._news.wait()

    async def _deliver_some(self) -> None:
        if self._away_since_ns is not None and not await self._announce():
            return
        head = self._head()
        if await self._sent(head):
            self._drop(len(head))

    def _head(self) -> list[Message]:
        if self._spooling:
            return self._spool.head(BATCH_MESSAGES)
        return [self._queue[at] for at in range(min(BATCH_MESSAGES, len(self._queue)))]

    def _drop(self, count: int) -> None:
        if not self._spooling:
            for _ in range(count):
                self._queue.popleft()
            return
        self._spool.drop(count)
        self._spooling = len(self._spool) > 0

    async def _sent(self, messages: list[Message]) -> bool:
        """Whether these are done with: stored, or given up."""
        try:
            await self._log.commit(messages)
        except LogUnavailableError:
            await self._wait_for_log()
            return False
        except LogFullError:
            self._set_rate("kernel")
            await asyncio.sleep(FULL_RETRY_S)
            return False
        except UndeliverableError:
            if len(messages) == 1:
                self.dropped_count += 1
                return True
            # one of them is refused for good: find it by sending each alone, still in order
            for message in messages:
                while not await self._sent([message]):
                    pass
        return True

    async def _wait_for_log(self) -> None:
        """Try again soon; after AWAY_S this is an outage."""
        since_ns = self._now_ns()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + AWAY_S
        while not self._log.connection.client.is_connected:
            await asyncio.sleep(RETRY_S)
            if loop.time() > deadline and self._away_since_ns is None:
                self._away_since_ns = since_ns
                self._spill()
        await asyncio.sleep(RETRY_S)

    async def _announce(self) -> bool:
        """Say that what follows is late."""
        announced = SpoolAnnounced(
            **self._stamp("spool", self._now_ns()),
            since_ns=self._away_since_ns or 0,
            spooled_count=self.waiting_count,
            dropped_count=self.dropped_count,
        )
        message = Message(
            subject=telemetry_subject(announced.node, "spool"),
            payload=encode_observation(announced),
        )
        if not await self._sent([message]):
            return False
        self._away_since_ns = None
        self.dropped_count = 0
        return True

    async def _watch_fill(self) -> None:
        while True:
            try:
                self._set_rate(rate_of(await fill_ppm(self._log)))
            except LogUnavailableError:
                pass
            await asyncio.sleep(FILL_PERIOD_S)

    def _set_rate(self, rate: Rate) -> None:
        if rate != self.rate:
            self.rate = rate
            self._on_rate(rate)
