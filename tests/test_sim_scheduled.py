"""Promises of simulated jobs that say what they need: the scheduler places them, in log and run."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples

from nemesis.processors.fold import Input
from nemesis.processors.topology.told import Told
from nemesis.schemas.scheduled import JobPlaced
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.offline import run_offline
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import DEFAULT, cluster_of
from nemesis.sim.topology.pool import pool_of
from nemesis.sim.topology.scheduled import UnplacedError
from nemesis.streams.documents import read_toml
from tests.clusters import clusters, fabric_inventories, inventories


def two_jobs(**first: Any) -> Cluster:
    """The built-in cluster, four leaves of four nodes, with two jobs that say what they need."""
    document = read_toml(DEFAULT)
    job = {**document["job"], "world_min": 1}
    document["job"] = [
        {**job, "name": "wide", "nodes": 6, "spec": "TP8_NVL18+DP6", **first},
        {**job, "name": "close", "nodes": 4, "spec": "TP8_NVL18+DP4_IB8@t1"},
    ]
    return cluster_of(document)


@examples(max_examples=20)
@given(clusters())
def test_a_pool_of_what_nodes_and_switches_tell_is_that_of_the_cluster(cluster: Cluster) -> None:
    told = Told()
    for node in inventories(cluster):
        told.take_node(node)
    for switch in fabric_inventories(cluster):
        told.take_switch(switch)
    found, meant = told.pool(), pool_of(cluster)
    assert found.nodes == meant.nodes
    assert found.domains == meant.domains
    assert found.tiers == meant.tiers
    assert (found.gpu_classes, found.gpu_counts) == (meant.gpu_classes, meant.gpu_counts)


def test_jobs_run_where_the_scheduler_of_the_log_puts_them(tmp_path: Path) -> None:
    cluster = two_jobs()
    assert cluster.nodes_of(cluster.jobs[1]) == ("n009", "n010", "n011", "n012")
    run = run_offline(cluster, scenario_named("gpu-off-bus"), seed=7, folder=tmp_path)
    placed = [data for record in run.records
              if isinstance(data := Input(record).decoded(), JobPlaced)]  # fmt: skip
    assert {each.job: each.submission.node_names for each in placed} == {
        job.name: cluster.nodes_of(job) for job in cluster.jobs
    }
    assert all(each.passed for each in run.score.faults), run.score
    assert not run.score.false_alarms
    assert run.replay().verdict == "equal"


def test_a_job_that_has_no_place_is_no_cluster() -> None:
    with pytest.raises(UnplacedError, match="job wide: F1"):
        two_jobs(spec="TP16_NVL18")
    with pytest.raises(UnplacedError, match="job wide: W1"):
        two_jobs(nodes=5, spec="TP8_NVL18+DP6")


def test_jobs_without_a_description_have_the_next_nodes_as_before() -> None:
    plain = two_jobs()
    jobs = tuple(msgspec.structs.replace(job, spec="") for job in plain.jobs)
    other = msgspec.structs.replace(plain, jobs=jobs, places=())
    assert other.nodes_of(other.jobs[1]) == ("n007", "n008", "n009", "n010")
    assert (other.ranks_of("n007"), other.spares[0]) == (tuple(range(8)), "n011")
