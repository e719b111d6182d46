"""A job that the scheduler placed is looked after like one whose submission named its nodes."""

import msgspec
import pytest

from nemesis.actors.claims import Claims
from nemesis.processors.catalogue import CATALOGUE
from nemesis.processors.fold import Input
from nemesis.processors.healer.state import HealerState
from nemesis.schemas.facts import Fact
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobPlaced, begun
from nemesis.views.dashboard.board import Board
from nemesis.views.hands import Hands
from nemesis.views.queue import Queue
from tests.log_cell import SECOND_NS
from tests.scheduler_cell import START_NS, Cell


def placed() -> Cell:
    cell = Cell((2, 2))
    cell.submit("llama", "TP8_NVL18+DP2", team="research")
    return cell


def fact(kind: str, data: msgspec.Struct) -> Fact:
    return Fact(
        seq=9, kind=kind, key="llama", id="x", at_ns=START_NS, log_time_ns=START_NS, late=False,
        data=data,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["attribution", "ecc_rules", "goodput"])
def test_processors_know_of_both_the_same(name: str) -> None:
    (data,) = placed().told(JobPlaced)
    one, other, none = (CATALOGUE[name][1]() for _ in range(3))
    one.step(fact("job_placed", data))
    other.step(fact("job_submitted", data.submission))
    assert one.snapshot() == other.snapshot()
    waiting = JobSubmitted(at_ns=1, by="ann", reason="r", job="llama", nodes=(), spec="TP8")
    none.step(fact("job_submitted", waiting))
    assert b"llama" not in none.snapshot()
    assert begun(waiting) is None


def test_a_job_that_is_told_to_wait_again_while_it_waits_keeps_its_place_and_why() -> None:
    cell = Cell((1,))
    cell.submit("llama", "TP8")
    cell.submit("next", "TP8")
    cell.tick(60)
    cell.end("next", requeued=True)
    queue = Queue()
    for record in cell.records:
        queue.take(Input(record))
    (row, _) = queue.listed()
    assert (row.job, row.state, row.code) == ("next", "waits", "capacity")
    assert queue.log_time_ns - row.since_ns == 60 * SECOND_NS


def test_a_placement_of_a_job_that_was_taken_back_meanwhile_does_not_show_it_as_running() -> None:
    (stale,) = placed().told(JobPlaced)
    cell = Cell((2, 2), active=False)
    revision = cell.submit("llama", "TP8_NVL18+DP2")
    cell.end("llama")
    cell.event(msgspec.structs.replace(stale, job_revision=revision), "llama")
    revision = cell.submit("llama", "TP8_NVL18+DP2")
    cell.submit("llama", "TP8")
    cell.event(msgspec.structs.replace(stale, job_revision=revision), "llama")
    queue, seen = Queue(), []
    for record in cell.records:
        queue.take(Input(record))
        seen += [row.state for row in queue.listed()]
    assert set(seen) == {"waits"}
    assert [(row.state, row.spec) for row in queue.listed()] == [("waits", "TP8")]


def test_healer_actors_page_and_people_see_where_it_runs() -> None:
    cell = placed()
    healer = CATALOGUE["healer"][1]()
    claims, hands, queue, board = Claims("job-1"), Hands(), Queue(), Board(cell="lab")
    for record in cell.records:
        item = Input(record)
        if item.token.startswith("job_"):
            item.decoded()
            healer.step(item.fact(START_NS))
        claims.take(item)
        hands.take(item)
        queue.take(item)
        board.see(record)
    state = msgspec.msgpack.decode(healer.snapshot(), type=HealerState)
    assert state.jobs["llama"].members == claims.jobs["llama"].members == "0-15"
    assert hands.jobs["llama"].node_names == ("n001", "n002")
    (row,) = queue.listed()
    assert (row.state, row.team, row.nodes) == ("runs", "research", ("n001", "n002"))
    assert "llama" in str(board.document()["jobs"])
    rows = {row.fact: row.text for row in board.feed.after(0, 100)}
    assert "2 nodes; found by" in rows["job_placed"]
