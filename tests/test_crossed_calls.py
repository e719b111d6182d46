"""Promises of calls in another order: the cycle is found, and who broke the order or nobody named.

Digests are those of simulated recorders: jobs of any layout in which one rank calls two of its
groups the other way round, or in which something else holds all others up.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.attribution.collectives import judge_collectives
from nemesis.processors.attribution.crossed_calls import crossed_calls
from nemesis.processors.attribution.wait_graph import Seen, groups_of
from nemesis.producers.origin import Origin
from nemesis.schemas.components import rank as rank_name
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.recorder import recorded
from nemesis.sim.offline import run_offline
from nemesis.sim.topology.cluster_file import load_cluster
from tests.planned import planned
from tests.simulated_jobs import MS, SECOND, job_of, trained

LATER_NS = 60 * SECOND
LAYOUTS: list[dict[str, Any]] = [
    {"tp": 2},
    {"tp": 8},
    {"pp": 2},
    {"cp": 2},
    {"ep": 8},
    {"tp": 4, "pp": 2},
    {"tp": 2, "ep": 2},
    {"tp": 2, "ep": 4, "pp": 2},
    {"tp": 2, "pp": 4, "chunks": 2},
]


def seen_of(job: Job) -> dict[int, Seen]:
    """What each rank's recorder holds a while later."""
    trained(job, LATER_NS)
    facts = (recorded(Origin("n0", start_ns=0), job, rank, LATER_NS) for rank in job.ranks)
    return {
        each.rank: Seen("f", 1, each.node, LATER_NS, 0, each.entry_count, False, each.groups)
        for each in facts
    }


@settings(max_examples=40)
@given(st.sampled_from(LAYOUTS), st.integers(0, 15), st.integers(2_000, 2_950))
def test_who_calls_two_groups_in_another_order_is_named_or_nobody(
    layout: dict[str, Any], rank: int, at_ms: int
) -> None:
    job = trained(job_of(2, **layout), at_ms * MS)
    job.stray(rank, "order")
    found = judge_collectives(job.name, seen_of(job))
    assert found is not None
    assert found.fault_class == "desync"
    assert "wait for each other in different groups" in found.reason
    assert f" {rank}," in found.reason or f" {rank} " in found.reason
    assert set(found.culprits) <= {rank_name(job.name, rank)}


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != {"tp": 2, "ep": 2}])
def test_who_has_the_order_of_most_is_not_named(layout: dict[str, Any]) -> None:
    job = trained(job_of(2, **layout), 2_300 * MS)
    job.stray(5, "order")
    found = judge_collectives(job.name, seen_of(job))
    assert found is not None
    assert found.culprits == (rank_name(job.name, 5),)


def test_who_left_the_order_is_named_though_many_recorders_were_not_read() -> None:
    job = trained(job_of(2, tp=2), 2_300 * MS)
    job.stray(5, "order")
    whole = seen_of(job)
    found = judge_collectives(job.name, {rank: whole[rank] for rank in (0, 4, 5, 9, 12)})
    assert found is not None
    assert (found.fault_class, found.culprits) == ("desync", (rank_name(job.name, 5),))
    assert "ranks 4, 5 of" in found.reason


@settings(max_examples=40)
@given(st.sampled_from(LAYOUTS), st.integers(0, 15), st.sets(st.integers(0, 15), max_size=12))
def test_nobody_else_is_named_for_the_order_whoever_was_not_read(
    layout: dict[str, Any], rank: int, unread: set[int]
) -> None:
    job = trained(job_of(2, **layout), 2_300 * MS)
    job.stray(rank, "order")
    seen = {each: own for each, own in seen_of(job).items() if each not in unread}
    found = crossed_calls(job.name, seen, groups_of(seen))
    assert found is None or set(found.culprits) <= {rank_name(job.name, rank)}


def test_of_two_who_share_all_groups_nobody_can_say_who_broke_the_order() -> None:
    job = trained(job_of(2, tp=2, ep=2), 2_300 * MS)
    job.stray(5, "order")
    found = judge_collectives(job.name, seen_of(job))
    assert found is not None
    assert (found.verdict, found.culprits) == ("class-only", ())


def test_a_live_run_ends_in_a_verdict_that_names_the_cycle_and_its_breaker(tmp_path: Path) -> None:
    cluster = load_cluster()
    cluster = replace(cluster, jobs=(replace(cluster.job, nodes=4, tp=4, pp=2),))
    desync = scenario_named("desync")
    inverts = replace(desync, faults=(planned("desync", after_s=8.0, rank=5, differs_in="order"),))
    run = run_offline(cluster, inverts, seed=7, folder=tmp_path)
    said = [each.data for each in run.facts if isinstance(each.data, FaultAttributed)]
    assert [each.id for each in said[-1].culprits] == ["rank/llama/5"]
    assert "ranks 4, 5, 6, 7, 20, 21, 22, 23 of llama wait for each other" in said[-1].reason
    assert {"rank/llama/4", "rank/llama/20"} <= set(said[-1].victims)
    assert run.score.passed


@settings(max_examples=40)
@given(
    st.sampled_from(LAYOUTS),
    st.sampled_from(["stick", "halt", "blind"]),
    st.integers(0, 15),
    st.integers(2_000, 2_950),
    st.sets(st.integers(0, 15), max_size=8),
)
def test_ranks_that_keep_the_order_wait_for_each_other_in_no_cycle(
    layout: dict[str, Any], what: str, rank: int, at_ms: int, unread: set[int]
) -> None:
    job = trained(job_of(2, **layout), at_ms * MS)
    getattr(job, what)(rank)
    if what == "blind":
        job.halt(rank)
    seen = {each: own for each, own in seen_of(job).items() if each not in unread}
    assert crossed_calls(job.name, seen, groups_of(seen)) is None
