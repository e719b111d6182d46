"""Promises of the outbox: whole inputs, nothing twice, nothing lost, and an exact position."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from nemesis.processors.emission import Emission
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.streams.outbox import (
    BATCH_BYTES_MAX,
    BATCH_CONCLUSIONS_MAX,
    Batch,
    Outbox,
    PositionRegressedError,
)
from nemesis.streams.position import SNAPSHOT_IN_LOG_BYTES_MAX, Position

NAME = "counting"


def said(seq: int, k: int = 0, *, urgent: bool = False, payload: bytes = b"{}") -> Emission:
    return Emission(seq, f"nemesis.events.note_added.n{k}", payload, f"{NAME}/{seq}/{k}", urgent)


def outbox(**position: Any) -> Outbox:
    return Outbox(NAME, 1, Position(**position))


def step(box: Outbox, seq: int, count: int = 1, *, payload: bytes = b"{}") -> bool:
    """An input with that many conclusions, one second of log time after the one before."""
    added = box.add(seq, seq * 10, [said(seq, k, payload=payload) for k in range(count)])
    box.stepped(seq, seq * 10)
    return added


def batch_of(box: Outbox) -> Batch:
    batch = box.next_batch()
    assert batch is not None
    return batch


def written(box: Outbox, batch: Batch, cursor_seq: int) -> None:
    """The log took the batch."""
    assert box.observe(Position.of(batch.advanced, cursor_seq))


def ids(batch: Batch) -> list[str]:
    events = [each for each in batch.messages if each.subject.startswith("nemesis.events.")]
    assert len(events) == batch.conclusions_count
    return [each.subject.rpartition(".n")[2] for each in events]


def test_a_processor_that_stepped_nothing_has_nothing_to_say() -> None:
    assert outbox().next_batch() is None
    assert outbox(in_seq=7, cursor_seq=8).next_batch() is None
    assert len(outbox()) == 0
    assert outbox().first() is None


def test_inputs_without_a_conclusion_move_the_position_alone() -> None:
    box = outbox(cursor_seq=5, in_seq=3, skipped_seq=2)
    assert box.stepped_seq == 3
    assert not step(box, 4, 0)
    batch = batch_of(box)
    assert batch.advanced == ProcessorAdvanced(in_seq=4, log_time_ns=40, version=1, skipped_seq=2)
    assert (batch.conclusions_count, batch.state, len(batch.messages)) == (0, None, 1)
    (message,) = batch.messages
    assert message.subject == "nemesis.cursor.counting"
    assert message.expected_last_subject_seq == 5
    assert msgspec.msgpack.decode(message.payload, type=ProcessorAdvanced) == batch.advanced
    written(box, batch, 6)
    assert box.next_batch() is None


def test_a_batch_holds_conclusions_in_order_and_ends_with_the_position() -> None:
    box = outbox()
    assert step(box, 1, 2)
    assert step(box, 2, 1)
    step(box, 3, 0)
    batch = batch_of(box)
    assert [each.subject for each in batch.messages] == [
        "nemesis.events.note_added.n0",
        "nemesis.events.note_added.n1",
        "nemesis.events.note_added.n0",
        "nemesis.cursor.counting",
    ]
    assert [each.expected_last_subject_seq for each in batch.messages] == [None, None, None, 0]
    assert batch.messages[0].payload == b"{}"
    assert batch.advanced == ProcessorAdvanced(in_seq=3, log_time_ns=30, version=1)
    assert len(box) == 3
    written(box, batch, 4)
    assert (len(box), box.next_batch()) == (0, None)


def test_an_input_that_does_not_fit_as_a_whole_waits_for_the_next_batch() -> None:
    box = outbox()
    box.conclusions_max = 3
    step(box, 1, 2)
    step(box, 2, 2)
    step(box, 3, 0)
    first = batch_of(box)
    assert first.conclusions_count == 2
    assert first.advanced == ProcessorAdvanced(in_seq=1, log_time_ns=10, version=1)
    written(box, first, 3)
    second = batch_of(box)
    assert second.conclusions_count == 2
    assert second.advanced == ProcessorAdvanced(in_seq=3, log_time_ns=30, version=1)


def test_inputs_that_fill_a_batch_to_the_brim_are_written_whole() -> None:
    box = outbox()
    box.conclusions_max = 2
    step(box, 1, 2)
    step(box, 5, 1)
    batch = batch_of(box)
    assert batch.conclusions_count == 2
    assert batch.advanced == ProcessorAdvanced(in_seq=4, log_time_ns=10, version=1)


def test_an_input_with_more_conclusions_than_fit_is_cut_and_counted() -> None:
    box = outbox(cursor_seq=9, in_seq=6, log_time_ns=60)
    box.conclusions_max = 2
    step(box, 7, 5)
    first = batch_of(box)
    assert ids(first) == ["0", "1"]
    assert first.advanced == ProcessorAdvanced(in_seq=6, log_time_ns=70, version=1, written=2)
    written(box, first, 12)
    second = batch_of(box)
    assert ids(second) == ["2", "3"]
    assert second.advanced == ProcessorAdvanced(in_seq=6, log_time_ns=70, version=1, written=4)
    written(box, second, 15)
    last = batch_of(box)
    assert ids(last) == ["4"]
    assert last.advanced == ProcessorAdvanced(in_seq=7, log_time_ns=70, version=1)


def test_a_batch_stays_within_its_bytes_but_takes_at_least_one_conclusion() -> None:
    box = outbox()
    step(box, 1, 1, payload=b"x" * (BATCH_BYTES_MAX + 1))
    step(box, 2, 1, payload=b"x" * (BATCH_BYTES_MAX - 1))
    step(box, 3, 1, payload=b"x")
    step(box, 4, 1, payload=b"x")
    counts = []
    while (batch := box.next_batch()) is not None:
        counts.append((batch.conclusions_count, batch.advanced.in_seq))
        written(box, batch, box.position.cursor_seq + 1)
    assert counts == [(1, 1), (2, 3), (1, 4)]


def test_as_many_conclusions_as_the_server_takes_with_snapshot_and_position() -> None:
    box = outbox()
    step(box, 1, 2000)
    assert batch_of(box).conclusions_count == BATCH_CONCLUSIONS_MAX == 898


def test_a_state_is_written_with_the_conclusions_up_to_its_input() -> None:
    box = outbox(cursor_seq=2)
    step(box, 1, 1)
    assert box.add_state(1, 10, b"state")
    step(box, 2, 1)
    batch = batch_of(box)
    assert (batch.conclusions_count, batch.state) == (1, None)
    assert [each.subject for each in batch.messages[1:]] == [
        "nemesis.cursor.counting.snapshot",
        "nemesis.cursor.counting",
    ]
    assert msgspec.msgpack.decode(batch.messages[1].payload, type=SnapshotTaken) == SnapshotTaken(
        in_seq=1,
        log_time_ns=10,
        version=1,
        sha256=sha256(b"state").hexdigest(),
        size_bytes=5,
        state=b"state",
    )
    assert batch.advanced == ProcessorAdvanced(in_seq=1, log_time_ns=10, version=1, snapshot=True)
    written(box, batch, 5)
    assert len(box) == 1
    assert batch_of(box).advanced == ProcessorAdvanced(in_seq=2, log_time_ns=20, version=1)


@pytest.mark.parametrize(("more", "inside"), [(0, True), (1, False)])
def test_a_state_too_large_for_the_log_is_only_named_in_it(more: int, inside: bool) -> None:
    box = outbox()
    state = b"x" * (SNAPSHOT_IN_LOG_BYTES_MAX + more)
    step(box, 1, 0)
    assert box.add_state(1, 10, state)
    batch = batch_of(box)
    taken = msgspec.msgpack.decode(batch.messages[0].payload, type=SnapshotTaken)
    assert taken.size_bytes == len(state)
    assert taken.state == (state if inside else b"")
    assert (batch.state is None) == inside
    if batch.state is not None:
        assert (batch.state.state, batch.state.sha256) == (state, taken.sha256)


def test_a_state_that_hands_over_names_the_next_version_and_what_was_skipped() -> None:
    box = outbox(cursor_seq=1, in_seq=3, skipped_seq=2)
    step(box, 4, 0)
    box.add_state(4, 40, b"", next_version=2, skipped_seq=4)
    assert batch_of(box).advanced == ProcessorAdvanced(
        in_seq=4, log_time_ns=40, version=2, snapshot=True, skipped_seq=4
    )
    older = outbox(cursor_seq=1, in_seq=3, skipped_seq=2)
    older.add_state(4, 40, b"")
    assert batch_of(older).advanced.skipped_seq == 2


def test_a_state_at_a_position_that_is_written_is_of_no_use() -> None:
    box = outbox(cursor_seq=1, in_seq=4)
    assert not box.add_state(4, 40, b"")
    assert len(box) == 0
    assert box.add_state(5, 50, b"")


def test_what_another_copy_wrote_is_dropped() -> None:
    box = outbox()
    for seq in (1, 2, 3):
        step(box, seq, 2)
    box.add_state(3, 30, b"")
    assert box.observe(Position(cursor_seq=4, in_seq=1, written=1))
    assert (len(box), box.first()) == (4, said(2, 1))
    assert box.observe(Position(cursor_seq=7, in_seq=3))
    assert (len(box), box.next_batch()) == (0, None)


def test_conclusions_that_the_log_holds_already_are_not_taken() -> None:
    box = outbox(cursor_seq=1, in_seq=3, written=1)
    assert not step(box, 3, 2)
    assert step(box, 4, 3)
    assert (len(box), box.first()) == (2, said(4, 1))
    assert box.next_batch() is not None


def test_a_position_seen_before_is_no_news_and_one_that_went_back_is_a_rollback() -> None:
    box = outbox(cursor_seq=5, in_seq=3)
    assert not box.observe(Position(cursor_seq=5, in_seq=9))
    assert not box.observe(Position(cursor_seq=4, in_seq=2))
    assert box.position == Position(cursor_seq=5, in_seq=3)
    assert box.observe(Position(cursor_seq=6, in_seq=3))
    with pytest.raises(
        PositionRegressedError, match=r"^the position of counting went back from 3 to 2$"
    ):
        box.observe(Position(cursor_seq=7, in_seq=2))


def test_it_is_urgent_while_an_urgent_conclusion_waits() -> None:
    box = outbox()
    box.add(1, 10, [said(1, urgent=True), said(1, 1)])
    assert box.urgent
    box.add(2, 20, [said(2)])
    box.add_state(2, 20, b"")
    assert box.urgent
    box.observe(Position(cursor_seq=3, in_seq=1))
    assert not box.urgent
    box.add(3, 30, [said(3), said(3, 1, urgent=True)])
    box.observe(Position(cursor_seq=4, in_seq=2))
    assert box.urgent


def test_a_conclusion_already_in_the_log_makes_nothing_urgent() -> None:
    box = outbox(cursor_seq=1, in_seq=1)
    box.add(1, 10, [said(1, urgent=True)])
    assert not box.urgent


def test_what_the_log_refuses_is_replaced_in_its_place() -> None:
    box = outbox()
    step(box, 1, 2)
    instead = said(1, 0, payload=b"instead")
    box.replace_first(instead)
    assert box.first() == instead
    batch = batch_of(box)
    assert [each.payload for each in batch.messages[:2]] == [b"instead", b"{}"]
    assert batch.advanced == ProcessorAdvanced(in_seq=1, log_time_ns=10, version=1)


def test_a_state_waits_behind_its_conclusions_and_is_never_the_first_to_be_refused() -> None:
    box = outbox()
    box.add_state(1, 10, b"")
    assert box.first() is None
    step(box, 2, 1)
    assert box.first() == said(2)


def test_what_the_log_refuses_may_be_all_that_waits() -> None:
    box = outbox()
    step(box, 1, 1)
    box.replace_first(said(1, 0, payload=b"instead"))
    assert (len(box), box.first()) == (1, said(1, 0, payload=b"instead"))
