"""Promises of the actor's fold: what is due, what is not, and that every copy sees the same."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.actors.claims import Claims
from nemesis.actors.planning import homes, nodes_of, plan_of
from nemesis.processors.fold import Input
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptFailed, AttemptStarted, MembershipReported
from nemesis.schemas.operated import JobEnded, NodeProtected, PauseSet
from nemesis.schemas.plans import Placement
from nemesis.schemas.rank_ranges import parse_ranks
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS
from tests.test_healer_properties import JOBS, STEP, newest, played


def read(cell: Cell, actor: str = "a") -> Claims:
    claims = Claims(actor)
    for record in cell.records:
        claims.take(Input(record))
    return claims


def recovering(**job: Any) -> Cell:
    """A cell whose newest decision is a recovery that nobody has claimed."""
    cell = Cell(policy=ACT)
    cell.submit(**job)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    return cell


def names(cell: Cell, actor: str = "a") -> list[str]:
    return [due.decision.decision for due in read(cell, actor).due()]


def test_a_fresh_decision_is_due_and_the_hold_before_it_is_not() -> None:
    cell = recovering()
    [due] = read(cell).due()
    assert (due.decision.decision, due.expected_seq, due.attempt) == ("llama/2", 0, 1)


def test_a_claim_is_respected_until_its_log_time_is_over() -> None:
    cell = recovering()
    seq = cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS, attempt=1)
    assert names(cell, "b") == []
    assert names(cell, "a") == ["llama/2"]  # "a" wrote it: an earlier life of ours
    cell.tick(2)
    [due] = read(cell, "b").due()
    assert (due.expected_seq, due.attempt) == (seq, 2)


@pytest.mark.parametrize("scope", ["ALL", "job/llama"])
def test_a_pause_holds_from_its_own_place_in_the_log_on(scope: str) -> None:
    cell = recovering()
    stale = read(cell, "a")
    [due] = stale.due()  # a copy that has not read on claims what it believes to be due
    paused_ns = cell.now_ns
    before = len(cell.records)
    cell.operate(PauseSet, "p", scope=scope, paused=True)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS, attempt=1)
    for record in cell.records[before:]:
        stale.take(Input(record))  # and reads its claim back before it does anything
    assert stale.forbids(due.decision) == f"{scope} is paused"
    assert stale.log_time_ns == paused_ns, "not a tick has passed"
    assert names(cell, "b") == []


def test_a_pause_that_comes_after_a_claim_ends_what_is_begun_and_nothing_more() -> None:
    cell = recovering()
    claim = cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS, attempt=1)
    cell.operate(PauseSet, "p", scope="ALL", paused=True)
    claims = read(cell)
    decision = claims.plans_in_force("llama")[-1]
    assert decision.decision == "llama/2"
    assert claims.holds(decision, claim)
    assert claims.due() == []


def test_what_ended_expired_or_is_paused_or_protected_is_not_due() -> None:
    ended = recovering()
    ended.attempt(AttemptFailed, "llama/2", withdrawn=True)
    assert names(ended) == ["llama/3"]
    late = recovering()
    late.at_once = False
    late.tick(61)
    assert names(late) == []
    paused = recovering(spares=("s0",))
    paused.operate(PauseSet, "p", scope="node/n1", paused=True)
    assert names(paused) == []
    paused.operate(PauseSet, "p", scope="node/n1", paused=False)
    assert names(paused) == ["llama/2"]
    paused.operate(NodeProtected, "s0", node="s0", protected=True)
    assert names(paused) == []
    gone = recovering()
    gone.operate(JobEnded, "llama", job="llama")
    assert names(gone) == []


def test_an_epoch_that_agents_made_themselves_puts_older_decisions_away() -> None:
    cell = recovering()
    cell.at_once = False
    made = MembershipReported(at_ns=0, reason="", job="llama", epoch=5, members="0-2")
    cell.event(made, "llama/5", "llama")
    claims = read(cell)
    assert claims.due() == []
    assert claims.jobs["llama"].members == "0-2"


def test_a_policy_that_is_none_is_not_taken() -> None:
    cell = recovering()
    cell.apply({"world_min": 0})
    assert read(cell).policy.mode == "act"


def test_a_swap_is_planned_for_the_nodes_of_before_and_after() -> None:
    cell = recovering(spares=("s0",))
    claims = read(cell)
    [due] = claims.due()
    standing = claims.jobs["llama"]
    plan = plan_of(due.decision, standing, {"n0": "b0"})
    assert nodes_of(due.decision, standing) == ("n0", "n1", "n2", "n3", "s0")
    assert plan.placements == (Placement(node="s0", ranks="2-3"),)
    assert (plan.started, plan.state_from, plan.boot_ids) == ("2-3", "peer", {"n0": "b0"})
    assert homes(standing, plan.placements)[3] == "s0"


def test_who_was_told_to_hold_goes_on_at_once_and_meets_where_a_member_stays() -> None:
    cell = recovering(nodes=("n0", "n1", "n2", "n3"))
    claims = read(cell)
    [due] = claims.due()
    stores = {"n1": "n1:1", "n2": "n2:2"}
    plan = plan_of(due.decision, claims.jobs["llama"], {}, stores=stores)
    assert not claims.at_boundary(due.decision)
    assert isinstance(due.decision, RecoveryDecided)
    assert plan.store == ("n2:2" if "n1" in due.decision.nodes_out else "n1:1")


def test_where_nothing_has_failed_yet_members_go_on_at_the_end_of_a_step() -> None:
    cell = Cell(policy=ACT)
    cell.submit(nodes=("n0", "n1", "n2", "n3"))
    cell.predict("act", 3)
    claims = read(cell)
    [due] = claims.due()
    assert claims.at_boundary(due.decision)
    plan = plan_of(due.decision, claims.jobs["llama"], {}, at_boundary=True)
    assert (plan.at_boundary, plan.members, plan.fenced) == (True, "0-2,4-7", "")


@settings(max_examples=100)
@given(JOBS, st.lists(STEP, max_size=30), st.booleans())
def test_at_most_one_decision_of_a_job_is_due_and_never_a_void_or_shadow_one(
    job: dict[str, Any], steps: list[tuple[Any, ...]], at_once: bool
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.flush()
    claims = read(cell)
    due = claims.due()
    assert len(due) <= 1
    for each in due:
        effective = newest(cell)
        assert each.decision == effective
        assert each.decision.mode != "shadow"
        assert isinstance(each.decision, QuiesceDecided | RecoveryDecided)
        plan = plan_of(each.decision, claims.jobs["llama"], {})
        assert plan.world == len(parse_ranks(plan.members)) > 0
    assert claims.due() == due
