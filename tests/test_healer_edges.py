"""Promises of the healer at its edges: who is meant, what is over, what is not said twice."""

from typing import Any

import msgspec
import pytest

from nemesis.processors.healer.state import PARTS_MAX, SETTLED_MAX
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
from nemesis.schemas.inferred import Culprit
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.operated import BreakerReset, DecisionVetoed, JobSubmitted, PauseSet
from nemesis.schemas.plans import Placement
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS

EVERY_NODE = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job."""
    return made(ACT)


def made(policy: dict[str, Any] | None, **job: Any) -> Cell:
    cell = Cell(policy=policy)
    cell.submit(**job)
    return cell


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
    assert cell.last(RecoveryWithheld).limit == "expired"


def test_a_second_pause_of_a_paused_job_says_nothing(cell: Cell) -> None:
    cell.operate(PauseSet, "pause", scope="job/llama", paused=True)
    cited = (cell.exit(3), cell.blame("gpu.off_bus", 3))
    cell.tick(2)
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.tick()
    assert len(cell.all(RecoveryWithheld)) == 1
    assert cell.causes() == cited


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
    assert cell.causes() == (seq,)


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
    seq = cell.attempt(AttemptCompleted, "llama/2", silent="5")
    held = cell.last(QuiesceDecided)
    assert (held.decision, held.epoch, held.dead_ranks) == ("llama/3", 1, (5,))
    assert (held.incident, cell.causes()) == (f"test/{seq - 1}", (seq,))


def test_a_rank_that_a_hold_found_lost_is_answered_with_the_others(cell: Cell) -> None:
    first = cell.exit(3)
    second = cell.attempt(AttemptCompleted, "llama/1", lost="2", silent="5")
    cell.tick(2)
    decided = cell.last(RecoveryDecided)
    assert decided.removed_ranks == (2, 3, 5)
    assert cell.causes() == (first, second)


def test_a_failed_attempt_that_lost_ranks_is_cited_once(cell: Cell) -> None:
    first = cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    second = cell.attempt(AttemptFailed, "llama/2", lost="2-3")
    assert cell.last(RecoveryDecided).removed_ranks == (2, 3)
    assert cell.causes() == (first, second)


@pytest.mark.parametrize("how", ["silent", "lost"])
def test_a_rank_that_an_attempt_found_gone_is_held_and_answered(cell: Cell, how: str) -> None:
    seq = cell.attempt(AttemptCompleted, "llama/9", **{how: "3"})
    assert cell.last(QuiesceDecided).incident == f"test/{seq - 1}"
    cell.carry_out()
    cell.tick(2)
    decided = cell.last(RecoveryDecided)
    assert (decided.removed_ranks, decided.started) == (
        ((3,), "") if how == "silent" else ((), "3")
    )


def test_ranks_that_an_attempt_lost_outside_the_job_are_nobodys_concern(cell: Cell) -> None:
    cell.attempt(AttemptCompleted, "llama/9", lost="8-9", silent="10")
    cell.exit(3)
    assert cell.last(QuiesceDecided).incident == "n1/process/1/1"


def test_advice_after_a_recovery_leaves_the_job_at_work(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.blame("gpu.memory", 5, node="n2", signature="row_remap_pending", incident="i-2")
    assert cell.last(RecoveryDecided).action == "watch"
    cell.exit(5, node="n2", epoch=1)
    assert cell.last(QuiesceDecided).dead_ranks == (5,)


def test_a_limit_is_said_once_and_in_full_while_nobody_has_read_it_yet() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit(tp=8)
    cell.exit(3)
    cell.flush()
    cell.attempt(AttemptCompleted, "llama/1")
    cell.apply(ACT | {"world_min": 9})
    cell.tick(10)
    assert cell.said[1:] == [
        RecoveryWithheld(
            at_ns=cell.now_ns - 8 * SECOND_NS,
            reason=(
                "restart_rank is due for llama and nothing that would be enough is safe: a person"
                " must look."
            ),
            incident="n1/process/1/1",
            action="restart_rank",
            target="job/llama",
            job="llama",
            limit="no_rung",
            rungs_refused=(
                "restart_rank: no untouched replica holds the state",
                "shrink: 0 ranks would be left, at least 9 are needed",
                "restart_job: 8 ranks would be left, at least 9 are needed",
            ),
        )
    ]
    cell.flush()
    cell.tick(10)
    assert len(cell.said) == 2


def test_a_rank_that_moved_is_not_blamed_for_the_node_that_it_left() -> None:
    cell = made(ACT | EVERY_NODE, spares=("s0",))
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.blame("gpu.off_bus", 3, node="n1", incident="i-2")
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_a_lifted_hold_leaves_ranks_that_moved_where_they_are() -> None:
    cell = made(ACT | EVERY_NODE, spares=("s0",))
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    moved = cell.last(RecoveryDecided).placements
    cell.carry_out()
    cell.blame("nic", 6, node="n3", incident="i-2")
    cell.blame("none", incident="i-2", revision=1, verdict="no-fault", culprits=())
    cell.carry_out()
    cell.tick(2)
    lifted = cell.last(RecoveryDecided)
    assert (lifted.action, lifted.placements) == ("reinit_communicator", moved)
    assert moved == (Placement(node="s0", ranks="2-3"),)


def test_a_verdict_that_names_ranks_and_no_node_blames_them_where_they_are(cell: Cell) -> None:
    cell.blame("app.program", 3, node="")
    assert cell.last(QuiesceDecided).dead_ranks == (3,)


def test_where_regrouping_failed_the_ranks_of_the_link_are_taken_out(cell: Cell) -> None:
    cell.blame("network.link", 3, signature="link_recovered")
    cell.carry_out()
    cell.attempt(AttemptFailed, "llama/2")
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.removed_ranks) == ("shrink", (3,))


def test_advice_is_repeated_for_an_incident_only_after_many_others(cell: Cell) -> None:
    def advise(at: int, revision: int = 0) -> int:
        before = len(cell.said)
        cell.blame("straggler.host", 3, incident=f"i-{at}", revision=revision)
        return len(cell.said) - before

    assert [advise(at) for at in range(SETTLED_MAX)] == [1] * SETTLED_MAX
    assert (advise(0), advise(1), advise(1, revision=1)) == (0, 0, 0)
    cell.blame("straggler.gpu", 3, incident="i-0", revision=1)  # graver: i-0 is the newest now
    assert advise(SETTLED_MAX) == 1
    assert (advise(0, revision=1), advise(2, revision=1), advise(1)) == (0, 0, 1)


def two_jobs(nodes_out_max: int) -> Cell:
    """Two jobs on the same four nodes, each with spares of its own, and n1 goes bad."""
    cell = made(ACT | EVERY_NODE | {"nodes_out_max": nodes_out_max}, spares=("s0", "s1"))
    cell.operate(
        JobSubmitted,
        "other",
        job="other",
        nodes=("n0", "n1", "n2", "n3"),
        ranks_per_node=2,
        spares=("s2",),
    )
    culprits = (Culprit(kind="node", id="node/n1"),)
    cell.blame("host.memory", culprits=culprits, jobs=("llama", "other"))
    for job in ("llama", "other"):
        for number in (1, 2):
            cell.attempt(AttemptCompleted, f"{job}/{number}", job=job)
    return cell


def test_a_node_that_is_out_already_is_not_counted_again() -> None:
    cell = two_jobs(1)
    swaps = cell.all(RecoveryDecided)
    assert [(each.job, each.nodes_out) for each in swaps] == [
        ("llama", ("n1",)),
        ("other", ("n1",)),
    ]
    assert cell.all(RecoveryWithheld) == []


def test_a_node_that_two_jobs_left_is_remembered_as_one() -> None:
    cell = two_jobs(2)
    cell.exit(4, node="n2", epoch=1)
    cell.blame("gpu.off_bus", 4, node="n2", incident="i-2")
    cell.carry_out()
    assert cell.last(RecoveryDecided).nodes_out == ("n2",)
    assert cell.all(RecoveryWithheld) == []


def test_every_node_that_went_out_within_the_window_counts() -> None:
    cell = made(ACT | EVERY_NODE | {"nodes_out_max": 2}, spares=("s0", "s1", "s2"))
    for rank in (0, 2, 4):
        node = f"n{rank // 2}"
        cell.exit(rank, node=node)
        cell.blame("gpu.off_bus", rank, node=node, incident=f"i-{rank}")
        cell.carry_out()
        if not cell.all(RecoveryWithheld):
            cell.carry_out()
    assert len(cell.all(RecoveryDecided)) == 2
    assert cell.last(RecoveryWithheld).limit == "nodes_out_max"


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
