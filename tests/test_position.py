"""Promises of positions and snapshots: found by name, whole or refused, read as a pair."""

import asyncio
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Record
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.streams.position import (
    READ_ATTEMPTS_MAX,
    Position,
    StateMissingError,
    position_of,
    read_position,
    read_snapshot,
)

CURSOR, SNAPSHOT = "nemesis.cursor.counting", "nemesis.cursor.counting.snapshot"


def advanced(in_seq: int, **fields: Any) -> ProcessorAdvanced:
    return ProcessorAdvanced(in_seq=in_seq, log_time_ns=in_seq * 10, version=1, **fields)


def taken(in_seq: int, state: bytes, *, inside: bool = True) -> SnapshotTaken:
    return SnapshotTaken(
        in_seq=in_seq,
        log_time_ns=in_seq * 10,
        version=1,
        sha256=sha256(state).hexdigest(),
        size_bytes=len(state),
        state=state if inside else b"",
    )


class Shelf:
    """The last messages of a log and its states; `moves` happen after as many reads of a cursor."""

    def __init__(self, cursor: ProcessorAdvanced | None, snapshot: SnapshotTaken | None) -> None:
        self.messages: dict[str, Any] = {CURSOR: cursor, SNAPSHOT: snapshot}
        self.states: dict[str, bytes] = {}
        self.moves: dict[int, ProcessorAdvanced] = {}
        self.reads = 0

    async def last(self, subject: str) -> Record | None:
        if subject == CURSOR:
            self.reads += 1
            self.messages[CURSOR] = self.moves.get(self.reads, self.messages[CURSOR])
        data = self.messages.get(subject)
        payload = data if isinstance(data, bytes) else msgspec.msgpack.encode(data)
        return None if data is None else Record(100, subject, 0, payload)

    async def put(self, data: bytes) -> str:
        raise AssertionError("reading stores nothing")

    async def get(self, key: str) -> bytes | None:
        return self.states.get(key)


def read(shelf: Shelf) -> tuple[Position, SnapshotTaken | None]:
    return asyncio.run(read_snapshot(shelf, shelf, "counting"))


def test_a_position_says_everything_that_its_fact_says() -> None:
    fact = ProcessorAdvanced(
        in_seq=1, log_time_ns=2, version=3, snapshot=True, written=4, skipped_seq=5
    )
    assert Position.of(fact, 6) == Position(
        cursor_seq=6, in_seq=1, log_time_ns=2, version=3, snapshot=True, written=4, skipped_seq=5
    )
    assert position_of(Record(6, CURSOR, 0, msgspec.msgpack.encode(fact))) == Position.of(fact, 6)


def test_a_processor_that_never_answered_has_no_position() -> None:
    shelf = Shelf(None, None)
    assert asyncio.run(read_position(shelf, "counting")) == Position()
    assert read(shelf) == (Position(), None)
    assert not Position().exists
    assert Position(cursor_seq=1).exists


def test_a_position_covers_whole_inputs_and_the_written_part_of_the_next() -> None:
    position = Position(cursor_seq=9, in_seq=5, written=2)
    assert [position.covers(5, 7), position.covers(6, 1), position.covers(6, 2)] == [
        True,
        True,
        False,
    ]
    assert not position.covers(7, 0)


@pytest.mark.parametrize("payload", [b"\xc1", b"\x81\xa2in\xa1x", b"\xa1\xff"])
def test_something_else_on_the_subject_of_a_position_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedFactError, match=r"^position at 7: \w"):
        position_of(Record(7, CURSOR, 0, payload))


def test_the_state_in_the_log_comes_with_the_position() -> None:
    shelf = Shelf(advanced(5), taken(4, b"state"))
    assert read(shelf) == (Position.of(advanced(5), 100), taken(4, b"state"))
    assert read(Shelf(advanced(4), taken(4, b"state")))[1] == taken(4, b"state")


def test_a_large_state_is_filled_in_from_the_store_of_states() -> None:
    named = taken(4, b"large", inside=False)
    shelf = Shelf(advanced(5), named)
    shelf.states[named.sha256] = b"large"
    assert read(shelf)[1] == taken(4, b"large")


def test_a_state_newer_than_the_position_was_written_between_the_reads() -> None:
    shelf = Shelf(advanced(3), taken(4, b"state"))
    shelf.moves[READ_ATTEMPTS_MAX] = advanced(4)
    position, state = read(shelf)
    assert (position.in_seq, state) == (4, taken(4, b"state"))
    assert shelf.reads == READ_ATTEMPTS_MAX


def test_a_position_whose_state_is_gone_says_where_to_look() -> None:
    shelf = Shelf(advanced(5), taken(4, b"large", inside=False))
    with pytest.raises(
        StateMissingError, match=r"^the state of counting at its position cannot be read$"
    ) as raised:
        read(shelf)
    assert raised.value.hint == (
        "is the store of states complete? `nats object ls NEMESIS_STATE | grep counting`"
    )
    assert shelf.reads == READ_ATTEMPTS_MAX


def test_a_snapshot_that_is_none_is_refused() -> None:
    shelf = Shelf(advanced(5), None)
    shelf.messages[SNAPSHOT] = b"\xc1"
    with pytest.raises(MalformedFactError, match=r"^snapshot at 100: \w"):
        read(shelf)


def test_a_state_with_another_hash_is_refused() -> None:
    shelf = Shelf(advanced(5), msgspec.structs.replace(taken(4, b"state"), state=b"other"))
    with pytest.raises(MalformedFactError, match=r"^snapshot of counting at 4: its hash differs$"):
        read(shelf)
