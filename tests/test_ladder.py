"""Promises of the ladder: whole replicas, who holds the state, and a reason for every rung."""

from typing import Any

import pytest

from nemesis.processors.healer.ladder import Choice, Fault, JobView, NoRung, choose
from nemesis.processors.healer.replicas import replica_count, replica_of, world_of
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import Placement
from nemesis.schemas.policy import Policy, Step, decode_policy


def submitted(**fields: Any) -> JobSubmitted:
    base: dict[str, Any] = {
        "at_ns": 0,
        "by": "ann",
        "reason": "",
        "job": "llama",
        "nodes": ("n0", "n1", "n2", "n3"),
        "ranks_per_node": 2,
    }
    return JobSubmitted(**(base | fields))


def view(spares: tuple[str, ...] = (), moved: dict[int, str] | None = None, **job: Any) -> JobView:
    made = submitted(**job)
    return JobView(
        submitted=made,
        members=frozenset(range(world_of(made))),
        moved=moved or {},
        spares=spares,
    )


def fault(fault_class: Any, *dead: int, **fields: Any) -> Fault:
    return Fault(fault_class=fault_class, target="job/llama", dead=frozenset(dead), **fields)


def chosen(wrong: Fault, job: JobView, **more: Any) -> Choice:
    answer = choose(wrong, job, Policy(), **more)
    assert isinstance(answer, Choice)
    return answer


def refused(wrong: Fault, job: JobView, **more: Any) -> tuple[str, ...]:
    answer = choose(wrong, job, Policy(), **more)
    assert isinstance(answer, NoRung)
    return answer.refused


def test_ranks_are_numbered_as_megatron_numbers_them() -> None:
    job = submitted(tp=2, pp=2, ranks_per_node=4)
    assert (world_of(job), replica_count(job)) == (16, 4)
    assert [replica_of(job, rank) for rank in range(16)] == [0, 0, 1, 1, 2, 2, 3, 3] * 2


DEGREES: list[dict[str, Any]] = [{"cp": 2}, {"ep": 4}, {"cp": 2, "ep": 4}, {"tp": 2, "ep": 4}]


def test_context_and_expert_groups_stay_whole() -> None:
    assert [replica_of(submitted(cp=2), rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [replica_of(submitted(ep=4), rank) for rank in range(8)] == [0] * 4 + [1] * 4
    assert [replica_count(submitted(**degrees)) for degrees in DEGREES] == [4, 2, 2, 1]
    both = submitted(cp=2, ep=4)
    assert [replica_of(both, rank) for rank in range(8)] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("degrees", [{"tp": 3}, {"tp": 0}, {"nodes": ()}])
def test_degrees_that_do_not_divide_the_world_make_one_replica(degrees: dict[str, Any]) -> None:
    job = submitted(**degrees)
    assert (replica_count(job), replica_of(job, 5)) == (1, 0)


def test_one_replica_cannot_shrink_nor_ask_a_peer() -> None:
    wrong = fault("gpu.off_bus", 3, bad_nodes=frozenset({"n1"}))
    assert refused(wrong, view(("s0",), tp=8), failed=("restart_job",)) == (
        "swap_node: no untouched replica holds the state",
        "shrink: 0 ranks would be left, at least 1 are needed",
        "restart_job: it was tried and failed",
    )


def test_a_job_may_shrink_to_its_last_rank() -> None:
    shrink = chosen(fault("gpu.off_bus", 0), view(nodes=("n0", "n1"), ranks_per_node=1))
    assert (shrink.action, shrink.members) == ("shrink", (1,))


def test_a_restart_moves_to_spares_first_and_shrinks_by_what_is_left() -> None:
    wrong = fault("app.stall", 1, 3, silent_nodes=frozenset({"n0", "n1"}))
    restart = chosen(wrong, view(("s0",)))
    assert (restart.action, restart.joined, restart.nodes_out) == (
        "restart_job",
        ("s0",),
        ("n0", "n1"),
    )
    assert restart.members == (0, 1, 4, 5, 6, 7)
    assert restart.placements == (Placement(node="s0", ranks="0-1"),)
    assert (restart.removed, restart.started) == ((2, 3), restart.members)


@pytest.mark.parametrize(
    ("wrong", "action"),
    [
        (fault("network.link", signature="link_recovered"), "reinit_communicator"),
        (fault("unknown", 3), "restart_rank"),
        (fault("gpu.off_bus", 3), "shrink"),
    ],
)
def test_what_moved_before_stays_where_it_is(wrong: Fault, action: str) -> None:
    choice = chosen(wrong, view(moved={0: "s0", 1: "s0"}))
    assert choice.action == action
    assert choice.placements == (Placement(node="s0", ranks="0-1"),)


@pytest.mark.parametrize(
    ("bad", "silent", "out", "started"),
    [
        ("n1", "", ("n1",), (2, 3, 5)),
        ("", "n2", ("n2",), (3, 4, 5)),
        ("n1", "n2", ("n1", "n2"), (2, 3, 4, 5)),
        ("n0", "n3", ("n1", "n2"), (2, 3, 4, 5)),
    ],
)
def test_a_rank_that_gave_up_on_a_sound_node_starts_again_where_it_was(
    bad: str, silent: str, out: tuple[str, ...], started: tuple[int, ...]
) -> None:
    wrong = fault("nic", 3, 5, bad_nodes=frozenset({bad}), silent_nodes=frozenset({silent}))
    swap = chosen(wrong, view(("s0", "s1")))
    assert (swap.action, swap.nodes_out, swap.started) == ("swap_node", out, started)
    joined = ("s0", "s1")[: len(out)]
    assert swap.joined == joined
    assert {each.node: each.ranks for each in swap.placements} == {
        spare: {"n1": "2-3", "n2": "4-5"}[node] for spare, node in zip(joined, out, strict=True)
    }


def test_a_rank_that_gave_up_is_no_peer_that_holds_the_state() -> None:
    wrong = fault("nic", 0, 1, bad_nodes=frozenset({"n0"}))
    job = view(("s0",), nodes=("n0", "n1"), ranks_per_node=1)
    assert chosen(wrong, job).refused[0] == "swap_node: no untouched replica holds the state"


def test_a_spare_that_would_stay_empty_does_not_join() -> None:
    wrong = fault("app.stall", silent_nodes=frozenset({"n0", "n1"}))
    restart = chosen(wrong, view(("s0",), tp=4, ranks_per_node=2))
    assert (restart.joined, restart.members) == ((), (4, 5, 6, 7))


def test_a_spare_at_fault_or_silent_is_not_used() -> None:
    wrong = fault("gpu.off_bus", 3, bad_nodes=frozenset({"n1", "s0"}))
    assert chosen(wrong, view(("s0", "s1"))).joined == ("s1",)


def test_sound_nodes_that_a_shrink_leaves_empty_are_not_out() -> None:
    shrink = chosen(fault("gpu.off_bus", 3), view(tp=2, pp=2))
    assert (shrink.removed, shrink.nodes_out) == ((2, 3, 6, 7), ("n1",))


@pytest.mark.parametrize("unsound", ["bad_nodes", "silent_nodes"])
def test_unsound_nodes_that_a_shrink_leaves_empty_are_out(unsound: str) -> None:
    wrong = fault("gpu.off_bus", 3, **{unsound: frozenset({"n0", "n3"})})
    assert chosen(wrong, view(tp=2, pp=2)).nodes_out == ("n1", "n3")


def test_draining_a_node_without_ranks_leaves_the_job_alone() -> None:
    drain = chosen(fault("gpu.memory", bad_nodes=frozenset({"n9"})), view())
    assert drain == Choice(action="drain_node", target="job/llama")


def test_draining_takes_every_bad_node_with_ranks_and_every_home_of_a_dead_one() -> None:
    drain = chosen(fault("gpu.memory", 0, bad_nodes=frozenset({"n1", "n9"})), view())
    assert (drain.nodes_out, drain.target) == (("n0", "n1"), "node/n0")
    assert (drain.removed, drain.members) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_a_rank_is_not_restarted_without_a_peer_nor_on_a_node_that_is_at_fault_itself() -> None:
    alone = chosen(fault("unknown", 3), view(tp=8))
    assert alone.refused == (
        "restart_rank: no untouched replica holds the state",
        "shrink: 0 ranks would be left, at least 1 are needed",
    )
    at_fault = Fault(fault_class="unknown", target="node/n1", dead=frozenset({3}))
    assert chosen(at_fault, view()).refused == ("restart_rank: node/n1 itself is at fault",)


def test_draining_the_node_that_the_job_cannot_do_without_is_refused() -> None:
    wrong = fault("gpu.memory", 3, bad_nodes=frozenset({"n1"}))
    assert refused(wrong, view(world_min=8)) == (
        "drain_node: 6 ranks would be left, at least 8 are needed",
    )


def test_a_rung_that_leaves_the_dead_dead_is_not_enough() -> None:
    wrong = fault("straggler.gpu", 3)
    restart = chosen(wrong, view())
    assert (restart.action, restart.refused) == (
        "restart_rank",
        ("cordon_node: ranks are dead and would stay so",),
    )
    regroup = chosen(fault("network.link", 3, signature="link_recovered"), view())
    assert regroup.refused[0] == "reinit_communicator: ranks are dead and would stay so"


def test_without_a_named_rank_only_the_whole_job_can_be_restarted() -> None:
    restart = chosen(fault("unknown"), view())
    assert restart.action == "restart_job"
    assert restart.refused == ("restart_rank: no rank is named", "shrink: no rank is named")
    swap = chosen(fault("nic"), view())
    assert swap.refused[0] == "swap_node: no rank is named"


@pytest.mark.parametrize("action", ["cordon_node", "drain_node", "reset_gpu", "reboot_node"])
def test_a_protected_node_refuses_what_is_done_to_the_node_itself(action: Any) -> None:
    wrong = fault("straggler.gpu", bad_nodes=frozenset({"n9"}))
    policy = Policy(playbooks={"straggler.gpu": (action,)})
    answer = choose(wrong, view(), policy, protected=("n9",))
    assert answer == NoRung(wanted=action, refused=(f"{action}: node n9 is protected",))


def test_a_drain_is_refused_where_it_starts_ranks_of_a_protected_node_anew() -> None:
    drain = fault("gpu.memory", 0, bad_nodes=frozenset({"n1"}))
    answer = choose(drain, view(), Policy(), protected=("n2",))
    assert answer.refused[0] == "drain_node: node n2 is protected"


def test_a_step_is_taken_where_its_conditions_are_just_met() -> None:
    step = Step(action="shrink", world_min=6, ranks_lost_max=2, nodes_out_max=1)
    policy = Policy(playbooks={"gpu.off_bus": (step,)})
    answer = choose(fault("gpu.off_bus", 2, 3), view(), policy)
    assert isinstance(answer, Choice)
    assert (len(answer.members), answer.nodes_out) == (6, ("n1",))


def test_what_leaves_a_job_alone_leaves_it_all_its_ranks() -> None:
    policy = Policy(playbooks={"straggler.gpu": (Step(action="cordon_node", world_min=8),)})
    answer = choose(fault("straggler.gpu"), view(), policy)
    assert isinstance(answer, Choice)


def test_a_protected_node_refuses_to_leave_to_join_and_to_stop_a_living_rank() -> None:
    swap = chosen(fault("gpu.off_bus", 3), view(("s0",)), protected=("s0",))
    assert swap.refused == ("swap_node: node s0 is protected",)
    assert refused(fault("gpu.off_bus", 2, 3), view(), protected=("n1",)) == (
        "swap_node: 1 spare nodes are needed, 0 are there",
        "shrink: node n1 is protected",
        "restart_job: node n1 is protected",
    )
    drain = fault("gpu.memory", 0, bad_nodes=frozenset({"n1"}))
    assert refused(drain, view(), protected=("n0",)) == ("drain_node: node n0 is protected",)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b'{"silence_wait_ns": 0, "gather_ns": 0}', "silence_wait_ns must be above 0"),
        (b'{"gather_ns": 2000000000}', "gather_ns must not be above silence_wait_ns"),
        (b'{"hold_timeout_ns": 1}', "hold_timeout_ns must not be below silence_wait_ns"),
        (b'{"doubt_wait_ns": 1}', "doubt_wait_ns must not be below silence_wait_ns"),
        (b'{"nodes_out_share_max_ppm": 1000001}', "must be at most 1000000, the whole cluster"),
        (b'{"world_min": 0}', "world_min must be at least 1"),
        (b'{"forecast_window_ns": 0}', "forecast_window_ns must be above 0: a limit on no time"),
        (b'{"nodes_out_window_ns": 0}', "nodes_out_window_ns must be above 0"),
        (b'{"playbooks": {"nic": []}}', "playbooks.nic must name at least one action"),
        (b'{"mode": "act", "mode_by_action": {"shrink": "shadow"}}', "a job would be held"),
        (b'{"nodes_out_mx": 1}', "unknown field `nodes_out_mx`"),
        (b'{"mode": "kill"}', "Invalid enum value 'kill'"),
        (b"{", "policy: "),
    ],
)
def test_a_policy_that_cannot_hold_says_why(document: bytes, sentence: str) -> None:
    with pytest.raises(MalformedFactError, match=sentence):
        decode_policy(document)


def test_a_policy_says_nothing_by_default_and_may_act_on_one_rung() -> None:
    policy = decode_policy(b'{"mode_by_action": {"shrink": "act"}}')
    assert (policy.mode, policy.mode_of("shrink"), policy.mode_of("swap_node")) == (
        "shadow",
        "act",
        "shadow",
    )
