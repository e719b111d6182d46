"""Promises of the scheduler: who is placed, where, and what those hear who are not."""

from nemesis.actors.solver.actor import proposed
from nemesis.schemas.scheduled import (
    GangProposed,
    JobPlaced,
    JobQueued,
    JobRejected,
    JobReleased,
    MovesAdvised,
    PlacementProposed,
    PlacementRequested,
)
from tests.log_cell import SECOND_NS
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


def test_who_waits_for_a_job_that_says_it_runs_for_ever_is_told_so_in_a_fact() -> None:
    cell = Cell((2,))
    cell.submit("endless", "TP8_NVL18+DP2", runtime_ns=2**63 - 1)
    cell.submit("next", "TP8_NVL18")
    (queued,) = cell.told(JobQueued)
    assert queued.start_ns_expected > cell.now_ns + 99 * 365 * 86_400 * SECOND_NS


def test_a_job_that_can_never_run_is_rejected_with_the_rule() -> None:
    cell = Cell((2, 2))
    cell.submit("wide", "TP16_NVL18")
    cell.submit("odd", "TP4_NVL18+DP5")
    cell.submit("words", "TP8_NVL18+")
    cell.submit("least", "TP8_NVL18", world_min=9)
    assert [each.findings[0].code for each in cell.told(JobRejected)] == ["F1", "N1", "L2", "N3"]
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


def crowded(settings: bytes = b"{}") -> Cell:
    """Three jobs that wait for one: the first that comes takes the hole that suits the last."""
    cell = Cell((5, 4), settings=settings)
    cell.submit("all", "TP8_NVL18+DP9")
    for name, nodes in (("x", 2), ("y", 4), ("z", 3)):
        cell.submit(name, f"TP8_NVL18+DP{nodes}")
    cell.end("all")
    return cell


def leaves_of(cell: Cell, job: str) -> set[str]:
    """Below which leaves a job lies, in a cell of five nodes and four."""
    return {"leaf1" if node <= "n005" else "leaf2" for node in cell.nodes_of(job)}


def test_a_solver_is_asked_and_its_proposal_is_taken_where_it_is_better() -> None:
    assert [len(leaves_of(crowded(), job)) for job in "xyz"] == [1, 1, 2]
    cell = crowded(b'{"solver_wait_ns": 2000000000}')
    (request,) = cell.told(PlacementRequested)
    assert [gang.job for gang in request.gangs] == ["x", "y", "z"]
    assert not cell.nodes_of("x")
    cell.event(proposed(request, seconds=5), request.request)
    assert [len(leaves_of(cell, job)) for job in "xyz"] == [1, 1, 1]
    assert cell.told(JobPlaced, "z")[0].proposal == request.request


def test_a_proposal_that_does_not_hold_or_comes_too_late_changes_nothing() -> None:
    own = crowded()
    for shelf, nodes, seconds in ((0, 9, 0), (7, 3, 0), (0, 3, 3)):
        cell = crowded(b'{"solver_wait_ns": 2000000000}')
        (request,) = cell.told(PlacementRequested)
        cell.tick(seconds)
        gang = GangProposed(job="z", shelves=(shelf,), nodes=(nodes,))
        answer = PlacementProposed(
            at_ns=cell.now_ns, reason="test", request=request.request, gangs=(gang,)
        )
        cell.event(answer, request.request)
        assert [cell.nodes_of(job) for job in "xyz"] == [own.nodes_of(job) for job in "xyz"]
        assert not any(each.proposal for each in cell.told(JobPlaced))


def test_what_was_rejected_never_reaches_a_solver() -> None:
    cell = Cell((5, 4), settings=b'{"solver_wait_ns": 2000000000}')
    cell.submit("wide", "TP16_NVL18")
    cell.submit("large", "TP8_NVL18+DP99")
    cell.tick()
    assert len(cell.told(JobRejected)) == 2
    assert not cell.told(PlacementRequested)


LLAMA = {
    "name": "small", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
    "gated": True, "vocab": 128256, "seq": 8192,
}  # fmt: skip


def test_where_the_model_is_said_a_place_comes_with_its_predicted_step() -> None:
    cell = Cell((4, 4))
    cell.submit("llama", "TP8_NVL18+DP4;gbs=64", model=LLAMA, settings={"recompute": "selective"})
    quality = cell.told(JobPlaced)[0].quality
    assert (quality.unit, quality.status) == ("ns", "optimal")
    assert 0 < quality.step_ns_least <= quality.step_ns
    assert 0 < quality.mfu_ppm < 1_000_000
    cell.submit("odd", "TP8_NVL18", model={"name": "odd", "layers": 1})
    assert cell.told(JobRejected)[0].findings[0].code == "MODEL"


def test_spares_are_on_other_leaves_than_the_job_and_one_another_where_there_are_such() -> None:
    cell = Cell((4, 2, 2))
    cell.submit("llama", "TP8_NVL18+DP3;spare=2")
    placed = cell.told(JobPlaced)[0]
    assert placed.submission.node_names == ("n001", "n002", "n003")
    assert placed.spares == ("n005", "n007")
    tight = Cell((4,))
    tight.submit("llama", "TP8_NVL18+DP3;spare=1")
    assert tight.told(JobPlaced)[0].spares == ("n004",)
    assert "near it for want of others" in tight.told(JobPlaced)[0].reason


def test_who_waits_beside_idle_nodes_hears_whose_spares_they_are() -> None:
    cell = Cell((4,))
    cell.submit("llama", "TP8_NVL18+DP3;spare=1")
    cell.submit("small", "TP8_NVL18+DP1")
    (queued,) = cell.told(JobQueued)
    assert (queued.job, queued.blocked) == ("small", ("n004",))
    assert "n004 would do and are kept as spares of llama" in queued.reason
    assert len([each for each in queued.helps if each.startswith("the end of llama")]) == 1
    cell.submit("wide", "TP8_NVL18+DP2")
    assert "spares" not in cell.told(JobQueued)[-1].reason


def test_a_spare_can_take_a_place_in_what_must_lie_together() -> None:
    cell = Cell((5, 5))
    cell.submit("llama", "TP8_NVL18+DP4_IB8@t1;spare=1")
    assert cell.told(JobPlaced)[0].spares == ("n005",)


def test_scattered_nodes_bring_advice_to_move_that_says_what_it_costs_and_moves_nobody() -> None:
    cell = Cell((4, 4))
    for name in "abcd":
        cell.submit(name, "TP8_NVL18+DP2", runtime_ns=7200 * SECOND_NS)
    cell.end("a")
    cell.end("c")
    assert {len(leaves) for leaves in ({cell.nodes_of("b")}, {cell.nodes_of("d")})} == {1}
    cell.submit("gang", "TP8_NVL18+DP4_IB8@t1")
    (advised,) = cell.told(MovesAdvised)
    assert advised.job == "gang"
    assert len(advised.moves) == 1
    assert advised.gain_node_s > advised.cost_node_s == 600
    assert not cell.nodes_of("gang")
    cell.end(advised.moves[0].job, requeued=True)
    assert len(cell.nodes_of("gang")) == 4


def test_a_soft_wish_is_waited_for_and_then_given_up() -> None:
    cell = Cell((3, 3))
    cell.submit("close", "TP8_NVL18+DP4_IB8@t1?60s")
    (queued,) = cell.told(JobQueued)
    assert (queued.code, queued.blocked) == ("wish", ("DP4_IB8@t1?60s",))
    cell.tick(59)
    assert not cell.nodes_of("close")
    cell.tick(1)
    assert cell.told(JobPlaced)[0].relaxed == ("DP4_IB8@t1?60s",)


def test_higher_priority_goes_first_and_then_the_team_that_had_less_of_its_share() -> None:
    cell = Cell((2,), settings=b'{"shares": {"large": 3, "small": 1}}')
    cell.submit("l1", "TP8_NVL18", team="large")
    cell.submit("s1", "TP8_NVL18", team="small")
    cell.tick(3600)
    for name, team, priority in (("s2", "small", 0), ("l2", "large", 0), ("l3", "large", 1)):
        cell.submit(name, "TP8_NVL18+DP2", team=team, priority=priority)
    for done in ("l1", "s1", "l3", "l2"):
        cell.end(done)
    assert [each.job for each in cell.told(JobPlaced)] == ["l1", "s1", "l3", "l2", "s2"]


def test_a_job_is_let_through_only_where_it_delays_nobody() -> None:
    cell = Cell((4,))
    cell.submit("runs", "TP8_NVL18+DP3", runtime_ns=3600 * SECOND_NS)
    cell.submit("head", "TP8_NVL18+DP4")
    cell.submit("long", "TP8_NVL18", runtime_ns=7200 * SECOND_NS)
    cell.submit("short", "TP8_NVL18", runtime_ns=1800 * SECOND_NS)
    assert cell.told(JobPlaced)[-1].job == "short"
    assert cell.told(JobPlaced)[-1].backfilled
    long = cell.told(JobQueued, "long")[0]
    assert (long.code, long.blocked) == ("turn", ("head",))
