"""Promises of how a scenario plans faults: patterns, repetition, rates, right answers."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.planned import KINDS, FaultPlanned
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.topology.cluster_file import load_cluster
from tests.kind_runs import CLUSTER as SMALL

CLUSTER = load_cluster()
DAY_S = 86_400.0


def plan(kind: str, seed: int = 7, *, lasts_s: float = 0.0, **fields: Any) -> list[Fault]:
    document = {"kind": kind, "after_s": 5.0, **fields}
    planned: FaultPlanned = msgspec.convert(document, FaultPlanned)
    return plan_faults(CLUSTER, [planned], seed, lasts_s=lasts_s)


def test_a_pattern_of_nodes_leaves_the_choice_among_them_to_the_seed() -> None:
    struck = {plan("xid79", seed, node="n01*")[0].node for seed in range(60)}
    assert struck == {node for node in CLUSTER.node_names if node.startswith("n01")}


def test_a_pattern_of_switches_strikes_what_is_plugged_into_them() -> None:
    for seed in range(20):
        (fault,) = plan("nic-flap", seed, switch="leaf02")
        port = CLUSTER.peer_of
        assert any(
            port(each.port).endswith(fault.culprit.partition("/")[2])
            for each in CLUSTER.ports_of("leaf02")
        )


def test_any_of_a_rack_is_a_node_in_that_rack() -> None:
    rack = CLUSTER.racks[1]
    struck = {plan("cpu-steal", seed, rack=rack)[0].node for seed in range(40)}
    assert struck <= set(CLUSTER.nodes_of_rack(rack))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"node": "x*"}, r"fault.node: 'x\*': no such node"),
        ({"switch": "leaf99"}, r"fault.switch: 'leaf99': no node"),
        ({"rack": "rack99"}, r"fault.rack: 'rack99': none of these"),
        ({"node": "n001", "gpu": 9}, r"fault.gpu or nic: 9: a node has 8"),
    ],
)
def test_a_pattern_that_nothing_matches_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadScenarioError, match=says):
        plan("xid79", **fields)


def test_a_fault_that_repeats_strikes_at_its_times_and_elsewhere() -> None:
    faults = plan("xid48", times=5, every_s=30.0)
    assert [each.began_ns // 1_000_000_000 for each in faults] == [5, 35, 65, 95, 125]
    assert len({each.culprit for each in faults}) > 1


def test_a_rate_gives_as_many_faults_as_it_says_within_sampling_error() -> None:
    counts = [len(plan("xid79", seed, per_node_day=2.0, lasts_s=DAY_S / 4)) for seed in range(200)]
    mean = 2.0 * len(CLUSTER.node_names) / 4
    assert abs(sum(counts) / len(counts) - mean) < 3 * (mean / len(counts)) ** 0.5
    assert len(Counter(counts)) > 5


def test_a_rate_strikes_only_within_the_run_and_in_order() -> None:
    faults = plan("xid79", per_node_day=200.0, lasts_s=600.0)
    times = [each.began_ns for each in faults]
    assert times == sorted(times)
    assert times[0] >= 5 * 10**9
    assert times[-1] < 600 * 10**9


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_needs_nothing_but_its_name_and_a_time(kind: str) -> None:
    planned: FaultPlanned = msgspec.convert({"kind": kind, "after_s": 1.0}, FaultPlanned)
    (fault,) = plan_faults(SMALL, [planned], seed=3)
    assert fault.culprit
    assert bool(fault.components) == (planned.answer != "nothing")
    assert bool(fault.classes) == bool(fault.actions) == bool(fault.components)


def test_a_right_answer_of_ones_own_is_taken_in_place_of_the_kinds() -> None:
    right = {"classes": ["nic"], "components": ["{node}"], "actions": ["watch"]}
    (fault,) = plan("xid79", right=right)
    assert fault.components == (f"node/{fault.node}",)
    assert fault.actions == ("watch",)
    assert plan("xid79", right="nothing")[0].components == ()
