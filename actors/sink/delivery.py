"""Hands on one event after the other, in the log's order, each until it is taken or given up.

Why a position on disk: what happened while the sink was away is delivered when it is back. An event
is delivered at least once: a kill between the receiver's answer and the disk repeats it, under the
same id. One that cannot be delivered is given up after a while and becomes a fact itself,
`delivery_failed`, so that a dead receiver holds up nothing for ever and loses nothing unsaid.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, encode_conclusion, split_subject
from nemesis.schemas.kept import DeliveryFailed
from nemesis.streams.errors import LogFullError, LogUnavailableError, PositionMovedError
from nemesis.streams.log import Log
from nemesis.streams.replacing import replace_file

EVENTS: Final = "nemesis.events.>"
FACTS: Final = (
    "attempt_failed",
    "attempt_outcome_unknown",
    "fault_attributed",
    "incident_closed",
    "incident_opened",
    "log_shortened",
    "processor_diverged",
    "recovery_decided",
    "recovery_withheld",
)
"""What a pager is for; other facts are named by who wants them."""
OWN: Final = "delivery_failed"
TRIES: Final = 8
WAIT_S_FIRST: Final = 1.0
WAIT_S_MAX: Final = 60.0  # eight tries take three minutes: longer than a receiver's restart
RETRY_S: Final = 1.0


class Event(msgspec.Struct, frozen=True):
    """An event as it is handed on."""

    id: str
    fact: str
    key: str
    body: bytes
    """CloudEvents, structured JSON, as in the log."""


class PassingError(NemesisError):
    """Not taken now; `wait_s`: how long the receiver asks to be left alone."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s: Final = wait_s


class RefusedError(NemesisError):
    """Not taken, and the same again will not be."""


class SinkRunningError(NemesisError):
    """Two of one name would share a position."""

    exit_code = 4


class Receiver(Protocol):
    """Whoever takes events; opened before the first one and closed after the last."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def deliver(self, event: Event) -> None:
        """Hand it on.

        Raises:
            PassingError, RefusedError: as they say.
        """
        ...


class _Envelope(msgspec.Struct):
    id: str
    data: dict[str, object]  # what receivers look into


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_positions: Final = msgspec.json.Decoder(dict[str, int])


class Delivery:
    """One sink at work."""

    def __init__(
        self,
        log: Log,
        receiver: Receiver,
        name: str,
        folder: Path,
        *,
        facts: Collection[str] = FACTS,
        tries: int = TRIES,
        wait_s: float = WAIT_S_FIRST,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`name`: of this sink, another for each; `facts`: tokens that are handed on."""
        self._log: Final = log
        self._receiver: Final = receiver
        self._name: Final = name
        self._path: Final = folder / "position.json"
        self._facts: Final = frozenset(facts) - {OWN}
        self._tries: Final = tries
        self._wait_s: Final = wait_s
        self._now_ns: Final = now_ns

    async def run(self) -> None:
        """Deliver until cancelled; at the very first start what comes from now on.

        Raises:
            InputGapError, ShortenedError, LogUnavailableError: as a reader.
            NemesisError: the position cannot be read or kept.
        """
        seq = self._position()
        if seq is None:
            seq = (await self._log.bounds()).last_seq
            self._keep(seq)
        async for record in self._log.follow(seq + 1, subject=EVENTS):
            event = event_of(record)
            if event is not None and event.fact in self._facts:
                await self._deliver(event, record.seq)
                self._keep(record.seq)

    async def _deliver(self, event: Event, seq: int) -> None:
        wait_s = self._wait_s
        for attempt in range(1, self._tries + 1):
            try:
                await self._receiver.deliver(event)
                return
            except RefusedError as error:
                await self._give_up(event, seq, attempt, error.message)
                return
            except PassingError as error:
                if attempt == self._tries:
                    await self._give_up(event, seq, attempt, error.message)
                    return
                await asyncio.sleep(max(wait_s, error.wait_s))
                wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _give_up(self, event: Event, seq: int, attempts: int, why: str) -> None:
        """Say in the log that it was not delivered, once for each sink and event."""
        at_ns = self._now_ns()
        data = DeliveryFailed(
            at_ns=at_ns,
            reason=f"{self._name} did not take {event.fact} {event.key}: {why}",
            sink=self._name,
            event=event.id,
            attempts=attempts,
            error=why,
        )
        key = f"{self._name}-{seq}"
        subject, payload = encode_conclusion(
            id=f"{self._name}/{seq}/0",
            source=f"/sinks/{self._name}",
            at_ns=at_ns,
            data=data,
            key=key,
            cause=str(seq),
        )
        while True:
            try:
                await self._log.publish(subject, payload, expected_last_subject_seq=0)
            except PositionMovedError:
                return  # said before a restart
            except (LogUnavailableError, LogFullError):
                await asyncio.sleep(RETRY_S)
                continue
            return

    def _position(self) -> int | None:
        try:
            return _positions.decode(self._path.read_bytes())["seq"]
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, KeyError) as error:
            raise NemesisError(
                f"{self._path}: {error}", hint="delete it; the sink then begins at the log's end"
            ) from error

    def _keep(self, seq: int) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode({"seq": seq}))
        except OSError as error:
            raise NemesisError(f"{self._path}: {error.strerror}") from error


def event_of(record: Record) -> Event | None:
    """The event of a record; None where it is none that anybody could read."""
    try:
        _, fact, key = split_subject(record.subject)
        return Event(_envelopes.decode(record.payload).id, fact, key, record.payload)
    except (NemesisError, msgspec.DecodeError, ValueError, RecursionError):
        return None
