"""Promises of what people read about their own words: decisions, pauses, breakers, policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.operated import (
    BreakerReset,
    DecisionApproved,
    DecisionVetoed,
    JobEnded,
    NodeProtected,
    PauseSet,
)
from nemesis.views.hands import OPEN, Hands
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS
from tests.test_claims import read
from tests.test_healer_properties import JOBS, STEP, played

APPROVE = {"mode": "approve"}


def asked(policy: dict[str, object] | None = None, **job: object) -> Cell:
    """A cell in which the shrink llama/2 waits for a person."""
    cell = Cell(policy=APPROVE | (policy or {}))
    cell.submit(**job)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.tick()
    return cell


def states(cell: Cell) -> dict[str, str]:
    hands = Hands(cell.records)
    return {name: each.state_at(hands.log_time_ns) for name, each in hands.decisions.items()}


def test_a_decision_that_waits_is_listed_with_its_deadline_and_a_shadow_hold_is_not() -> None:
    cell = asked()
    hands = Hands(cell.records)
    (waiting,) = hands.waiting()
    assert (waiting.decision, waiting.action, waiting.world) == ("llama/2", "shrink", 7)
    assert waiting.deadline_ns == hands.log_time_ns + 900 * SECOND_NS
    assert states(cell) == {"llama/1": "recorded", "llama/2": "waiting"}


def test_the_first_word_counts_and_says_whose_it_was() -> None:
    cell = asked()
    seq = cell.operate(DecisionApproved, "llama/2", decision="llama/2")
    cell.operate(DecisionApproved, "llama/2", decision="llama/2")
    decided = Hands(cell.records).decisions["llama/2"]
    assert (decided.state, decided.answer.by, decided.answer.seq) == ("approved", "ann", seq)
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    assert states(cell)["llama/2"] == "vetoed"
    cell.operate(DecisionApproved, "llama/2", decision="llama/2")
    assert states(cell)["llama/2"] == "vetoed"


@pytest.mark.parametrize(
    ("struct", "fields", "state"),
    [
        (AttemptCompleted, {}, "done"),
        (AttemptFailed, {}, "failed"),
        (AttemptFailed, {"withdrawn": True}, "withdrawn"),
        (AttemptOutcomeUnknown, {}, "unknown"),
    ],
)
def test_what_became_of_it_is_told(struct: type, fields: dict[str, bool], state: str) -> None:
    cell = asked()
    cell.operate(DecisionApproved, "llama/2", decision="llama/2")
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS)
    assert states(cell)["llama/2"] == "under way"
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    assert states(cell)["llama/2"] == "under way"
    cell.attempt(struct, "llama/2", **fields)
    assert states(cell)["llama/2"] == state


def test_what_nobody_answered_has_expired_and_its_job_needs_a_person() -> None:
    cell = asked()
    cell.at_once = False
    cell.tick(902)
    assert states(cell)["llama/2"] == "expired"
    assert Hands(cell.records).waiting() == []
    cell.flush()
    hands = Hands(cell.records)
    assert hands.decisions["llama/2"].state == "expired"
    assert (hands.withheld["llama"].limit, hands.withheld["llama"].decision) == (
        "expired",
        "llama/2",
    )
    cell.at_once = True
    cell.operate(BreakerReset, "expired", limit="expired")
    hands = Hands(cell.records)
    assert [each.decision for each in hands.waiting()] == ["llama/3"]
    assert hands.withheld == {}


def test_a_later_decision_or_the_end_of_the_job_makes_it_moot() -> None:
    cell = asked()
    cell.exit(5, node="n2")
    cell.tick()
    assert states(cell)["llama/2"] == "superseded"
    over = asked()
    over.operate(JobEnded, "llama", job="llama")
    assert states(over)["llama/2"] == "superseded"
    alone = asked()
    made = MembershipReported(at_ns=0, reason="", job="llama", epoch=5, members="0-2")
    alone.event(made, "llama/5", "llama")
    assert states(alone)["llama/2"] == "superseded"


def test_advice_is_told_apart_from_what_would_be_done() -> None:
    cell = Cell(policy=ACT)
    cell.submit()
    cell.blame("straggler.gpu", 3)
    assert states(cell) == {"llama/1": "advice"}


def test_pauses_protections_and_tripped_limits_stand_until_they_are_lifted() -> None:
    cell = Cell(policy=ACT | {"shrinks_max": 0})
    cell.submit()
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.operate(PauseSet, "p", scope="job/llama", paused=True)
    cell.operate(NodeProtected, "n2", node="n2", protected=True)
    hands = Hands(cell.records)
    assert [(each.limit, each.job) for each in hands.tripped.values()] == [("shrinks_max", "llama")]
    assert (hands.paused["job/llama"].by, hands.protected["n2"].by) == ("ann", "ann")
    assert hands.policy.shrinks_max == 0
    cell.operate(PauseSet, "p", scope="job/llama", paused=False)
    cell.operate(NodeProtected, "n2", node="n2", protected=False)
    cell.apply({"mode": "nonsense"})
    cell.operate(BreakerReset, "x", limit="shrinks_max")
    hands = Hands(cell.records)
    assert (hands.paused, hands.protected) == ({}, {})
    assert hands.policy.shrinks_max == 0
    cell.operate(JobEnded, "llama", job="llama")
    assert Hands(cell.records).tripped == {}


def test_the_pauses_that_keep_a_decision_from_being_done_are_named() -> None:
    cell = asked({"playbooks": {"gpu.off_bus": ["swap_node"]}}, spares=("s0",))
    for scope in ("ALL", "job/other", "node/n1", "node/s0", "node/n3"):
        cell.operate(PauseSet, "p", scope=scope, paused=True)
    hands = Hands(cell.records)
    assert hands.pauses(hands.decisions["llama/2"]) == ["ALL", "node/n1", "node/s0"]


@settings(max_examples=60)
@given(JOBS, st.lists(STEP, max_size=30), st.booleans())
def test_what_is_due_for_an_actor_is_approved_or_due_or_under_way_for_people(
    job: dict[str, object], steps: list[tuple[object, ...]], at_once: bool
) -> None:
    cell = played(job, steps, at_once=at_once)
    cell.flush()
    hands = Hands(cell.records)
    for due in read(cell).due():
        assert hands.decisions[due.decision.decision].state in ("approved", "due", "under way")
    assert sum(each.state in OPEN for each in hands.decisions.values()) <= 1
