"""Promises of the scheduler: who is placed, where, and what those hear who are not."""

from nemesis.schemas.scheduled import JobPlaced, JobQueued, JobRejected, JobReleased
from tests.scheduler_cell import Cell


def test_a_job_is_placed_told_how_good_its_place_is_and_gives_it_back() -> None:
    cell = Cell((4, 4))
    cell.submit("llama", "TP8_NVL18+DP2")
    (placed,) = cell.told(JobPlaced)
    assert placed.submission.node_names == ("n001", "n002")
    assert (placed.ranks_per_node, placed.tp, placed.quality.status) == (8, 8, "optimal")
    cell.tick(60)
    cell.end("llama")
    (released,) = cell.told(JobReleased)
    assert (released.nodes, released.held_ns) == (("n001", "n002"), 60_000_000_000)


def test_a_job_waits_for_room_and_is_told_what_would_help() -> None:
    cell = Cell((2, 2))
    cell.submit("first", "TP8_NVL18+DP3")
    cell.submit("second", "TP8_NVL18+DP2")
    (queued,) = cell.told(JobQueued)
    assert (queued.job, queued.code) == ("second", "capacity")
    assert any("first" in each for each in queued.helps)
    assert any("1 replicas of 2" in each for each in queued.helps)
    cell.end("first")
    assert len(cell.nodes_of("second")) == 2


def test_a_job_that_can_never_run_is_rejected_with_the_rule() -> None:
    cell = Cell((2, 2))
    cell.submit("wide", "TP16_NVL18")
    cell.submit("odd", "TP4_NVL18+DP5")
    cell.submit("words", "TP8_NVL18+")
    assert [each.findings[0].code for each in cell.told(JobRejected)] == ["F1", "N1", "L2"]
    assert not cell.told(JobPlaced)


def test_a_node_that_turned_bad_is_avoided_and_then_on_probation() -> None:
    cell = Cell((2, 2))
    cell.submit("llama", "TP8_NVL18+DP2")
    assert cell.nodes_of("llama") == ("n001", "n002")
    cell.blame("gpu/n001/0000:00:00.0")
    cell.end("llama", requeued=True)
    assert cell.nodes_of("llama") == ("n003", "n004")
    cell.submit("next", "TP8_NVL18+DP2")
    (queued,) = cell.told(JobQueued)
    assert (queued.code, queued.blocked) == ("nodes", ("n001",))
    cell.close()
    cell.tick()
    assert "n001 (on probation)" in cell.told(JobQueued)[-1].reason or not cell.nodes_of("next")
    cell.tick(86_400)
    assert cell.nodes_of("next") == ("n001", "n002")
