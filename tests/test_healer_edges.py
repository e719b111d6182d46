"""Promises of the healer at its edges: who is meant, what is over, what is not said twice."""

from typing import Any

import msgspec
import pytest

from nemesis.processors.healer_state import PARTS_MAX
from nemesis.schemas.decided import (
    QuiesceDecided,
    RecoveryDecided,
    RecoveryWithheld,
)
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.operated import BreakerReset, DecisionVetoed, PauseSet
from tests.healer_cell import ACT, SECOND_NS, Cell

EVERY_NODE = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job."""
    return made(ACT)


def made(policy: dict[str, Any] | None, **job: Any) -> Cell:
    cell = Cell(policy=policy)
    cell.submit(**job)
    return cell


def causes(cell: Cell) -> tuple[int, ...]:
    return decode_conclusion(cell.records[-1].subject.split(".")[2], cell.records[-1].payload)[
        0
    ].causes


OTHER: dict[str, Any] = {"at_ns": 1, "reason": "", "job": "other"}
OTHERS: dict[str, Any] = OTHER | {"decision": "other/1"}
DECIDED: dict[str, Any] = OTHERS | {"incident": "i", "mode": "act", "deadline_ns": 1}


@pytest.mark.parametrize(
    "fact",
    [
        MembershipReported(epoch=1, members="0", **OTHER),
        AttemptStarted(actor="a", **OTHERS),
        AttemptCompleted(actor="a", **OTHERS),
        AttemptFailed(actor="a", **OTHERS),
        AttemptOutcomeUnknown(actor="a", **OTHERS),
        QuiesceDecided(epoch=0, **DECIDED),
        RecoveryDecided(action="shrink", target="", **DECIDED),
        RecoveryWithheld(incident="i", action="shrink", target="", **OTHER),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_facts_of_a_job_that_was_never_submitted_change_nothing(
    cell: Cell, fact: msgspec.Struct
) -> None:
    before = cell.fold.processor.snapshot()
    cell.event(fact, "other", "other")
    assert cell.said == []
    assert cell.fold.processor.snapshot() == before


def test_a_veto_of_another_decision_leaves_this_one_to_its_deadline() -> None:
    cell = made({"mode": "approve"})
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.tick()
    cell.operate(DecisionVetoed, "llama/9", decision="llama/9")
    cell.tick(901)
    assert cell.last(RecoveryWithheld).limit == "unanswered"


def test_a_second_pause_of_a_paused_job_says_nothing(cell: Cell) -> None:
    cell.operate(PauseSet, "pause", scope="job/llama", paused=True)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.tick(2)
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.tick()
    assert len(cell.all(RecoveryWithheld)) == 1


def test_a_membership_that_is_known_already_ends_nothing(cell: Cell) -> None:
    cell.exit(3)
    known = MembershipReported(at_ns=cell.now_ns, reason="", job="llama", epoch=0, members="0-7")
    cell.event(known, "llama/0", "llama")
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "restart_rank"


def test_only_a_conclusion_of_its_own_that_was_lost_is_left_to_a_person() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit()
    cell.exit(3)
    cell.held_back.clear()
    cell.tick(2)
    lost = ConclusionUndeliverable(at_ns=cell.now_ns, reason="", name="other", error="", sha256="")
    cell.event(lost, "other")
    cell.apply(ACT)
    assert cell.kinds == ["QuiesceDecided"]
    cell.event(msgspec.structs.replace(lost, name="healer"), "healer")
    cell.operate(BreakerReset, "x", limit="vetoed")
    assert cell.kinds == ["QuiesceDecided"]
    cell.operate(BreakerReset, "x", limit="undeliverable")
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_after_advice_the_next_fault_is_an_incident_of_its_own(cell: Cell) -> None:
    cell.blame("gpu.memory", 3, signature="row_remap_pending")
    seq = cell.exit(5, node="n2")
    assert cell.last(QuiesceDecided).incident == "n2/process/1/1"
    assert causes(cell) == (seq,)


@pytest.mark.parametrize("lost", ["exited", "silent"])
def test_a_job_that_stands_still_without_a_hold_waits_for_the_person_it_told(lost: str) -> None:
    cell = made(None)
    if lost == "exited":
        cell.exit(3)
    else:
        cell.attempt(AttemptCompleted, "llama/77", silent="3")
    cell.blame("desync", 3, node="")
    cell.tick(100)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    assert cell.last(RecoveryDecided).action == "fix_program"
    cell.operate(BreakerReset, "x", limit="fix_program")
    assert len(cell.said) == 3


def test_a_sound_node_that_a_shrink_emptied_is_a_spare_and_the_broken_one_is_not() -> None:
    cell = made(ACT | EVERY_NODE, tp=2, pp=2)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.operate(BreakerReset, "x", limit="nodes_out_share_max_ppm")
    cell.exit(0, node="n0", epoch=1)
    cell.blame("gpu.off_bus", 0, node="n0", incident="i-2")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.joined_nodes) == ("restart_job", ("n3",))
    assert decided.rungs_refused[0] == "swap_node: no untouched replica holds the state"


def test_a_rank_that_fell_silent_during_a_recovery_is_answered_after_it(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS)
    cell.attempt(AttemptCompleted, "llama/2", silent="5")
    held = cell.last(QuiesceDecided)
    assert (held.decision, held.epoch, held.dead_ranks) == ("llama/3", 1, (5,))


def without_job(cell: Cell, fault_class: str, node: str = "n9", **fields: Any) -> None:
    cell.blame(fault_class, node=node, jobs=(), **fields)


def test_a_fault_of_a_part_alone_is_said_in_full(cell: Cell) -> None:
    without_job(cell, "straggler.host", verdict="class-only", culprits=())
    assert cell.said == [
        RecoveryDecided(
            at_ns=cell.now_ns,
            reason="straggler.host at no part named touches no job: for a person to do.",
            decision="cluster/1",
            incident="i-1",
            mode="shadow",
            deadline_ns=cell.now_ns + 900 * SECOND_NS,
            action="watch",
            target="",
        )
    ]


def test_a_fault_of_a_part_is_said_again_only_where_a_newer_revision_asks_for_more(
    cell: Cell,
) -> None:
    without_job(cell, "none")
    without_job(cell, "gpu.driver", revision=0)
    assert [each.action for each in cell.said] == ["none"]
    without_job(cell, "gpu.driver", revision=1)
    without_job(cell, "straggler.gpu", revision=2)
    without_job(cell, "gpu.memory", revision=3)
    assert [(each.action, each.decision) for each in cell.said] == [
        ("none", "n9/1"),
        ("reset_gpu", "n9/2"),
        ("drain_node", "n9/3"),
    ]


def test_of_faults_without_a_job_the_one_that_is_longest_over_is_forgotten(cell: Cell) -> None:
    without_job(cell, "straggler.gpu", incident="i-0")
    without_job(cell, "straggler.gpu", incident="i-1")
    without_job(cell, "gpu.memory", incident="i-0", revision=1)
    for at in range(2, PARTS_MAX + 1):
        without_job(cell, "straggler.gpu", incident=f"i-{at}")
    said = len(cell.said)
    without_job(cell, "gpu.memory", incident="i-0", revision=2)
    assert len(cell.said) == said
    without_job(cell, "straggler.gpu", incident="i-1")
    assert len(cell.said) == said + 1
