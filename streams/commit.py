"""When and how an outbox is written: in groups, as often as pays, until the log has it.

Why: an atomic batch costs 3 ms and a stream takes about 400 a second from everybody together, so
a processor writes at most 20 a second. How: the first conclusion at once, then every 50 ms, urgent
ones at once while this second's 20 are not used up. A refusal means that another copy wrote first:
read its position, drop what it covers, write the rest. No answer means nothing: write the same
again, and a refusal will tell if it had been stored. A copy that sees another one write holds back
a little, so that two healthy copies do not refuse each other all day.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from nemesis.processors.emission import Emission
from nemesis.schemas.errors import NemesisError
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    UndeliverableError,
)
from nemesis.streams.outbox import BATCH_CONCLUSIONS_MAX, Outbox
from nemesis.streams.port import RunnerLog
from nemesis.streams.position import Position, read_position

COMMIT_PERIOD_S: Final = 0.05
COMMITS_PER_SECOND_MAX: Final = 20
IDLE_PERIOD_S: Final = 1.0
IDLE_INPUTS: Final = 500
STANDBY_HOLD_S: Final = 0.25  # a healthy copy has written long before that
RETRY_S: Final = 0.05
FULL_RETRY_S: Final = 1.0
CONTRADICTIONS_MAX: Final = 20


class LogContradictionError(NemesisError):
    """The log refuses a position and shows no other one."""


class Committer:
    """Writes the outbox of one processor for as long as it runs."""

    def __init__(
        self,
        log: RunnerLog,
        outbox: Outbox,
        *,
        verified: Callable[[], Awaitable[None]],
        observe: Callable[[Position], None],
        undeliverable: Callable[[Emission, str], Emission],
    ) -> None:
        """`verified`: returns once it is known what the log holds of what was concluded."""
        self.outbox: Final = outbox
        self.standby = True
        """Another copy wrote last, as far as this one knows."""
        self.commits_count = 0
        self.refused_count = 0
        self.full = False
        self._log: Final = log
        self._verified: Final = verified
        self._observe: Final = observe
        self._undeliverable: Final = undeliverable
        self._news: Final = asyncio.Event()
        self._room: Final = asyncio.Event()
        self._recent: Final[deque[float]] = deque(maxlen=COMMITS_PER_SECOND_MAX)
        self._waiting_since: float | None = None
        self._position_at = 0.0
        self._contradictions = 0
        self._under_way = False
        self._stored_sha256 = ""
        """Of the large state that was stored last."""
        self._asleep = False
        """Nothing is due, at no time."""

    def stepped(self, *, added: bool) -> None:
        """The outbox was told of a step."""
        if added and self._waiting_since is None:
            self._waiting_since = asyncio.get_running_loop().time()
            self._news.set()
        elif self._asleep or self.outbox.urgent or self._behind_count >= IDLE_INPUTS:
            self._news.set()

    def moved(self, *, mine: bool) -> None:
        """The outbox took note of a new position; while a batch is under way nobody knows whose."""
        now = asyncio.get_running_loop().time()
        self.standby = not (mine or (self._under_way and not self.standby))
        self._position_at = now
        self._waiting_since = now if len(self.outbox) else None
        self._room.set()

    async def room(self) -> None:
        """Wait until the position moves."""
        self._room.clear()
        await self._room.wait()

    async def run(self) -> None:
        """Write whatever is due, for ever."""
        while True:
            await self._due()
            await self._write()

    async def flush(self) -> None:
        """Write all that is there now."""
        while self.outbox.next_batch() is not None:
            await self._write()

    async def _due(self) -> None:
        """Return when something should be written."""
        loop = asyncio.get_running_loop()
        while True:
            at = self._due_at()
            if at is not None and at <= loop.time():
                return
            self._news.clear()
            self._asleep = at is None
            try:
                async with asyncio.timeout_at(at):
                    await self._news.wait()
            except TimeoutError:
                continue

    @property
    def _behind_count(self) -> int:
        """How many inputs the position lies behind."""
        return self.outbox.stepped_seq - self.outbox.position.in_seq

    def _due_at(self) -> float | None:
        outbox = self.outbox
        if outbox.held:
            return None
        hold_s = STANDBY_HOLD_S if self.standby else 0.0
        last = self._recent[-1] if self._recent else float("-inf")
        if self._waiting_since is not None and len(outbox):
            budget = self._recent[0] + 1 if len(self._recent) == COMMITS_PER_SECOND_MAX else 0.0
            paced = budget if outbox.urgent else max(budget, last + COMMIT_PERIOD_S)
            return max(paced, self._waiting_since + hold_s)
        behind_count = self._behind_count
        if behind_count <= 0 or not outbox.position.exists:
            return None
        period_s = 0.0 if behind_count >= IDLE_INPUTS else IDLE_PERIOD_S
        return max(last + COMMIT_PERIOD_S, self._position_at + period_s + hold_s)

    async def _write(self) -> None:
        """Try once to write one batch."""
        await self._verified()
        batch = self.outbox.next_batch()
        if batch is None:
            return
        self._under_way = True
        try:
            if batch.state is not None and batch.state.sha256 != self._stored_sha256:
                self._stored_sha256 = await self._log.states.put(batch.state.state)
                return  # time has passed: verify again
            self._recent.append(asyncio.get_running_loop().time())
            seq = await self._log.commit(batch.messages)
        except PositionMovedError:
            self._under_way = False
            await self._reread()
        except LogUnavailableError:
            await asyncio.sleep(RETRY_S)
        except LogFullError:
            self.full = True
            await asyncio.sleep(FULL_RETRY_S)
        except UndeliverableError as error:
            self._isolate(batch.conclusions_count, error)
        else:
            self._written(Position.of(batch.advanced, seq))
        finally:
            self._under_way = False

    def _written(self, position: Position) -> None:
        self.full = False
        self.commits_count += 1
        self._contradictions = 0
        outbox = self.outbox
        outbox.conclusions_max = min(2 * outbox.conclusions_max, BATCH_CONCLUSIONS_MAX)
        if outbox.observe(position):
            self.moved(mine=True)
            self._observe(position)
        elif outbox.position.cursor_seq == position.cursor_seq:  # it passed by before the answer
            self.standby = False

    async def _reread(self) -> None:
        """Somebody else wrote, or this copy did and the answer was lost."""
        self.refused_count += 1
        try:
            position = await read_position(self._log, self.outbox.name)
            await self._verified()
        except LogUnavailableError:
            await asyncio.sleep(RETRY_S)
            return
        if self.outbox.observe(position):
            self._contradictions = 0
            self.moved(mine=False)
            self._observe(position)
            return
        self._contradictions += 1
        if self._contradictions > CONTRADICTIONS_MAX:
            raise LogContradictionError(
                f"the log refuses the position of {self.outbox.name} after"
                f" {self.outbox.position.cursor_seq} and shows {position.cursor_seq}"
            )
        await asyncio.sleep(RETRY_S)

    def _isolate(self, conclusions_count: int, error: UndeliverableError) -> None:
        """Write fewer at a time until the one that is refused stands alone."""
        first = self.outbox.first()
        if conclusions_count == 0 or first is None:
            raise error
        if conclusions_count > 1:
            self.outbox.conclusions_max = conclusions_count // 2
            return
        stand_in = self._undeliverable(first, error.message)
        if stand_in.payload == first.payload:
            raise error
        self.outbox.replace_first(stand_in)
