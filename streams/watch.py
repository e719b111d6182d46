"""Whether the log is still the one that was read, and whether it still comes in.

Why: a server that comes back with an older store (power cut, backup) says nothing; readers would
miss facts that were written again and keep facts that no longer exist. How: the end of the log
never lies before what arrived, and the last record that arrived keeps its storage time. Both are
looked at each second, and before anything is written on a connection that broke in between: also
of records that arrived and are not read yet, for they are going to be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.streams.errors import LogFullError, LogUnavailableError, ShortenedError
from nemesis.streams.log import Bounds
from nemesis.streams.port import RunnerLog

CHECK_PERIOD_S: Final = 1.0
STALLED_S: Final = 10.0  # several of the reader's own restarts
CLOCK_SILENT_S: Final = 5.0
RETRY_S: Final = 0.1


class StalledError(NemesisError):
    """The log goes on and nothing of it arrives."""


class Watch:
    """What one process knows about the log that it reads."""

    def __init__(self, logs: Sequence[RunnerLog]) -> None:
        """`logs`: connections to one log; the first one answers what is asked here."""
        self.last_seq = 0
        """The end of the log, a second ago at most."""
        self.read_seq = 0
        self._logs: Final = logs
        self._arrived_seq = self._arrived_stored_ns = 0
        self._verified_count = self.lost_count
        self._read_at = asyncio.get_running_loop().time()
        self._tick_at = self._read_at
        self._time_ns = self._tick_ns = 0

    @property
    def lost_count(self) -> int:
        """How often a connection broke: only then can the log have been exchanged."""
        return sum(log.lost_count for log in self._logs)

    @property
    def clock_silent(self) -> bool:
        """Log time stands still for too long, and timeouts and validity with it."""
        return asyncio.get_running_loop().time() - self._tick_at > CLOCK_SILENT_S

    @property
    def clock_state(self) -> str:
        """How the clock is, in one line."""
        if not self.clock_silent:
            return "the clock ticks again"
        behind_ns = self._time_ns - self._tick_ns
        if behind_ns <= 0:
            return f"no clock tick for {CLOCK_SILENT_S:g} s"
        return (
            f"the clock stands still: ticks come {behind_ns / 1e9:.0f} s behind log time,"
            " some ticker's clock had run ahead"
        )

    def arrived(self, record: Record) -> None:
        """Records up to this one are in hand: from now on the log must hold them."""
        self._arrived_seq = record.seq
        self._arrived_stored_ns = record.stored_ns

    def read(self, record: Record) -> None:
        """Records up to this one were read."""
        self.read_seq = record.seq
        self._read_at = asyncio.get_running_loop().time()

    def begin(self) -> None:
        """Reading begins anew, further back."""
        self._time_ns = self._tick_ns = 0

    def ticked(self, at_ns: int) -> None:
        """A tick came in; one that does not lead beyond the latest is no sign of a clock."""
        self._tick_ns = at_ns
        if at_ns > self._time_ns:
            self._time_ns = at_ns
            self._tick_at = asyncio.get_running_loop().time()

    async def verified(self) -> None:
        """Return once the log is known to be the one that was read.

        Raises:
            ShortenedError: it is not.
        """
        while self._verified_count != (count := self.lost_count):
            try:
                await self._compare()
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                self._verified_count = count

    async def run(self, each: Callable[[], Awaitable[None]]) -> None:
        """Compare once a second, for ever, and then do what else is due.

        Raises:
            ShortenedError: the log was rolled back.
            StalledError: reading has come to a halt.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_PERIOD_S)
            try:
                bounds = await self._compare()
                if bounds.last_seq > self.read_seq and loop.time() - self._read_at > STALLED_S:
                    raise StalledError(
                        f"nothing arrived for {STALLED_S:g} s after record {self.read_seq},"
                        f" the log ends at {bounds.last_seq}"
                    )
                await each()
            except LogUnavailableError:
                self._read_at = loop.time()  # away is not stalled
            except LogFullError:
                continue

    async def _compare(self) -> Bounds:
        seq, stored_ns = self._arrived_seq, self._arrived_stored_ns
        bounds = await self._logs[0].bounds()
        self.last_seq = bounds.last_seq
        if bounds.last_seq < seq:
            raise ShortenedError(seq, bounds.last_seq)
        # a log that ends just there may have grown again so far
        if seq and (bounds.last_seq > seq or bounds.last_stored_ns != stored_ns):
            record = await self._logs[0].get(seq)
            if record is not None and record.stored_ns != stored_ns:
                raise ShortenedError(seq, bounds.last_seq)
        return bounds
