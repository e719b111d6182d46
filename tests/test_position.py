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
    """A position at 100, snapshots at 99 and before it, and states."""

    def __init__(self, cursor: ProcessorAdvanced | None, *snapshots: SnapshotTaken | bytes) -> None:
        """`snapshots`: the newest one first."""
        self.messages: list[Record] = []
        self.states: dict[str, bytes] = {}
        self.asked = 0
        if cursor is not None:
            self.add(100, CURSOR, cursor)
        for at, snapshot in enumerate(snapshots):
            self.add(99 - at, SNAPSHOT, snapshot)

    def add(self, seq: int, subject: str, data: Any) -> None:
        payload = data if isinstance(data, bytes) else msgspec.msgpack.encode(data)
        self.messages.append(Record(seq, subject, 0, payload))

    async def last(self, subject: str, *, up_to_seq: int = 0) -> Record | None:
        self.asked += 1
        assert self.asked <= 10, "asks for ever"
        found = [each for each in self.messages if each.subject == subject]
        found = [each for each in found if not up_to_seq or each.seq <= up_to_seq]
        return max(found, key=lambda each: each.seq, default=None)

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
    shelf = Shelf(None)
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


def test_a_state_behind_the_position_was_written_between_the_reads() -> None:
    shelf = Shelf(advanced(3), taken(2, b"state"))
    shelf.add(101, SNAPSHOT, taken(4, b"newer"))
    assert read(shelf)[1] == taken(2, b"state")
    assert read(Shelf(None, taken(4, b"newer"))) == (Position(), None)


def test_a_state_whose_position_a_torn_store_has_lost_is_passed_over() -> None:
    torn = [taken(9, b"torn"), taken(8, b"torn too")]
    assert read(Shelf(advanced(7), *torn, taken(7, b"state")))[1] == taken(7, b"state")
    assert read(Shelf(advanced(7), *torn))[1] is None


def test_a_position_whose_state_is_gone_says_where_to_look() -> None:
    shelf = Shelf(advanced(5), taken(4, b"large", inside=False))
    with pytest.raises(
        StateMissingError, match=r"^the state of counting at its position cannot be read$"
    ) as raised:
        read(shelf)
    assert raised.value.hint == (
        "is the store of states complete? `nats object ls NEMESIS_STATE | grep counting`"
    )


def test_a_snapshot_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedFactError, match=r"^snapshot at 99: \w"):
        read(Shelf(advanced(5), b"\xc1"))


def test_a_state_with_another_hash_is_refused() -> None:
    shelf = Shelf(advanced(5), msgspec.structs.replace(taken(4, b"state"), state=b"other"))
    with pytest.raises(MalformedFactError, match=r"^snapshot of counting at 4: its hash differs$"):
        read(shelf)


def test_without_a_position_no_snapshot_is_looked_at() -> None:
    assert read(Shelf(None, b"of no use")) == (Position(), None)


def test_the_first_record_of_a_log_may_be_the_snapshot() -> None:
    shelf = Shelf(None)
    shelf.add(1, SNAPSHOT, taken(1, b"kept"))
    shelf.add(2, SNAPSHOT, taken(5, b"lost its position"))
    shelf.add(3, CURSOR, advanced(1))
    _, found = read(shelf)
    assert found == taken(1, b"kept")
