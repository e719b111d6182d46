"""Promises of several jobs on one cluster: each has its ranks, its faults and its recovery."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nemesis.schemas.done import AttemptCompleted
from nemesis.sim.faults.scenario import Expect, scenario_named
from nemesis.sim.faults.symptoms import Effect, SwitchLost, SwitchReturned, Symptom
from nemesis.sim.offline import run_offline
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.fabric import FabricModel
from nemesis.sim.truth.ledger import MembershipFormed

SECOND = 1_000_000_000
ONE = load_cluster()


def two_jobs() -> Cluster:
    first = replace(ONE.job, name="llama", nodes=4, world_min=16)
    second = replace(ONE.job, name="qwen", nodes=4, world_min=16, step_ms=600, tp=8, pp=2)
    return replace(ONE, jobs=(first, second))


def test_each_job_has_its_own_ranks_on_its_own_nodes(tmp_path: Path) -> None:
    cluster = two_jobs()
    simulation = Simulation(cluster, (), seed=7, folder=tmp_path, start_ns=0)
    for second in range(1, 21):
        simulation.advance(second * SECOND, lambda node: True)
    llama, qwen = simulation.jobs["llama"], simulation.jobs["qwen"]
    assert {rank.node for rank in qwen.ranks.values()} == {"n005", "n006", "n007", "n008"}
    assert qwen.step > llama.step > 0


@pytest.mark.parametrize("spines_count", [1, 2])
def test_a_lost_spine_parts_leaves_only_where_none_is_left_between_them(
    tmp_path: Path, spines_count: int
) -> None:
    job = replace(ONE.job, nodes=4, world_min=8)
    fabric = FabricModel(kind="fat-tree", nodes_per_leaf=2, spines=spines_count)
    cluster = replace(ONE, jobs=(job,), fabric=fabric)
    lost = cluster.switches[-1]
    turned = symptoms((2.0, SwitchLost(lost)), (30.0, SwitchReturned(lost)))
    simulation = Simulation(cluster, (), seed=7, folder=tmp_path, start_ns=0, defects=turned)
    steps: list[int] = []
    for second in range(1, 51):
        simulation.advance(second * SECOND, lambda node: True)
        steps.append(simulation.job.step)
    assert (steps[9] == steps[28]) is (spines_count == 1)
    assert steps[49] > steps[30]


def symptoms(*effects: tuple[float, Effect]) -> list[Symptom]:
    return [Symptom(round(at_s * SECOND), "n001", effect) for at_s, effect in effects]


def test_a_death_in_one_job_is_recovered_there_and_the_other_goes_on(tmp_path: Path) -> None:
    cluster = two_jobs()
    scenario = scenario_named("rank-exit")
    fault = replace(scenario.faults[0], node="n006")
    scenario = replace(scenario, faults=(fault,), expect=Expect())
    run = run_offline(cluster, scenario, seed=7, folder=tmp_path)
    done = [fact.data for fact in run.facts if isinstance(fact.data, AttemptCompleted)]
    assert {each.job for each in done} == {"qwen"}
    formed = [each for each in run.truths if isinstance(each, MembershipFormed)]
    assert {each.job for each in formed if each.epoch > 0} == {"qwen"}
