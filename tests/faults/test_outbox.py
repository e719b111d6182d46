"""Promises of the outbox: what a batch holds, and what is dropped."""

import pytest

from nemesis.processors.fold import Emission
from nemesis.schemas.kept import ProcessorAdvanced
from nemesis.streams.outbox import BATCH_BYTES_MAX, Outbox, PositionRegressedError
from nemesis.streams.position import Position


def said(seq: int, count: int, size_bytes: int = 10, *, urgent: bool = False) -> list[Emission]:
    return [
        Emission(seq, "nemesis.events.note_added.n", b"x" * size_bytes, f"p/{seq}/{k}", urgent)
        for k in range(count)
    ]


def outbox(position: Position | None = None) -> Outbox:
    return Outbox("p", 1, position or Position())


def taken(box: Outbox, cursor_seq: int) -> tuple[int, ProcessorAdvanced]:
    """(how many conclusions, the position) of the next batch, which is then written."""
    batch = box.next_batch()
    assert batch is not None
    box.observe(Position.of(batch.advanced, cursor_seq))
    return batch.conclusions_count, batch.advanced


def fed(box: Outbox, *counts: int, size_bytes: int = 10) -> Outbox:
    """One input for each count, from sequence 1."""
    for seq, count in enumerate(counts, 1):
        box.add(seq, seq, said(seq, count, size_bytes))
        box.stepped(seq, seq)
    return box


def test_a_batch_takes_whole_inputs_and_the_position_stands_before_the_next() -> None:
    box = fed(outbox(), 500, 398, 1, 2)
    assert taken(box, 1) == (898, ProcessorAdvanced(in_seq=2, log_time_ns=2, version=1))
    assert taken(box, 2) == (3, ProcessorAdvanced(in_seq=4, log_time_ns=4, version=1))
    assert box.next_batch() is None


def test_an_input_that_does_not_fit_behind_others_waits_for_the_next_batch() -> None:
    box = fed(outbox(), 500, 399)
    assert taken(box, 1) == (500, ProcessorAdvanced(in_seq=1, log_time_ns=1, version=1))
    assert taken(box, 2) == (399, ProcessorAdvanced(in_seq=2, log_time_ns=2, version=1))


def test_an_input_larger_than_a_batch_is_cut_and_counted() -> None:
    box = fed(outbox(), 0, 0, 1500)
    assert taken(box, 1)[1] == ProcessorAdvanced(in_seq=2, log_time_ns=3, version=1, written=898)
    assert taken(box, 2) == (602, ProcessorAdvanced(in_seq=3, log_time_ns=3, version=1))


def test_a_batch_has_a_limit_in_bytes() -> None:
    box = fed(outbox(), *[1] * 5, size_bytes=BATCH_BYTES_MAX // 2)
    assert [taken(box, n)[0] for n in (1, 2, 3)] == [2, 2, 1]


def test_what_a_position_covers_is_not_taken() -> None:
    box = outbox(Position(cursor_seq=9, in_seq=4, written=2, version=1))
    assert not box.add(4, 4, said(4, 3))
    assert not box.add(5, 5, said(5, 2))
    assert box.add(6, 6, said(6, 1))
    assert len(box) == 1
    assert outbox(Position(cursor_seq=9, in_seq=4, written=2, version=1)).add(5, 5, said(5, 3))


def test_a_state_ends_its_batch_at_its_input() -> None:
    box = fed(outbox(), 1)
    assert box.add_state(1, 1, b"state")
    box.add(2, 2, said(2, 1))
    box.stepped(2, 2)
    assert taken(box, 1)[1] == ProcessorAdvanced(in_seq=1, log_time_ns=1, version=1, snapshot=True)
    assert not box.add_state(1, 1, b"state"), "it is written"
    assert taken(box, 2)[1].in_seq == 2


def test_urgency_lasts_until_the_urgent_one_is_written() -> None:
    box = outbox()
    box.add(1, 1, said(1, 1, urgent=True))
    box.add(2, 2, said(2, 1))
    assert box.urgent
    box.observe(Position(cursor_seq=5, in_seq=1, version=1))
    assert not box.urgent
    assert len(box) == 1


def test_a_position_that_goes_back_is_no_position() -> None:
    box = outbox(Position(cursor_seq=9, in_seq=4, version=1))
    assert not box.observe(Position(cursor_seq=9, in_seq=5, version=1)), "seen before"
    with pytest.raises(PositionRegressedError, match="from 4 to 3"):
        box.observe(Position(cursor_seq=10, in_seq=3, version=1))
