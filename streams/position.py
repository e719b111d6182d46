"""Where a processor stands in the log, and the state it stood there with.

A position is the last message of `nemesis.cursor.<name>`, a snapshot that of
`nemesis.cursor.<name>.snapshot`. A position is found by name, never by version: the version in it
says who must answer the next input.
"""

from hashlib import sha256
from typing import Final, Protocol, Self

import msgspec

from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Record, cursor_subject, snapshot_subject
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.streams.errors import LogUnavailableError

SNAPSHOT_IN_LOG_BYTES_MAX: Final = 512 * 1024  # half of the server's default payload limit

_advanced: Final = msgspec.msgpack.Decoder(ProcessorAdvanced)
_taken: Final = msgspec.msgpack.Decoder(SnapshotTaken)
encode: Final = msgspec.msgpack.encode


class StateMissingError(LogUnavailableError):
    """A position without the state that belongs to it."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A position as it was read, with its own place in the log; all zero where there is none."""

    cursor_seq: int = 0
    in_seq: int = 0
    written: int = 0
    version: int = 0
    log_time_ns: int = 0
    skipped_seq: int = 0
    snapshot: bool = False

    @classmethod
    def of(cls, advanced: ProcessorAdvanced, cursor_seq: int) -> Self:
        """The position that this fact states, stored at cursor_seq."""
        return cls(
            cursor_seq=cursor_seq,
            in_seq=advanced.in_seq,
            written=advanced.written,
            version=advanced.version,
            log_time_ns=advanced.log_time_ns,
            skipped_seq=advanced.skipped_seq,
            snapshot=advanced.snapshot,
        )

    @property
    def exists(self) -> bool:
        """Whether the processor ever answered."""
        return self.cursor_seq > 0

    def covers(self, input_seq: int, k: int) -> bool:
        """Whether conclusion k of an input is in the log."""
        return covers(self.in_seq, self.written, input_seq, k)


def covers(in_seq: int, written: int, input_seq: int, k: int) -> bool:
    """Whether conclusion k lies in what is answered up to in_seq and `written` of the next."""
    return input_seq <= in_seq or (input_seq == in_seq + 1 and k < written)


class States(Protocol):
    """Where states lie that are too large for the log; an object store is one."""

    async def put(self, data: bytes) -> str:
        """Keep a state; its SHA-256. Keeping it again changes nothing."""
        ...

    async def get(self, key: str) -> bytes | None:
        """The state with this SHA-256, or None."""
        ...


class Reading(Protocol):
    """Reading single messages back."""

    async def last(self, subject: str, *, up_to_seq: int = ...) -> Record | None:
        """The newest message of a subject, or the newest up to a sequence."""
        ...


def position_of(record: Record | None) -> Position:
    """The position in this record of a cursor subject.

    Raises:
        MalformedFactError: something else lies there.
    """
    if record is None:
        return Position()
    try:
        return Position.of(_advanced.decode(record.payload), record.seq)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(f"position at {record.seq}: {error}") from error


async def read_position(log: Reading, name: str) -> Position:
    """Where the processor stands now."""
    return position_of(await log.last(cursor_subject(name)))


async def read_snapshot(
    log: Reading, states: States, name: str
) -> tuple[Position, SnapshotTaken | None]:
    """The position and the newest state at or before it; its `state` is always filled in.

    Raises:
        StateMissingError: the state lies in the store of states and is not there any more.
    """
    position = await read_position(log, name)
    taken = await _newest(log, name, position)
    if taken is None:
        return position, None
    state = taken.state or await states.get(taken.sha256)
    if state is None:
        raise StateMissingError(
            f"the state of {name} at its position cannot be read",
            hint=f"is the store of states complete? `nats object ls NEMESIS_STATE | grep {name}`",
        )
    if sha256(state).hexdigest() != taken.sha256:
        raise MalformedFactError(f"snapshot of {name} at {taken.in_seq}: its hash differs")
    return position, msgspec.structs.replace(taken, state=state)


async def _newest(log: Reading, name: str, position: Position) -> SnapshotTaken | None:
    """The newest snapshot that this position has; one ahead of it lost its own position."""
    up_to_seq = position.cursor_seq
    while up_to_seq > 0:
        record = await log.last(snapshot_subject(name), up_to_seq=up_to_seq)
        if record is None:
            return None
        try:
            taken = _taken.decode(record.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"snapshot at {record.seq}: {error}") from error
        if taken.in_seq <= position.in_seq:
            return taken
        up_to_seq = record.seq - 1
    return None
