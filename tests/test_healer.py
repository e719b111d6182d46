"""Promises of the healer: two steps, the smallest safe rung, and the log's last word."""

import pytest

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.inferred import Culprit
from nemesis.schemas.operated import JobEnded
from nemesis.schemas.plans import Placement
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job."""
    cell = Cell(policy=ACT)
    cell.submit()
    return cell


def test_a_dead_rank_holds_its_job_at_once(cell: Cell) -> None:
    seq = cell.exit(3)
    assert cell.said == [
        QuiesceDecided(
            at_ns=cell.now_ns,
            reason=(
                "Rank 3 of llama is lost: hold the others at once, before their collectives time"
                " out, while cause and extent are being found."
            ),
            decision="llama/1",
            incident="n1/process/1/1",
            mode="act",
            deadline_ns=cell.now_ns + 5 * SECOND_NS,
            job="llama",
            job_revision=cell.submitted_seq,
            epoch=0,
            dead_ranks=(3,),
        )
    ]
    event, _ = decode_conclusion("quiesce_decided", cell.records[-1].payload)
    assert event.causes == (seq,)
    assert event.job == "llama"


def test_a_verdict_and_a_complete_hold_make_the_membership_without_waiting(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    assert cell.kinds == ["QuiesceDecided"]
    cell.carry_out()
    assert cell.last(RecoveryDecided) == RecoveryDecided(
        at_ns=cell.now_ns,
        reason=(
            "Because gpu.off_bus at gpu/n1/0000:1b:00.0, rank 3 of llama is lost: shrink, 7 of 8"
            " ranks go on."
        ),
        decision="llama/2",
        incident="i-1",
        mode="act",
        deadline_ns=cell.now_ns + 60 * SECOND_NS,
        job="llama",
        job_revision=len(cell.records) - 1,
        action="shrink",
        target="job/llama",
        epoch=1,
        members="0-2,4-7",
        removed_ranks=(3,),
        rungs_refused=("swap_node: 1 spare nodes are needed, 0 are there",),
        world=7,
    )


def test_a_completed_shrink_ends_the_recovery_in_the_new_epoch(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.tick(100)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    cell.exit(3)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    cell.exit(0, node="n0")
    held = cell.last(QuiesceDecided)
    assert (held.decision, held.epoch, held.dead_ranks) == ("llama/3", 1, (0,))


def test_a_missing_verdict_is_awaited_for_one_and_a_half_seconds_and_no_longer(cell: Cell) -> None:
    cell.exit(3)
    cell.carry_out()
    cell.tick()
    assert cell.kinds == ["QuiesceDecided"]
    cell.tick()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.target) == ("restart_rank", "rank/llama/3")
    assert (decided.members, decided.started, decided.state_from) == ("0-7", "3", "peer")
    assert decided.reason == (
        "Because rank 3 of llama is lost: restart_rank, 8 of 8 ranks go on, 1 started anew from"
        " peer."
    )


def test_where_ranks_of_several_nodes_ended_a_verdict_is_awaited_for_ten_seconds(
    cell: Cell,
) -> None:
    cell.exit(3)
    cell.exit(5, node="n2")
    cell.carry_out()
    cell.tick(9)
    assert cell.kinds == ["QuiesceDecided"]
    cell.tick()
    assert cell.last(RecoveryDecided).started == "3,5"


def test_of_ranks_that_ended_on_one_node_a_verdict_is_not_awaited_longer(cell: Cell) -> None:
    cell.exit(2)
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).started == "2-3"


def test_a_fabric_that_is_named_in_time_keeps_ranks_that_gave_up_from_a_start_in_vain(
    cell: Cell,
) -> None:
    cell.exit(3)
    cell.exit(5, node="n2")
    cell.carry_out()
    cell.tick(5)
    cell.blame("network.fabric", node="", culprits=(Culprit(kind="switch", id="switch/leaf03"),))
    assert cell.last(RecoveryDecided).action == "fix_fabric"
    said = len(cell.said)
    cell.blame("unknown", verdict="insufficient", incident="i-2", culprits=())
    cell.tick(20)
    assert len(cell.said) == said, "it waits for a person, and nothing new was named"
    cell.blame("gpu.off_bus", 3, incident="i-3")
    assert len(cell.said) > said


def test_a_hold_that_nobody_reports_on_is_awaited_until_its_deadline(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.tick(4)
    assert cell.kinds == ["QuiesceDecided"]
    cell.tick()
    assert cell.last(RecoveryDecided).action == "shrink"


def test_exits_that_follow_join_the_one_membership(cell: Cell) -> None:
    cell.exit(3)
    cell.exit(2)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    assert cell.last(RecoveryDecided).removed_ranks == (2, 3)
    event, _ = decode_conclusion("recovery_decided", cell.records[-1].payload)
    exits = [each.seq for each in cell.records if each.subject == "nemesis.telemetry.n1.process"]
    verdicts = [each.seq for each in cell.records if "fault_attributed" in each.subject]
    assert event.causes == tuple(sorted([*exits[:2], *verdicts]))


def test_a_rank_whose_node_is_silent_is_lost_and_not_restarted_there(cell: Cell) -> None:
    cell.exit(3)
    cell.attempt(AttemptStarted, "llama/1", deadline_ns=cell.now_ns + SECOND_NS)
    cell.attempt(AttemptCompleted, "llama/1", silent="2", lost="3")
    cell.tick(2)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.members, decided.nodes_out) == ("shrink", "0-1,4-7", ("n1",))
    assert decided.rungs_refused == ("restart_rank: node n1 does not answer",)


def test_losing_one_rank_of_a_tensor_parallel_group_loses_its_replica() -> None:
    cell = Cell(policy=ACT)
    cell.submit(tp=2, pp=2)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    # tensor parallel pairs (0, 1) and (2, 3); the pipeline's second stage is four ranks further
    assert cell.last(RecoveryDecided).removed_ranks == (2, 3, 6, 7)


def test_a_spare_takes_over_with_state_from_a_peer() -> None:
    cell = Cell(policy=ACT | {"nodes_out_share_max_ppm": 1_000_000})
    cell.submit(spares=("s0", "s1"))
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.target, decided.joined_nodes) == (
        "swap_node",
        "node/n1",
        ("s0",),
    )
    assert (decided.members, decided.started, decided.state_from) == ("0-7", "2-3", "peer")
    assert decided.placements == (Placement(node="s0", ranks="2-3"),)
    assert decided.nodes_out == ("n1",)
    cell.carry_out()
    cell.exit(2, node="s0")
    cell.blame("gpu.off_bus", 2, node="s0", incident="i-2")
    cell.carry_out()
    again = cell.last(RecoveryDecided)
    assert (again.action, again.joined_nodes) == ("swap_node", ("s1",))
    assert again.placements == (Placement(node="s1", ranks="2-3"),)


def test_an_uncontained_memory_error_takes_the_whole_job_back_to_its_checkpoint() -> None:
    cell = Cell(policy=ACT)
    cell.submit()
    cell.blame("gpu.memory", 3, signature="ecc_uncontained")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.target) == ("drain_node", "node/n1")
    assert (decided.members, decided.started) == ("0-1,4-7", "0-1,4-7")
    assert decided.state_from == "checkpoint"


def test_a_contained_memory_error_restarts_one_rank_in_place(cell: Cell) -> None:
    cell.blame("gpu.memory", 3, signature="ecc_contained")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.started, decided.members) == ("restart_rank", "3", "0-7")


def test_a_pending_remap_is_watched_and_the_job_goes_on(cell: Cell) -> None:
    cell.blame("gpu.memory", 3, signature="row_remap_pending")
    decided = cell.last(RecoveryDecided)
    assert cell.kinds == ["RecoveryDecided"]
    assert (decided.action, decided.epoch, decided.members) == ("watch", 0, "")
    assert decided.reason == (
        "gpu.memory at gpu/n1/0000:1b:00.0: it is watched, the job's membership stays as it is."
    )
    cell.tick(10)
    assert len(cell.said) == 1


def test_a_link_that_is_back_regroups_everybody(cell: Cell) -> None:
    cell.blame("network.link", 3, signature="link_recovered")
    held = cell.last(QuiesceDecided)
    assert held.dead_ranks == ()
    assert held.reason == (
        "network.link at gpu/n1/0000:1b:00.0: hold the ranks of llama at once, before their"
        " collectives time out, while cause and extent are being found."
    )
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.members, decided.epoch) == ("reinit_communicator", "0-7", 1)
    cell.carry_out()
    cell.tick(10)
    assert len(cell.said) == 2


def test_a_program_fault_restarts_the_job_and_blames_no_node(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("app.program", 3, node="")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.nodes_out, decided.started) == ("restart_job", (), "0-7")


def test_a_dead_rank_whose_program_must_be_fixed_waits_for_a_person(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("desync", 3, node="")
    cell.carry_out()
    assert cell.last(RecoveryDecided).action == "fix_program"
    cell.tick(100)
    assert len(cell.said) == 2


def test_a_straggler_without_a_death_is_advice_only(cell: Cell) -> None:
    cell.blame("straggler.gpu", 3)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.target) == ("cordon_node", "gpu/n1/0000:1b:00.0")


def test_a_verdict_without_a_rank_of_the_job_takes_nothing_out_of_it(cell: Cell) -> None:
    cell.blame("nvlink", verdict="class-only", culprits=())
    cell.blame("unknown", verdict="insufficient", culprits=(), incident="i-2")
    cell.tick(10)
    assert cell.said == []


def test_a_node_at_fault_takes_all_its_ranks(cell: Cell) -> None:
    cell.blame("host.memory", culprits=(Culprit(kind="node", id="node/n2"),))
    assert cell.last(QuiesceDecided).dead_ranks == (4, 5)


def test_a_failed_rung_is_followed_by_the_next_one(cell: Cell) -> None:
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS)
    cell.attempt(AttemptFailed, "llama/2", lost="3")
    second = cell.last(RecoveryDecided)
    assert (second.action, second.decision, second.epoch) == ("shrink", "llama/3", 2)
    assert second.rungs_refused == ("restart_rank: it was tried and failed",)
    cell.attempt(AttemptOutcomeUnknown, "llama/3")
    third = cell.last(RecoveryDecided)
    assert (third.action, third.epoch) == ("restart_job", 3)
    cell.attempt(AttemptFailed, "llama/4")
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.action) == ("no_rung", "restart_rank")
    assert len(withheld.rungs_refused) == 3


def test_an_attempt_that_was_only_withdrawn_does_not_count_against_its_rung(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.attempt(AttemptFailed, "llama/2", withdrawn=True)
    again = cell.last(RecoveryDecided)
    assert (again.action, again.decision, again.epoch) == ("shrink", "llama/3", 2)


def test_an_attempt_whose_claim_ran_out_is_given_up(cell: Cell) -> None:
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + 70 * SECOND_NS)
    cell.tick(70)
    assert len(cell.all(RecoveryDecided)) == 1
    cell.tick()
    assert cell.last(RecoveryDecided).action == "shrink"


def test_a_decision_that_nobody_claims_expires_loudly(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.tick(60)
    assert cell.all(RecoveryWithheld) == []
    cell.tick()
    assert cell.last(RecoveryWithheld) == RecoveryWithheld(
        at_ns=cell.now_ns,
        reason=(
            "shrink is due for llama and nobody carried out llama/2 in time: a person must look."
        ),
        incident="i-1",
        action="shrink",
        target="job/llama",
        job="llama",
        limit="unanswered",
        decision="llama/2",
    )
    cell.tick(100)
    assert len(cell.said) == 3


def test_a_member_that_dies_during_a_recovery_makes_a_new_one(cell: Cell) -> None:
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.exit(5, node="n2")
    second = cell.last(RecoveryDecided)
    assert (second.decision, second.epoch, second.members) == ("llama/3", 2, "0-2,4,6-7")


def test_ranks_that_a_plan_ends_are_not_news(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.exit(3, fenced=True)
    cell.carry_out()
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_an_exit_of_an_earlier_epoch_is_not_news(cell: Cell) -> None:
    cell.blame("gpu.memory", 3, signature="ecc_contained")
    cell.carry_out()
    cell.carry_out()
    cell.exit(3, epoch=0)
    assert len(cell.said) == 2
    cell.exit(3, epoch=1)
    assert len(cell.said) == 3


def test_a_rank_that_ends_as_it_should_is_no_fault(cell: Cell) -> None:
    cell.exit(3, exit_code=0)
    assert cell.said == []
    cell.exit(3, exit_code=0, signal=9)
    assert cell.kinds == ["QuiesceDecided"]


def test_a_late_exit_opens_no_decision_and_joins_one_that_is_open(cell: Cell) -> None:
    cell.exit(3, late_ns=31 * SECOND_NS)
    cell.tick(5)
    assert cell.said == []
    cell.exit(5, node="n2")
    cell.exit(3, late_ns=31 * SECOND_NS)
    cell.blame("gpu.off_bus", 5, node="n2")
    cell.carry_out()
    assert cell.last(RecoveryDecided).removed_ranks == (3, 5)


def test_an_exit_in_the_present_epoch_is_answered_however_long_the_log_was_away(cell: Cell) -> None:
    cell.leap(600)
    cell.exit(3, late_ns=300 * SECOND_NS, epoch=0)
    assert cell.kinds == ["QuiesceDecided"]
    cell.blame("gpu.off_bus", 3, late=True)
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert decided.removed_ranks == (3,)
    assert "gpu.off_bus at gpu/n1/0000:1b:00.0" in decided.reason


def test_a_late_verdict_joins_an_exit_that_opened_a_decision() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit()
    cell.exit(3)
    cell.blame("gpu.off_bus", 3, late=True)
    cell.at_once = True
    cell.flush()
    cell.carry_out()
    assert "gpu.off_bus at gpu/n1/0000:1b:00.0" in cell.last(RecoveryDecided).reason


def test_a_late_exit_from_before_the_job_was_submitted_is_of_an_earlier_one(cell: Cell) -> None:
    cell.exit(3, late_ns=300 * SECOND_NS, epoch=0)
    cell.tick(5)
    assert cell.said == []


def test_a_late_verdict_opens_no_decision(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3, late=True)
    cell.blame("gpu.off_bus", late=True, jobs=())
    cell.tick(5)
    assert cell.said == []


def test_the_same_verdict_again_decides_nothing(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.blame("gpu.off_bus", 3)
    cell.blame("gpu.off_bus", 3, revision=1)
    cell.tick(10)
    assert len(cell.said) == 2


def test_a_verdict_that_is_refuted_before_the_membership_lifts_the_hold(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3)
    cell.blame("none", revision=1, verdict="no-fault", culprits=())
    cell.carry_out()
    cell.tick(2)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.members, decided.removed_ranks) == (
        "reinit_communicator",
        "0-7",
        (),
    )
    assert decided.reason == (
        "Because nothing is known to be wrong with llama: reinit_communicator, 8 of 8 ranks go on."
    )


def test_a_graver_verdict_after_a_restart_in_place_is_answered_too(cell: Cell) -> None:
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "restart_rank"
    cell.carry_out()
    cell.blame("gpu.off_bus", 3)
    assert cell.kinds[2:] == ["QuiesceDecided"]
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.epoch, decided.removed_ranks) == ("shrink", 2, (3,))


def test_ranks_that_moved_stay_where_they_are_when_the_job_shrinks() -> None:
    every_node = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}
    shrinks = {"playbooks": {"gpu.stall": ["shrink"]}}
    cell = Cell(policy=ACT | every_node | shrinks)
    cell.submit(spares=("n4", "n5"))
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    swap = cell.last(RecoveryDecided)
    assert (swap.action, swap.joined_nodes) == ("swap_node", ("n4",))
    cell.carry_out()
    cell.blame("gpu.stall", 6, node="n3", incident="i-2")
    cell.carry_out()
    shrink = cell.last(RecoveryDecided)
    assert (shrink.removed_ranks, shrink.placements) == (
        (6,),
        (Placement(node="n4", ranks="2-3"),),
    )
    cell.carry_out()
    cell.blame("gpu.off_bus", 0, node="n0", incident="i-3")
    cell.carry_out()
    again = cell.last(RecoveryDecided)
    assert (again.action, again.joined_nodes) == ("swap_node", ("n5",))
    assert {each.node: each.ranks for each in again.placements} == {"n4": "2-3", "n5": "0-1"}


def test_two_incidents_of_a_job_are_answered_by_one_membership(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3)
    cell.blame("nic", 6, node="n3", incident="i-2")
    cell.carry_out()
    assert cell.last(RecoveryDecided).removed_ranks == (3, 6)
    cell.carry_out()
    cell.tick(10)
    assert len(cell.said) == 2


def test_a_fact_between_makes_a_decision_void_and_it_is_concluded_again() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit()
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.flush()
    cell.attempt(AttemptStarted, "llama/1", deadline_ns=cell.now_ns + SECOND_NS)
    cell.attempt(AttemptCompleted, "llama/1")
    first = cell.last(RecoveryDecided)
    assert first.decision == "llama/2"
    cell.attempt(AttemptStarted, "llama/1", attempt=2)
    assert len(cell.said) == 2
    cell.flush()
    second = cell.last(RecoveryDecided)
    assert second.decision == "llama/3"
    assert second.epoch == first.epoch == 1
    assert second.job_revision == len(cell.records) - 1


def test_nothing_more_is_decided_while_a_decision_is_not_read_back() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit()
    cell.exit(3)
    cell.exit(5, node="n2")
    cell.blame("gpu.off_bus", 3)
    cell.tick(100)
    assert cell.kinds == ["QuiesceDecided"]


def test_what_agents_did_alone_is_where_the_healer_goes_on(cell: Cell) -> None:
    cell.exit(3)
    cell.event(
        MembershipReported(at_ns=cell.now_ns, reason="", job="llama", epoch=1, members="0-2,4-7"),
        "llama/1",
        "llama",
    )
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided"]
    cell.exit(7, node="n3")
    assert cell.last(QuiesceDecided).epoch == 1
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).epoch == 2


def test_who_died_after_agents_went_on_alone_is_answered_once_their_epoch_is_known(
    cell: Cell,
) -> None:
    cell.exit(3, epoch=0)
    cell.exit(7, node="n3", epoch=1)  # read before the membership that it was in
    cell.event(
        MembershipReported(at_ns=cell.now_ns, reason="", job="llama", epoch=1, members="0-2,4-7"),
        "llama/1",
        "llama",
    )
    held = cell.last(QuiesceDecided)
    assert (held.epoch, held.dead_ranks) == (1, (7,))
    assert held.incident
    cell.carry_out()
    cell.tick(2)
    assert (cell.last(RecoveryDecided).epoch, cell.last(RecoveryDecided).started) == (2, "7")


def test_ranks_that_a_job_never_had_are_in_no_membership_that_agents_report(cell: Cell) -> None:
    alone = MembershipReported(at_ns=cell.now_ns, reason="", job="llama", epoch=1, members="0-999")
    cell.event(alone, "llama/1", "llama")
    lost = AttemptCompleted(
        at_ns=cell.now_ns, reason="", decision="x", actor="a", job="llama", silent="7-900"
    )
    cell.event(lost, "x", "llama")
    assert cell.last(QuiesceDecided).dead_ranks == (7,)


def test_an_ended_job_is_nobodys_concern_and_its_numbers_go_on(cell: Cell) -> None:
    cell.exit(3)
    cell.operate(JobEnded, "llama", job="llama")
    cell.tick(100)
    cell.exit(4, node="n2")
    assert cell.kinds == ["QuiesceDecided"]
    cell.submit()
    cell.exit(3)
    assert cell.last(QuiesceDecided).decision == "llama/2"


def test_a_fault_that_touches_no_job_is_advice_for_people(cell: Cell) -> None:
    cell.blame("gpu.off_bus", node="n9", jobs=())
    cell.blame("gpu.off_bus", node="n9", jobs=())
    cell.blame("gpu.off_bus", node="n9", jobs=(), revision=1)
    cell.blame("unknown", node="n9", jobs=(), incident="i-2", verdict="insufficient")
    assert len(cell.said) == 1
    advice = cell.last(RecoveryDecided)
    assert (advice.action, advice.mode, advice.decision) == ("drain_node", "shadow", "n9/1")
    assert advice.reason == (
        "gpu.off_bus at gpu/n9/0000:1b:00.0 touches no job: for a person to do."
    )
