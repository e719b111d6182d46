"""Promises of an agent's judgement: a later plan counts, the same one twice changes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.actors.following import Deed, deeds, judge, local_ranks
from nemesis.schemas.plans import Placement, Plan, PlanKind, order_of
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.jobs.job import Job
from nemesis.sim.topology.cluster_file import load_cluster

CLUSTER = load_cluster()
NODE = "n003"
RANKS = CLUSTER.ranks_of(NODE)
SECOND = 1_000_000_000


def plan(kind: PlanKind, epoch: int, **more: Any) -> Plan:
    return Plan(job="llama", epoch=epoch, kind=kind, **more)


def outcome(new: Plan, last: Plan | None) -> str:
    return judge(new, node=NODE, boot_id="b1", last=last)[0]


def test_a_first_plan_is_accepted_and_the_same_again_is_a_repetition() -> None:
    hold = plan("hold", 0)
    assert outcome(hold, None) == "accepted"
    assert outcome(hold, hold) == "repeated"


@given(*(st.tuples(st.integers(0, 5), st.sampled_from(["hold", "membership", "stop"])),) * 2)
def test_only_a_later_plan_is_accepted(
    first: tuple[int, PlanKind], second: tuple[int, PlanKind]
) -> None:
    last, new = plan(first[1], first[0]), plan(second[1], second[0])
    here, there = order_of(*second), order_of(*first)
    expected = "accepted" if here > there else "repeated" if here == there else "stale"
    assert outcome(new, last) == expected


def test_other_members_for_an_epoch_that_is_taken_are_refused() -> None:
    last = plan("membership", 1, members="0-110")
    assert outcome(plan("membership", 1, members="0-109"), last) == "refused"


def test_a_plan_for_another_boot_is_refused_and_one_for_this_boot_is_not() -> None:
    assert outcome(plan("hold", 0, boot_ids={NODE: "b0"}), None) == "other_boot"
    assert outcome(plan("hold", 0, boot_ids={NODE: "b1", "n004": "x"}), None) == "accepted"


def test_to_observe_is_always_accepted() -> None:
    assert outcome(plan("observe", 0), plan("membership", 9)) == "accepted"


def carry_out(job: Job, todo: list[Deed], told: Plan, members: set[int]) -> None:
    for deed in todo:
        match deed.doing:
            case "hold":
                job.hold(deed.rank)
            case "fence":
                job.fence(deed.rank)
            case "leave":
                job.leave(deed.rank)
            case "join":
                job.join(deed.rank, told.epoch, members, SECOND)
            case "start":
                job.start(deed.rank, NODE, told.epoch, members, SECOND, step=3)


def todo(job: Job, told: Plan) -> list[Deed]:
    return deeds(told, NODE, job.on_node(NODE), RANKS)


@pytest.mark.parametrize("kind", ["hold", "membership", "stop", "observe"])
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(kind: PlanKind) -> None:
    job = Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, 1, start_ns=0)
    dead, moved = RANKS[2], RANKS[5]
    job.kill(dead, -9)
    members = set(range(112)) - {dead}
    told = plan(
        kind,
        0 if kind != "membership" else 1,
        members=format_ranks(members),
        fenced=str(dead),
        started=str(moved),
    )
    first = todo(job, told)
    assert bool(first) == (kind != "observe")
    carry_out(job, first, told, members)
    assert todo(job, told) == []


@given(st.integers(0, 8))
def test_an_agent_that_died_half_way_does_what_is_missing_and_no_more(done: int) -> None:
    job = Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, 1, start_ns=0)
    members = set(range(112)) - {RANKS[0]}
    job.kill(RANKS[0], -9)
    told = plan("membership", 1, members=format_ranks(members), fenced=str(RANKS[0]))
    whole = todo(job, told)
    assert len(whole) == 8
    carry_out(job, whole[:done], told, members)
    assert todo(job, told) == whole[done:]


def test_a_hold_does_not_touch_ranks_of_a_later_epoch() -> None:
    job = Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, 1, start_ns=0)
    for number in RANKS:
        job.join(number, 1, range(112), 0)
    assert todo(job, plan("hold", 0)) == []


def test_a_rank_that_was_started_again_is_not_fenced_for_its_old_life() -> None:
    job = Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, 1, start_ns=0)
    job.start(RANKS[0], NODE, 1, range(112), 0, step=0)
    told = plan("hold", 0, fenced=str(RANKS[0]))
    assert Deed("fence", RANKS[0]) not in todo(job, told)
    assert len(todo(job, told)) == 7


def test_placements_move_ranks_between_nodes() -> None:
    moved = plan("membership", 1, placements=(Placement(node="n015", ranks=format_ranks(RANKS)),))
    assert local_ranks(moved, NODE, RANKS) == frozenset()
    assert local_ranks(moved, "n015", ()) == frozenset(RANKS)
    assert local_ranks(moved, "n004", (24, 25)) == {24, 25}


def test_ranks_that_move_to_another_node_leave_this_one() -> None:
    job = Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, 1, start_ns=0)
    moved = format_ranks(RANKS)
    told = plan(
        "membership",
        1,
        members="0-111",
        started=moved,
        placements=(Placement(node="n015", ranks=moved),),
    )
    assert todo(job, told) == [Deed("leave", rank) for rank in RANKS]
