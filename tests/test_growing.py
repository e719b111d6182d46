"""Promises about ranks that come back: when they join, on what terms, and who does not."""

from typing import Any

import pytest

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, AttemptStarted
from nemesis.schemas.operated import PauseSet
from nemesis.schemas.rank_ranges import parse_ranks
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS

SHRINKS = ACT | {"playbooks": {"unknown": ["shrink", "restart_job"]}}


def shrunk(policy: dict[str, Any] = SHRINKS, **job: Any) -> Cell:
    """A job of four nodes of two ranks that has lost rank 3, or its replica."""
    cell = Cell(policy=policy)
    cell.submit(**job)
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    cell.carry_out()
    assert cell.last(RecoveryDecided).action == "shrink"
    return cell


def test_a_rank_that_is_ready_joins_at_a_boundary_with_a_peers_state() -> None:
    cell = shrunk()
    cell.ready(3)
    grown = cell.last(RecoveryDecided)
    assert (grown.action, grown.members, grown.epoch) == ("restart_rank", "0-7", 2)
    assert (grown.started, grown.state_from, grown.removed_ranks) == ("", "peer", ())
    assert grown.incident == ""
    assert "ready: 8 ranks go on from the next boundary" in grown.reason
    cell.carry_out()
    cell.exit(3)
    assert cell.last(QuiesceDecided).dead_ranks == (3,)


def test_only_whole_replicas_come_back() -> None:
    cell = shrunk(nodes=("n1", "n2"), ranks_per_node=4, tp=2)
    assert cell.last(RecoveryDecided).removed_ranks == (2, 3)
    cell.ready(3)
    assert cell.last(RecoveryDecided).epoch == 1
    cell.ready(2)
    assert (cell.last(RecoveryDecided).members, cell.last(RecoveryDecided).epoch) == ("0-7", 2)


def test_who_is_ready_during_a_recovery_joins_after_it() -> None:
    cell = shrunk()
    cell.exit(5, node="n2")
    cell.ready(3)
    assert cell.last(RecoveryDecided).epoch == 1
    cell.carry_out()
    cell.tick(2)
    cell.carry_out()
    assert (cell.last(RecoveryDecided).members, cell.last(RecoveryDecided).epoch) == ("0-4,6-7", 3)


@pytest.mark.parametrize("ends_again", [False, True])
def test_who_is_ready_before_its_loss_is_dealt_with_joins_after_that(ends_again: bool) -> None:
    cell = Cell(policy=SHRINKS)
    cell.submit()
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    shrink = cell.last(RecoveryDecided)
    cell.attempt(AttemptStarted, shrink.decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.ready(3)
    if ends_again:
        cell.exit(3)
    cell.attempt(AttemptCompleted, shrink.decision, epoch=1)
    grown = cell.last(RecoveryDecided)
    assert (grown.members, grown.epoch) == (("0-2,4-7", 1) if ends_again else ("0-7", 2))


def test_who_is_blamed_while_it_is_to_go_on_is_not_waited_for() -> None:
    stalls = ACT | {"playbooks": {"unknown": ["shrink"], "app.stall": ["restart_rank", "shrink"]}}
    cell = Cell(policy=stalls)
    cell.submit()
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    shrink = cell.last(RecoveryDecided)
    cell.attempt(AttemptStarted, shrink.decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.blame("app.stall", 5, node="n2")
    again = cell.last(RecoveryDecided)
    assert (again.epoch, again.decision != shrink.decision) == (2, True)
    assert {3, 5} <= {*again.removed_ranks, *parse_ranks(again.started)}


def test_a_rank_that_ended_again_is_not_waited_for() -> None:
    cell = shrunk(nodes=("n1", "n2"), ranks_per_node=4, tp=2)
    cell.ready(3)
    cell.exit(3)
    cell.ready(2)
    assert cell.last(RecoveryDecided).epoch == 1


def test_nobody_comes_back_to_a_node_that_is_out_of_work() -> None:
    cell = Cell(policy=ACT | {"nodes_out_share_max_ppm": 1_000_000})
    cell.submit()
    cell.exit(3)
    cell.exit(2)
    cell.blame("gpu.off_bus", 2, 3)
    cell.carry_out()
    cell.carry_out()
    assert cell.last(RecoveryDecided).nodes_out == ("n1",)
    cell.ready(3)
    cell.tick(5)
    assert cell.last(RecoveryDecided).epoch == 1


def test_where_the_newcomer_fails_the_others_form_their_group_anew_without_it() -> None:
    cell = shrunk()
    cell.ready(3)
    cell.attempt(AttemptStarted, "llama/3", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptFailed, "llama/3", lost="3")
    again = cell.last(RecoveryDecided)
    assert (again.action, again.members, again.epoch) == ("reinit_communicator", "0-2,4-7", 3)


@pytest.mark.parametrize("by", ["pause", "limit"])
def test_what_is_forbidden_is_said_once(by: str) -> None:
    cell = shrunk(SHRINKS | ({"recoveries_max": 1} if by == "limit" else {}))
    if by == "pause":
        cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.ready(3)
    cell.tick(5)
    cell.tick(5)
    [withheld] = cell.all(RecoveryWithheld)
    assert withheld.limit == ("paused" if by == "pause" else "recoveries_max")


@pytest.mark.parametrize("rank", [0, 8, 1000])
def test_a_member_and_a_stranger_that_say_so_change_nothing(rank: int) -> None:
    cell = shrunk()
    cell.ready(rank)
    cell.tick(5)
    assert cell.last(RecoveryDecided).epoch == 1
