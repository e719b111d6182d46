"""Promises of the healer about verdicts: whom they name, which are news, which are answered."""

from typing import Any

import pytest

from nemesis.processors.healer.state import HealerState, JobState, Pending, Verdict, submitted_state
from nemesis.processors.healer.verdicts import blames_restarted, read_verdict
from nemesis.schemas.codes import Action, FaultClass, Signature
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, FaultAttributed
from nemesis.schemas.operated import BreakerReset, JobSubmitted, PauseSet
from nemesis.schemas.policy import Policy
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS

EVERY_NODE = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}
N1 = (Culprit(kind="node", id="node/n1"),)
PORT = Culprit(kind="port", id="port/leaf01/7")
NIC = Culprit(kind="nic", id="nic/n3/mlx5_0")


def made(policy: dict[str, Any] | None, **job: Any) -> Cell:
    cell = Cell(policy=policy)
    cell.submit(**job)
    return cell


def submit_other(cell: Cell, **fields: Any) -> None:
    base = {"nodes": ("n0", "n1", "n2", "n3"), "ranks_per_node": 2}
    cell.operate(JobSubmitted, "other", job="other", **(base | fields))


def job() -> JobState:
    submitted = JobSubmitted(
        at_ns=1, by="ann", reason="", job="llama", nodes=("n0", "n1", "n2", "n3"), ranks_per_node=2
    )
    return submitted_state(submitted, 0, 1)


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job."""
    return made(ACT)


def test_a_verdict_on_a_class_alone_is_known_enough(cell: Cell) -> None:
    cell.blame("gpu.off_bus", 3, verdict="class-only")
    assert cell.last(QuiesceDecided).dead_ranks == (3,)


def test_ranks_that_a_verdict_names_come_before_those_of_its_nodes(cell: Cell) -> None:
    cell.blame("host.memory", 3, culprits=N1)
    assert cell.last(QuiesceDecided).dead_ranks == (3,)


def test_of_a_rack_without_power_all_nodes_are_lost(cell: Cell) -> None:
    rack = (Culprit(kind="rack", id="rack/r1"),)
    cell.blame("unknown", culprits=rack, victims=("node/n1", "node/n3"))
    assert cell.last(QuiesceDecided).dead_ranks == (2, 3, 6, 7)


def recovering(cell: Cell) -> str:
    """A recovery that somebody carries out, by its decision."""
    cell.blame("gpu.driver", 3)
    cell.carry_out()
    decided: str = cell.last(RecoveryDecided).decision
    cell.attempt(AttemptStarted, decided, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    return decided


@pytest.mark.parametrize(
    ("fault_class", "signature"), [("gpu.driver", ""), ("gpu.memory", "ecc_contained")]
)
def test_a_fault_that_comes_during_a_recovery_is_answered_after_it(
    fault_class: str, signature: str
) -> None:
    cell = made(ACT, spares=("s0", "s1"))
    decided = recovering(cell)
    cell.blame(fault_class, 5, node="n2", incident="i-2", signature=signature)
    cell.attempt(AttemptCompleted, decided)
    assert cell.last(QuiesceDecided).dead_ranks == (5,)


def test_advice_that_comes_during_a_recovery_is_said_after_it(cell: Cell) -> None:
    decided = recovering(cell)
    cell.blame("network.config", culprits=(NIC,), incident="i-2")
    cell.attempt(AttemptCompleted, decided)
    said = cell.last(RecoveryDecided)
    assert (said.action, said.incident) == ("fix_config", "i-2")


def test_advice_about_a_rank_that_left_is_not_said(cell: Cell) -> None:
    decided = recovering(cell)
    cell.blame("network.config", 3, incident="i-2")
    cell.attempt(AttemptCompleted, decided)
    assert cell.last(RecoveryDecided).decision == decided


def test_a_fault_without_a_rank_to_take_out_keeps_no_advice_from_people(cell: Cell) -> None:
    cell.blame("app.program", node="")
    cell.blame("network.config", culprits=(NIC,), incident="i-2")
    assert cell.last(RecoveryDecided).action == "fix_config"


@pytest.mark.parametrize(
    ("culprits", "jobs", "bad_nodes"),
    [
        ((PORT,), ("llama", "other"), ("n1", "n2")),
        ((NIC, PORT), ("llama",), ("n1", "n2", "n3")),
        ((NIC,), ("llama",), ("n3",)),
        ((PORT,), ("other", "llama"), ()),
    ],
)
def test_a_port_is_bad_for_the_nodes_of_the_members_that_are_named_with_it(
    culprits: tuple[Culprit, ...], jobs: tuple[str, ...], bad_nodes: tuple[str, ...]
) -> None:
    attributed = FaultAttributed(
        at_ns=1,
        reason="",
        incident="i-1",
        revision=0,
        verdict="attributed",
        fault_class="network.link",
        culprits=culprits,
        jobs=jobs,
        ranks=(3, 5, 99),
    )
    fact = Fact(
        seq=2,
        kind="fault_attributed",
        key="i-1",
        id="a/2",
        at_ns=1,
        log_time_ns=1,
        late=False,
        data=attributed,
    )
    assert read_verdict(job(), attributed, fact).bad_nodes == bad_nodes


@pytest.mark.parametrize(
    ("action", "started", "fault_class", "signature", "blamed"),
    [
        ("restart_rank", "3", "gpu.off_bus", "", True),
        ("restart_rank", "3", "gpu.memory", "ecc_contained", False),
        ("restart_rank", "5", "gpu.off_bus", "", False),
        ("shrink", "", "app.program", "", False),
    ],
)
def test_only_a_verdict_that_asks_for_more_blames_a_rank_that_is_started_in_place(
    action: Action, started: str, fault_class: FaultClass, signature: Signature, blamed: bool
) -> None:
    verdict = Verdict(
        incident="i-1",
        revision=0,
        known=True,
        fault_class=fault_class,
        signature=signature,
        target="",
        ranks=(3,),
        bad_nodes=("n1",),
        seq=2,
    )
    blames = job()
    blames.verdicts = [verdict]
    pending = Pending(
        decision="llama/2",
        action=action,
        mode="act",
        epoch=1,
        deadline_ns=1,
        members="0-7" if started else "0-2,4-7",
        removed=() if started else (3,),
        started=started,
        joined=(),
        placements=(),
    )
    assert blames_restarted(HealerState(policy=Policy()), blames, pending) is blamed


def test_a_restart_is_taken_back_when_a_verdict_says_that_the_gpu_of_the_rank_is_dead() -> None:
    cell = made(ACT)
    cell.exit(3)
    cell.carry_out()
    cell.at_once = False
    cell.tick(2)  # waited long enough: decided without the verdict that lies in the log by then
    cell.blame("gpu.off_bus", 3)
    restart = cell.last(RecoveryDecided)
    assert restart.action == "restart_rank"
    cell.at_once = True
    cell.flush()
    shrink = cell.last(RecoveryDecided)
    assert (shrink.action, shrink.removed_ranks) == ("shrink", (3,))
    assert shrink.epoch == restart.epoch + 1
    assert shrink.incident == "i-1"
    cell.tick(2)
    assert len(cell.all(RecoveryDecided)) == 2


def test_a_restart_under_way_is_taken_back_by_a_verdict_too_and_a_swap_is_not() -> None:
    cell = made(ACT, spares=("n4",))
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    restart = cell.last(RecoveryDecided)
    assert restart.action == "restart_rank"
    cell.attempt(AttemptStarted, restart.decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.blame("gpu.off_bus", 3)
    assert cell.last(RecoveryDecided).action == "swap_node"
    cell.blame("gpu.memory", 3, incident="i-2")
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "swap_node"


def test_a_restart_that_would_be_decided_again_is_not_taken_back() -> None:
    cell = made(ACT | {"playbooks": {"gpu.off_bus": ["swap_node", "restart_rank"]}})
    cell.exit(3)
    cell.carry_out()
    cell.tick(2)
    cell.blame("gpu.off_bus", 3)
    cell.tick(2)
    assert [each.action for each in cell.all(RecoveryDecided)] == ["restart_rank"]


def test_ranks_are_named_for_the_first_of_the_jobs_only(cell: Cell) -> None:
    submit_other(cell)
    cell.blame("app.program", 3, node="", jobs=("llama", "other"))
    assert [each.job for each in cell.all(QuiesceDecided)] == ["llama"]


def test_a_late_verdict_reaches_the_jobs_that_wait_for_one(cell: Cell) -> None:
    submit_other(cell)
    cell.exit(3)
    cell.blame("host.memory", culprits=N1, jobs=("other", "llama"), late=True)
    cell.carry_out()
    assert [(each.job, each.action) for each in cell.all(RecoveryDecided)] == [("llama", "shrink")]
    assert len(cell.all(QuiesceDecided)) == 1


def test_a_graver_verdict_is_taken_up_by_a_job_that_waits_for_a_person() -> None:
    cell = made(ACT | {"shrinks_max": 0})
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    assert cell.last(RecoveryWithheld).limit == "shrinks_max"
    cell.blame("app.program", 3, node="", incident="i-2")
    assert cell.last(RecoveryDecided).action == "restart_job"


def test_a_verdict_that_is_refuted_before_a_shadow_decision_leaves_nothing_behind() -> None:
    cell = made(None)
    cell.blame("gpu.off_bus", 3)
    cell.blame("none", revision=1, verdict="no-fault", culprits=())
    cell.tick(2)
    assert cell.kinds == ["QuiesceDecided"]
    seq = cell.exit(5, node="n2")
    assert cell.last(QuiesceDecided).dead_ranks == (5,)
    assert cell.last(QuiesceDecided).incident == "n2/process/1/1"
    assert cell.causes() == (seq,)


def test_a_verdict_that_came_to_no_end_does_not_hide_the_one_behind_it(cell: Cell) -> None:
    cell.blame("unknown", verdict="insufficient", culprits=(), incident="i-0")
    cell.blame("gpu.off_bus", 3)
    assert cell.last(QuiesceDecided).dead_ranks == (3,)


def test_a_revision_that_knows_less_is_no_news(cell: Cell) -> None:
    cell.blame("straggler.host", 3)
    cell.blame("unknown", verdict="insufficient", culprits=(), revision=1)
    cell.exit(5, node="n2")
    assert cell.last(QuiesceDecided).incident == "n2/process/1/1"


def test_the_same_revision_with_another_class_is_no_news(cell: Cell) -> None:
    cell.blame("straggler.host", 3)
    cell.blame("straggler.gpu", 3)
    assert [each.action for each in cell.said] == ["watch"]


def test_bad_nodes_of_all_verdicts_are_left(cell: Cell) -> None:
    cell.apply(ACT | EVERY_NODE)
    cell.blame("gpu.memory", node="n1")
    cell.blame("gpu.memory", node="n3", incident="i-2")
    cell.exit(0, node="n0")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.nodes_out) == ("drain_node", ("n0", "n1", "n3"))


def test_a_verdict_that_was_left_to_a_person_is_settled_by_the_person() -> None:
    cell = made(ACT | {"playbooks": {"nic": ["swap_node", "fix_program"]}})
    cell.blame("nic", 3)
    cell.carry_out()
    assert cell.last(RecoveryDecided).action == "fix_program"
    cell.operate(BreakerReset, "x", limit="fix_program")
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "reinit_communicator"


def test_a_shadow_below_what_was_asked_for_is_said_once() -> None:
    cell = made(None)
    cell.blame("gpu.off_bus", 3)
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
    assert cell.last(RecoveryDecided).action == "shrink"


def test_advice_is_not_forbidden_by_a_pause(cell: Cell) -> None:
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.blame("straggler.gpu", 3)
    assert cell.kinds == ["RecoveryDecided"]


def test_a_shadow_is_not_forbidden_by_a_pause() -> None:
    cell = made(None)
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.exit(3)
    cell.tick(2)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_a_rung_that_may_act_is_forbidden_by_a_pause_though_the_rest_is_shadow() -> None:
    cell = made({"mode_by_action": {"restart_rank": "act"}})
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.exit(3)
    cell.tick(2)
    assert cell.kinds == ["QuiesceDecided", "RecoveryWithheld"]


def test_waits_end_on_the_tick_that_they_name() -> None:
    cell = made({"gather_ns": SECOND_NS, "silence_wait_ns": 2 * SECOND_NS})
    cell.exit(3)
    cell.tick()
    assert cell.all(RecoveryDecided) == []
    cell.tick()
    assert len(cell.all(RecoveryDecided)) == 1
    cell.blame("gpu.off_bus", 5, node="n2", incident="i-2")
    assert len(cell.all(RecoveryDecided)) == 1
    cell.tick()
    assert len(cell.all(RecoveryDecided)) == 2


def test_a_leap_of_log_time_is_no_waiting() -> None:
    cell = made({"silence_wait_ns": 2 * SECOND_NS})
    cell.tick()
    cell.exit(3)
    cell.leap(600)
    assert cell.all(RecoveryDecided) == []
    cell.blame("gpu.off_bus", 3, incident="i-2")
    cell.tick()
    (decided,) = cell.all(RecoveryDecided)
    assert decided.action == "shrink"


def test_a_leap_of_log_time_only_puts_off_what_is_due() -> None:
    cell = made({"silence_wait_ns": 2 * SECOND_NS})
    cell.tick()
    cell.exit(3)
    cell.leap(600)
    cell.tick(2)
    assert len(cell.all(RecoveryDecided)) == 1


def test_a_lost_tick_is_waiting_all_the_same() -> None:
    cell = made({"silence_wait_ns": 2 * SECOND_NS})
    cell.tick()
    cell.exit(3)
    cell.leap(3)
    assert len(cell.all(RecoveryDecided)) == 1


def test_a_spare_that_another_job_left_does_not_join() -> None:
    cell = made(ACT | EVERY_NODE, spares=("s0",))
    submit_other(cell, nodes=("m0", "m1"), spares=("n1", "s1"))
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    culprits = (Culprit(kind="node", id="node/m0"),)
    cell.blame("host.memory", culprits=culprits, jobs=("other",), incident="i-2")
    cell.tick(6)
    decided = cell.last(RecoveryDecided)
    assert (decided.job, decided.joined_nodes) == ("other", ("s1",))


def test_a_rank_that_a_shadow_suspected_is_answered_when_it_ends_and_something_may_be_done() -> (
    None
):
    cell = made(None)
    cell.blame("gpu.off_bus", 3)
    cell.tick()
    assert cell.last(RecoveryDecided).mode == "shadow"
    cell.exit(3)
    cell.tick(10)
    assert len(cell.said) == 2
    cell.apply(ACT)
    cell.exit(5, node="n2")
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).removed_ranks == ()
    assert cell.last(RecoveryDecided).started == "3,5"


@pytest.mark.parametrize("policy", [ACT, {"mode_by_action": {"restart_rank": "approve"}}])
def test_an_exit_behind_a_shadow_of_suspicion_is_new_once_the_policy_acts(
    policy: dict[str, Any],
) -> None:
    cell = made(None)
    cell.blame("gpu.off_bus", 3)
    cell.tick()
    cell.apply(policy)
    cell.exit(3)
    cell.tick(6)
    assert cell.kinds[2:] == ["QuiesceDecided", "RecoveryDecided"]


def test_after_a_recovery_no_shadow_of_before_hides_an_exit() -> None:
    cell = made(None)
    cell.blame("gpu.off_bus", 3)
    cell.tick()
    cell.apply(ACT | EVERY_NODE)
    cell.exit(5, node="n2")
    cell.blame("gpu.off_bus", 5, node="n2", incident="i-2")
    cell.carry_out()
    cell.carry_out()
    cell.apply(ACT)
    cell.exit(3, epoch=1)
    assert cell.last(QuiesceDecided).dead_ranks == (3,)
