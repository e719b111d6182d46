"""Promises about what people say: policy, limits, approval, pauses, protection."""

from typing import Any

import pytest

from nemesis.processors.healer.healer import Healer
from nemesis.schemas.decided import (
    PolicyRefused,
    QuiesceDecided,
    RecoveryDecided,
    RecoveryWithheld,
)
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import Culprit
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.observed import InventoryReported
from nemesis.schemas.operated import (
    BreakerReset,
    DecisionApproved,
    DecisionVetoed,
    NodeProtected,
    PauseSet,
    ProcessorActivated,
)
from nemesis.schemas.registry import EVENTS
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS

NODE = {name: Culprit(kind="node", id=f"node/{name}") for name in ("n0", "n1")}
EVERY_NODE = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}


def made(policy: dict[str, Any] | None, **job: Any) -> Cell:
    cell = Cell(policy=policy)
    cell.submit(**job)
    return cell


def lose(cell: Cell, rank: int) -> None:
    """A GPU falls off the bus, and the hold of its job is complete."""
    node = f"n{rank // 2}"
    cell.exit(rank, node=node)
    cell.blame("gpu.off_bus", rank, node=node, incident=f"i-{rank}")
    if isinstance(cell.said[-1], QuiesceDecided) and cell.said[-1].mode == "act":
        cell.carry_out()


def test_without_a_policy_it_decides_records_and_waits_for_nobody() -> None:
    cell = made(None)
    lose(cell, 3)
    cell.tick()
    assert [(type(each).__name__, each.mode) for each in cell.said] == [
        ("QuiesceDecided", "shadow"),
        ("RecoveryDecided", "shadow"),
    ]
    cell.tick(1000)
    assert len(cell.said) == 2
    lose(cell, 5)
    cell.tick()
    assert len(cell.said) == 4
    second = cell.last(RecoveryDecided)
    assert (second.removed_ranks, second.epoch) == ((3, 5), 1)


def test_a_shadow_decision_made_without_a_verdict_is_made_again_with_one() -> None:
    cell = made(None)
    cell.exit(3)
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "restart_rank"
    cell.blame("gpu.off_bus", 3)
    cell.tick(20)
    assert cell.last(RecoveryDecided).action == "shrink"
    assert len(cell.said) == 4


def test_a_rung_may_act_while_the_rest_is_only_recorded() -> None:
    cell = made({"mode_by_action": {"shrink": "act"}})
    lose(cell, 3)
    cell.tick()
    assert [each.mode for each in cell.said] == ["shadow", "act"]
    cell.carry_out()
    lose(cell, 5)
    cell.tick()
    assert cell.last(RecoveryDecided).epoch == 2


def test_in_approval_mode_a_decision_waits_for_a_person_and_then_for_its_outcome() -> None:
    cell = made({"mode": "approve"})
    lose(cell, 3)
    cell.tick()
    decided = cell.last(RecoveryDecided)
    assert [each.mode for each in cell.said] == ["shadow", "approve"]
    assert decided.deadline_ns == cell.now_ns + 900 * SECOND_NS
    cell.operate(DecisionApproved, decided.decision, decision=decided.decision)
    cell.tick(100)
    assert len(cell.said) == 2
    cell.carry_out()
    cell.tick(1000)
    assert len(cell.said) == 2


def test_an_approval_that_does_not_come_expires_loudly() -> None:
    cell = made({"mode": "approve"})
    lose(cell, 3)
    cell.tick(901)
    assert cell.all(RecoveryWithheld) == []
    cell.tick()
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.decision) == ("expired", "llama/2")
    assert withheld.reason == (
        "shrink is due for llama and nobody approved llama/2 in time, so it expired and nothing was"
        " done: a person must look."
    )


def test_what_was_approved_and_nobody_carries_out_is_said_in_other_words() -> None:
    cell = made({"mode": "approve"})
    lose(cell, 3)
    cell.tick()
    cell.operate(DecisionApproved, "llama/2", decision="llama/2")
    cell.tick(902)
    assert cell.last(RecoveryWithheld).limit == "unanswered"


def test_after_a_veto_the_next_rung_is_offered_and_after_the_last_a_person_must_look() -> None:
    cell = made({"mode": "approve"})
    lose(cell, 3)
    cell.tick()
    assert cell.last(RecoveryDecided).action == "shrink"
    cell.operate(DecisionVetoed, "llama/9", decision="llama/9")
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    offered = cell.last(RecoveryDecided)
    assert (offered.decision, offered.action, offered.mode) == ("llama/3", "restart_job", "approve")
    assert offered.rungs_refused[-1] == "shrink: a person forbade it"
    cell.operate(DecisionVetoed, "llama/3", decision="llama/3")
    withheld = cell.last(RecoveryWithheld)
    assert withheld.limit == "vetoed"
    assert withheld.reason == (
        "swap_node is due for llama and a person forbade it, or what comes before it: a person must"
        " look."
    )


def test_a_veto_stands_until_a_person_lets_it_go() -> None:
    cell = made({"mode": "approve", "playbooks": {"gpu.off_bus": ["shrink"]}})
    lose(cell, 3)
    cell.tick()
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    assert cell.last(RecoveryWithheld).limit == "vetoed"
    lose(cell, 5)
    cell.apply({"mode": "approve", "playbooks": {"gpu.off_bus": ["shrink"]}})
    cell.tick(2000)
    assert len(cell.said) == 3
    cell.operate(BreakerReset, "vetoed", limit="vetoed")
    assert cell.last(RecoveryDecided).removed_ranks == (3, 5)


def test_after_a_veto_nothing_acts_by_itself() -> None:
    cell = made(ACT | {"mode_by_action": {"shrink": "approve"}})
    lose(cell, 3)
    assert cell.last(RecoveryDecided).mode == "approve"
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.action, withheld.limit) == ("restart_job", "vetoed")
    cell.tick(2000)
    assert len(cell.said) == 3


def test_a_veto_of_what_is_being_carried_out_comes_too_late() -> None:
    cell = made(ACT)
    lose(cell, 3)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.operate(DecisionVetoed, "llama/2", decision="llama/2")
    cell.attempt(AttemptCompleted, "llama/2")
    lose(cell, 5)
    assert cell.last(RecoveryDecided).epoch == 2


def test_a_refusal_that_was_said_before_the_claim_was_read_is_void() -> None:
    cell = made(ACT)
    lose(cell, 3)
    cell.at_once = False
    cell.tick(61)
    assert cell.last(RecoveryWithheld).limit == "unanswered"
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.at_once = True
    cell.flush()
    cell.attempt(AttemptCompleted, "llama/2")
    lose(cell, 5)
    decided = cell.last(RecoveryDecided)
    assert (decided.epoch, decided.removed_ranks) == (2, (5,))


@pytest.mark.parametrize("scope", ["ALL", "job/llama"])
def test_a_pause_withholds_and_its_end_goes_on_with_the_same_rung(scope: str) -> None:
    cell = made(ACT)
    cell.operate(PauseSet, "pause", scope=scope, paused=True)
    lose(cell, 3)
    cell.tick(2)
    assert cell.last(QuiesceDecided).mode == "shadow"
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.action) == ("paused", "shrink")
    assert withheld.reason == "shrink is due for llama and it is paused: a person must look."
    cell.operate(PauseSet, "pause", scope="job/other", paused=False)
    assert cell.last(RecoveryWithheld).limit == "paused"
    cell.operate(PauseSet, "pause", scope=scope, paused=False)
    decided = cell.last(RecoveryDecided)
    assert (decided.mode, decided.action) == ("act", "shrink")


def test_a_pause_holds_before_the_next_tick() -> None:
    cell = made(ACT)
    cell.exit(3)
    assert cell.last(QuiesceDecided).mode == "act"
    cell.carry_out()
    before_ns = cell.now_ns
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.blame("gpu.off_bus", 3)
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.at_ns) == ("paused", before_ns)
    cell.tick(30)
    assert cell.all(RecoveryDecided) == []


@pytest.mark.parametrize(
    ("mode", "seconds", "limit"), [("act", 61, "unanswered"), ("approve", 901, "expired")]
)
def test_a_decision_whose_time_ran_out_during_a_pause_is_made_again_after_it(
    mode: str, seconds: int, limit: str
) -> None:
    cell = made({"mode": mode})
    lose(cell, 3)
    cell.tick()
    cell.operate(PauseSet, "pause", scope="ALL", paused=True)
    cell.tick(seconds)
    assert cell.last(RecoveryWithheld).limit == limit
    cell.operate(PauseSet, "pause", scope="ALL", paused=False)
    assert cell.last(RecoveryDecided).decision == "llama/3"


def test_a_paused_node_is_not_swapped_out() -> None:
    cell = made(ACT, spares=("s0",))
    cell.operate(PauseSet, "pause", scope="node/n1", paused=True)
    lose(cell, 3)
    assert cell.last(RecoveryWithheld).limit == "paused"


def test_a_protected_node_keeps_its_living_ranks() -> None:
    cell = made(ACT, spares=("s0",))
    cell.operate(NodeProtected, "n1", node="n1", protected=True)
    lose(cell, 3)
    decided = cell.last(RecoveryDecided)
    assert decided.action == "shrink"
    assert decided.rungs_refused == ("swap_node: node n1 is protected",)


def test_a_protected_node_by_policy_and_by_hand_leaves_nothing_but_a_person() -> None:
    cell = made(ACT | {"protected_nodes": ["n0"]}, tp=4)
    cell.operate(NodeProtected, "n1", node="n1", protected=True)
    lose(cell, 3)
    withheld = cell.last(RecoveryWithheld)
    assert withheld.limit == "no_rung"
    assert withheld.rungs_refused == (
        "swap_node: 1 spare nodes are needed, 0 are there",
        "shrink: node n0 is protected",
        "restart_job: node n0 is protected",
    )
    cell.operate(NodeProtected, "n0", node="n0", protected=True)
    assert len(cell.all(RecoveryWithheld)) == 1
    cell.operate(NodeProtected, "n1", node="n1", protected=False)
    assert len(cell.all(RecoveryWithheld)) == 2
    cell.apply(ACT)
    cell.operate(NodeProtected, "n0", node="n0", protected=False)
    assert cell.last(RecoveryDecided).action == "shrink"


def test_a_protected_or_broken_spare_does_not_join() -> None:
    cell = made(ACT | EVERY_NODE, spares=("s0", "s1"))
    cell.operate(NodeProtected, "s0", node="s0", protected=True)
    lose(cell, 3)
    assert cell.last(RecoveryDecided).joined_nodes == ("s1",)


def test_more_shrinks_than_allowed_within_an_hour_are_withheld() -> None:
    cell = made(ACT | EVERY_NODE | {"shrinks_max": 2})
    for rank in (0, 2, 4):
        lose(cell, rank)
        if cell.all(RecoveryWithheld):
            break
        cell.carry_out()
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.target, withheld.incident) == (
        "shrinks_max",
        "job/llama",
        "i-4",
    )
    assert withheld.reason == (
        "shrink is due for llama and it would exceed shrinks_max: a person must look."
    )
    cell.operate(BreakerReset, "x", limit="recoveries_max")
    assert len(cell.all(RecoveryDecided)) == 2
    cell.operate(BreakerReset, "x", limit="shrinks_max")
    assert cell.last(RecoveryDecided).removed_ranks == (4,)


ONE_SHRINK = ACT | EVERY_NODE | {"shrinks_max": 1, "shrinks_window_ns": 100 * SECOND_NS}


def test_an_hour_later_the_shrinks_of_before_do_not_count() -> None:
    cell = made(ONE_SHRINK)
    lose(cell, 0)
    cell.carry_out()
    cell.tick(100)
    lose(cell, 2)
    assert cell.last(RecoveryDecided).removed_ranks == (2,)


def test_a_limit_that_was_reached_stays_so_until_a_person_resets_it() -> None:
    cell = made(ONE_SHRINK)
    lose(cell, 0)
    cell.carry_out()
    cell.tick(99)
    lose(cell, 2)
    assert cell.last(RecoveryWithheld).limit == "shrinks_max"
    cell.tick(100)
    cell.operate(BreakerReset, "x", limit="shrinks")
    cell.apply(ONE_SHRINK)
    assert [each.limit for each in cell.all(RecoveryWithheld)] == ["shrinks_max"] * 2
    assert len(cell.all(RecoveryDecided)) == 1
    cell.operate(BreakerReset, "x", limit="shrinks_max")
    assert cell.last(RecoveryDecided).removed_ranks == (2,)


@pytest.mark.parametrize("limit", ["nodes_out_max", "nodes_out_share_max_ppm"])
def test_a_limit_of_the_cell_stops_every_job_from_taking_nodes_out_and_nothing_else(
    limit: str,
) -> None:
    cell = made(ACT | EVERY_NODE | {limit: 0, "nodes_out_window_ns": 10 * SECOND_NS})
    for node in ("n0", "n1"):  # one node is always allowed out by the share
        for rank in (0, 1) if node == "n0" else (2, 3):
            cell.exit(rank, node=node)
        cell.blame("host.memory", node=node, incident=f"i-{node}", culprits=(NODE[node],))
        cell.carry_out()
        if cell.all(RecoveryWithheld):
            break
        cell.carry_out()
    assert cell.last(RecoveryWithheld).limit == limit
    cell.tick(100)
    cell.apply(ACT | EVERY_NODE)
    assert cell.last(RecoveryWithheld).limit == limit
    cell.operate(BreakerReset, "x", limit=limit)
    assert cell.last(RecoveryDecided).nodes_out


@pytest.mark.parametrize("fault_class", ["gpu.thermal", "straggler.gpu"])
def test_nobody_is_advised_to_cordon_a_protected_node(fault_class: str) -> None:
    cell = made(ACT | {"protected_nodes": ["n1"]})
    cell.blame(fault_class, 3)
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.action, withheld.limit) == ("cordon_node", "no_rung")
    assert withheld.rungs_refused == ("cordon_node: node n1 is protected",)
    cell.exit(0, node="n0")
    assert cell.last(QuiesceDecided).mode == "act"


@pytest.mark.parametrize(
    ("fault_class", "action", "advice"),
    [
        ("straggler.gpu", "cordon_node", "cordon_node at the next checkpoint"),
        ("network.fabric", "fix_fabric", "fix_fabric"),
    ],
)
def test_what_no_actor_does_is_advice_and_says_so(
    fault_class: str, action: str, advice: str
) -> None:
    cell = made(ACT)
    cell.blame(fault_class, 3)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.mode) == (action, "shadow")
    assert decided.reason == (
        f"{fault_class} at gpu/n1/0000:1b:00.0: {advice} is for a person to do,"
        " the job's membership stays as it is."
    )


@pytest.mark.parametrize(("node", "by_policy"), [("n1", False), ("s0", False), ("n1", True)])
def test_a_node_that_is_protected_before_anybody_began_is_left_alone_and_another_way_found(
    node: str, by_policy: bool
) -> None:
    cell = made(ACT, spares=("s0",))
    lose(cell, 3)
    assert cell.last(RecoveryDecided).action == "swap_node"
    if by_policy:
        cell.apply(ACT | {"protected_nodes": [node]})
    else:
        cell.operate(NodeProtected, node, node=node, protected=True)
    cell.tick()
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.decision) == ("protected", "llama/2")
    assert withheld.reason == (
        "swap_node is due for llama and a node that llama/2 touches is protected now: a person must"
        " look."
    )
    decided = cell.last(RecoveryDecided)
    assert (decided.decision, decided.action) == ("llama/3", "shrink")


def test_a_node_that_is_protected_while_it_is_taken_out_comes_too_late() -> None:
    cell = made(ACT, spares=("s0",))
    lose(cell, 3)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.operate(NodeProtected, "n1", node="n1", protected=True)
    cell.tick()
    cell.attempt(AttemptCompleted, "llama/2")
    cell.tick()
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_advice_does_not_undo_what_is_under_way() -> None:
    cell = made(ACT)
    cell.exit(3)
    cell.blame("straggler.gpu", 2)
    cell.carry_out()
    assert cell.last(RecoveryDecided).action == "restart_rank"
    cell.blame("straggler.gpu", 6, node="n3", incident="i-2")
    cell.carry_out()
    cell.tick(5)
    assert [each.action for each in cell.all(RecoveryDecided)] == ["restart_rank", "cordon_node"]


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"spares_min": 2}, "its playbook asks for 2 spare nodes, 1 are there"),
        ({"world_min": 8}, "its playbook asks for 8 ranks after it, 7 would be left"),
        ({"ranks_lost_max": 0}, "its playbook allows 0 lost ranks, 1 are lost"),
        ({"nodes_out_max": 0}, "its playbook allows 0 nodes out of work, 1 would be"),
    ],
)
def test_a_step_whose_condition_does_not_hold_makes_way_for_the_next(
    check: dict[str, int], why: str
) -> None:
    steps = [{"action": "shrink"} | check, "restart_job"]
    cell = made(
        ACT | EVERY_NODE | {"playbooks": {"gpu.off_bus": steps}},
        spares=("s0",),
        ranks_per_node=1,
        nodes=tuple(f"n{at}" for at in range(8)),
    )
    cell.exit(3, node="n3")
    cell.blame("gpu.off_bus", 3, node="n3")
    cell.carry_out()
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.rungs_refused) == ("restart_job", (f"shrink: {why}",))


@pytest.mark.parametrize(
    "check", [{"spares_min": 1}, {"world_min": 7}, {"ranks_lost_max": 1}, {"nodes_out_max": 1}]
)
def test_a_step_whose_condition_just_holds_is_taken(check: dict[str, int]) -> None:
    cell = made(
        ACT | EVERY_NODE | {"playbooks": {"gpu.off_bus": [{"action": "shrink"} | check]}},
        spares=("s0",),
        ranks_per_node=1,
        nodes=tuple(f"n{at}" for at in range(8)),
    )
    cell.exit(3, node="n3")
    cell.blame("gpu.off_bus", 3, node="n3")
    cell.carry_out()
    assert cell.last(RecoveryDecided).action == "shrink"


def test_nodes_that_are_out_already_count_in_a_playbook() -> None:
    steps = [{"action": "shrink", "nodes_out_max": 1}, "restart_rank"]
    cell = made(
        ACT | EVERY_NODE | {"playbooks": {"gpu.off_bus": steps}},
        ranks_per_node=1,
        nodes=tuple(f"n{at}" for at in range(8)),
    )
    for rank in (3, 4):
        cell.exit(rank, node=f"n{rank}")
        cell.blame("gpu.off_bus", rank, node=f"n{rank}", incident=f"i-{rank}")
        cell.carry_out()
        cell.carry_out()
    assert [each.action for each in cell.all(RecoveryDecided)] == ["shrink", "restart_rank"]


def test_a_hold_that_was_begun_is_awaited_longer_than_one_that_nobody_took() -> None:
    cell = made(ACT)
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.tick(4)
    cell.attempt(AttemptStarted, "llama/1", deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.tick(5)
    assert cell.kinds == ["QuiesceDecided"]
    cell.tick()
    assert cell.last(RecoveryDecided).action == "shrink"


def test_a_job_that_recovers_again_and_again_makes_no_progress() -> None:
    cell = made(ACT | EVERY_NODE | {"recoveries_max": 1})
    lose(cell, 0)
    cell.carry_out()
    lose(cell, 2)
    assert cell.last(RecoveryWithheld).limit == "recoveries_max"
    cell.operate(BreakerReset, "x", limit="recoveries_max")
    assert len(cell.all(RecoveryDecided)) == 2


def test_more_nodes_out_than_allowed_within_the_window_are_withheld() -> None:
    cell = made(ACT | EVERY_NODE | {"nodes_out_max": 1}, spares=("s0", "s1"))
    lose(cell, 0)
    cell.carry_out()
    lose(cell, 2)
    assert cell.last(RecoveryWithheld).limit == "nodes_out_max"
    cell.operate(BreakerReset, "x", limit="nodes_out_max")
    assert cell.last(RecoveryDecided).joined_nodes == ("s1",)


def test_a_share_of_the_cluster_may_be_out_and_one_node_always() -> None:
    cell = made(ACT | {"nodes_out_share_max_ppm": 0}, spares=("s0", "s1"))
    lose(cell, 0)
    assert cell.last(RecoveryDecided).nodes_out == ("n0",)
    cell.carry_out()
    lose(cell, 2)
    assert cell.last(RecoveryWithheld).limit == "nodes_out_share_max_ppm"
    cell.operate(BreakerReset, "x", limit="nodes_out_share_max_ppm")
    assert cell.last(RecoveryDecided).nodes_out == ("n1",)


def test_nodes_that_report_themselves_count_for_the_share() -> None:
    cell = made(ACT | {"nodes_out_share_max_ppm": 250_000}, spares=("s0", "s1"))
    for at in (7, 8):
        cell.observe(
            "inventory",
            InventoryReported(node=f"n{at}", start_ns=1, n=1, at_ns=cell.now_ns),
        )
    lose(cell, 0)
    cell.carry_out()
    lose(cell, 2)
    assert cell.all(RecoveryWithheld) == []


def test_the_smallest_world_is_the_larger_of_the_jobs_and_the_policys() -> None:
    for policy, world_min in ((8, 1), (1, 8)):
        cell = made(ACT | {"world_min": policy}, world_min=world_min)
        lose(cell, 3)
        assert cell.last(RecoveryWithheld).rungs_refused[1] == (
            "shrink: 7 ranks would be left, at least 8 are needed"
        )


def test_a_playbook_is_data() -> None:
    cell = made(ACT | {"playbooks": {"gpu.off_bus": ["restart_job"]}})
    lose(cell, 3)
    assert cell.last(RecoveryDecided).action == "restart_job"


def test_a_policy_that_breaks_a_rule_is_refused_and_the_one_before_holds() -> None:
    cell = made(ACT)
    seq = cell.apply({"mode": "act", "world_min": 0})
    assert cell.said == [
        PolicyRefused(
            at_ns=cell.now_ns,
            reason="The policy of ann is not one, the one before it holds.",
            broken="policy: world_min must be at least 1: a job of no ranks is none.",
        )
    ]
    assert seq > 0
    cell.exit(3)
    assert cell.last(QuiesceDecided).mode == "act"


def test_a_decision_that_the_log_cannot_hold_is_left_to_a_person() -> None:
    cell = Cell(policy=ACT, at_once=False)
    cell.submit()
    cell.exit(3)
    cell.held_back.clear()
    for name in ("other", "healer"):
        lost = ConclusionUndeliverable(at_ns=cell.now_ns, reason="", name=name, error="", sha256="")
        cell.event(lost, name)
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided"]
    cell.apply(ACT)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_what_was_said_in_silence_is_not_waited_for() -> None:
    cell = Cell(policy=ACT, active=False)
    cell.submit()
    cell.exit(3)
    cell.tick(3)
    assert cell.said == []
    cell.operate(ProcessorActivated, "healer", name="healer", version=1)
    cell.tick()
    assert cell.kinds == ["QuiesceDecided"]


def test_it_takes_no_settings() -> None:
    with pytest.raises(MalformedFactError, match="its policy is policy_applied"):
        Healer().configure(b'{"mode":"act"}')
    for none in (b"", b"{}"):
        Healer().configure(none)


def test_a_snapshot_of_something_else_is_refused() -> None:
    with pytest.raises(MalformedFactError, match="snapshot of healer"):
        Healer().restore(b"\x01")


def test_it_reads_every_fact_that_can_make_a_decision_void() -> None:
    revising = {
        token
        for token, kind in EVENTS.items()
        if kind.certainty in ("decided", "done") and "job" in kind.struct.__struct_fields__
    }
    assert revising <= set(Healer.reads)


def test_a_claim_for_another_decision_changes_nothing() -> None:
    cell = made(ACT)
    lose(cell, 3)
    cell.attempt(AttemptStarted, "llama/77", deadline_ns=1)
    cell.attempt(AttemptCompleted, "llama/77")
    assert [type(each).__name__ for each in cell.said] == ["QuiesceDecided", "RecoveryDecided"]
    cell.carry_out()
    cell.tick(100)
    assert len(cell.said) == 2
