"""Promises of faults on every kind of node: planned on each, found where a NIC serves two GPUs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.schemas.facts import decode_observation
from nemesis.schemas.observed import SampleTaken
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.scenario import ANYTHING, Scenario
from nemesis.sim.offline import run_offline
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import cluster_of
from nemesis.sim.topology.node import node_kinds
from tests.clusters import JOB

KINDS = tuple(each.__struct_config__.tag for each in FaultPlanned.__args__)


def cluster(kind: str) -> Cluster:
    return cluster_of(
        {
            "cluster": {"name": "x", "nodes": 8, "sample_period_ms": 1000, "rack_sizes": [4, 4]},
            "node": {"kind": kind},
            "fabric": {"kind": "fat-tree", "nodes_per_leaf": 2, "spines": 2},
            "job": {**JOB, "nodes": 6},
        }
    )


def planned(kind: str, **fields: Any) -> FaultPlanned:
    document = {"kind": kind, "after_s": 8.0, **fields}
    converted: FaultPlanned = msgspec.convert(document, FaultPlanned)
    return converted


@pytest.mark.parametrize("kind", sorted(node_kinds()))
def test_every_fault_can_be_planned_on_every_kind_of_node(kind: str) -> None:
    of = cluster(kind)
    for at, name in enumerate(KINDS):
        (fault, *_) = plan_faults(of, [planned(name)], seed=at)
        assert fault.symptoms or fault.culprit, name


def test_a_nic_of_two_gpus_is_named_and_both_its_ranks_are_served_by_it(tmp_path: Path) -> None:
    of = cluster("a100-4nic")
    fault = planned("nic-flap", node="n002", nic=3)
    scenario = Scenario(name="t", title="t", faults=(fault,), expect=ANYTHING, duration_s=60.0)
    run = run_offline(of, scenario, seed=5, folder=tmp_path)
    (placed,) = plan_faults(of, [planned("nic-down", node="n002", nic=3)], seed=5)
    assert placed.lost_ranks == (14, 15)
    assert run.score.faults[0].named == ("link/n002/rdmap160s27",)
    samples = (
        decode_observation("sample", each.payload)
        for each in run.records
        if each.subject.endswith(".n002.sample")
    )
    counts = {(each.gpu_count, each.nic_count) for each in samples if isinstance(each, SampleTaken)}
    assert counts == {(8, 4)}
