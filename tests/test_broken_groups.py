"""Promises about a group that breaks though no rank is known to have ended."""

import pytest

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, AttemptStarted
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job of four nodes of two ranks."""
    cell = Cell(policy=ACT)
    cell.submit()
    return cell


def test_whoever_lives_is_held_and_nobody_is_ended(cell: Cell) -> None:
    cell.lose_group()
    hold = cell.last(QuiesceDecided)
    assert (hold.dead_ranks, hold.epoch) == ((), 0)
    assert hold.reason.startswith("Ranks of llama lost their group: hold whoever lives")


def test_a_node_that_does_not_answer_the_hold_is_left_out(cell: Cell) -> None:
    cell.lose_group()
    cell.attempt(AttemptStarted, "llama/1", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptCompleted, "llama/1", silent="0-1")
    cell.tick(2)
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.members, recovery.epoch) == ("shrink", "2-7", 1)
    assert recovery.rungs_refused == ("restart_rank: node n0 does not answer",)


def test_where_everybody_answers_all_form_their_group_anew(cell: Cell) -> None:
    cell.lose_group()
    cell.carry_out()
    cell.tick(2)
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.members) == ("reinit_communicator", "0-7")
    cell.carry_out()
    cell.lose_group(0)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    cell.lose_group(1)
    assert cell.last(QuiesceDecided).epoch == 1


def test_a_group_that_cannot_be_formed_anew_is_started_from_its_checkpoint(cell: Cell) -> None:
    cell.lose_group()
    cell.carry_out()
    cell.tick(2)
    cell.attempt(AttemptFailed, "llama/2")
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.state_from) == ("restart_job", "checkpoint")


def test_an_end_that_is_heard_of_meanwhile_joins_the_one_plan(cell: Cell) -> None:
    cell.lose_group()
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    assert cell.last(RecoveryDecided).started == "3"


def test_ranks_that_will_fail_are_not_taken_for_dead(cell: Cell) -> None:
    cell.lose_group()
    cell.predict("act", 5)
    assert cell.last(QuiesceDecided).dead_ranks == ()
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "reinit_communicator"


@pytest.mark.parametrize(("epoch", "late_ns"), [(1, 0), (0, 40 * SECOND_NS)])
def test_another_epoch_or_what_comes_late_changes_nothing(
    cell: Cell, epoch: int, late_ns: int
) -> None:
    cell.lose_group(epoch, late_ns=late_ns)
    cell.tick(5)
    assert cell.said == []


def test_a_shadow_says_so_once_and_the_job_goes_on() -> None:
    cell = Cell(policy={"mode": "shadow"})
    cell.submit()
    cell.lose_group()
    cell.tick(5)
    cell.tick(5)
    assert cell.kinds == ["QuiesceDecided"]
