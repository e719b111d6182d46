"""Promises of every kind of fault: the log shows what its ledger entry says, and names bystanders.

Each kind runs once on a small cluster, offline and without processors: what is checked is the
evidence, not what anybody makes of it. `python -m tests.fault_kinds` prints what processors say.
"""

import msgspec
import pytest

from nemesis.schemas.components import gpu, node_of
from nemesis.schemas.observed import FabricSampled
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.misset import SETTINGS
from nemesis.sim.faults.planned import KINDS
from nemesis.sim.faults.planned_host import HostMisset
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import KernelLine, RankDies, RankGivesUp, RankPrints
from nemesis.sim.offline import START_NS
from nemesis.sim.params import load_params
from nemesis.sim.truth.evidence import Weigher
from tests.clusters import cluster
from tests.kind_runs import CLUSTER, DEFECTS, SILENCE_S, KindRun, kind_run, planned_of

SECOND = 1_000_000_000
CASCADES = {
    "xid79",
    "nic-dead",
    "switch-down",
    "pause-storm",
    "pause-deadlock",
    "nvlink5-down",
    "nvswitch-fatal",
    "checkpoint-stall",
    "loader-killed",
    "illegal-access",
    "nan-loss",
    "nccl-version",
    "gid-wrong",
    "route-lost",
    "context-error",
}
"""Kinds whose loudest symptom is not on the culprit."""


def shown(kind: str, run: KindRun) -> list[bool]:
    """Of each thing that is expected of a kind, whether that run's log shows it."""
    (fault,) = plan_faults(CLUSTER, [planned_of(kind)], seed=7)
    weigher = Weigher([fault], load_params().truth, start_ns=START_NS)
    for now_ns, fact in run.observations:
        weigher.take(now_ns, fact)
    (weighed,) = weigher.weighings()
    return [at in weighed.delivered for at in range(len(fault.evidence))]


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in DEFECTS])
def test_a_kind_of_fault_leaves_the_evidence_that_its_ledger_entry_expects(kind: str) -> None:
    run = kind_run(kind)
    missing = [e for e, s in zip(run.truth.evidence, shown(kind, run), strict=True) if not s]
    assert missing == []
    assert run.truth.evidence or kind in ("slow-step", "lone-work")


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in DEFECTS])
def test_without_the_fault_the_log_does_not_show_it(kind: str) -> None:
    healthy = kind_run("slow-step", after_s=SILENCE_S)
    evidence = kind_run(kind).truth.evidence
    seen = [e for e, s in zip(evidence, shown(kind, healthy), strict=True) if s and e.decisive]
    assert seen == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_fault_has_a_chain_from_its_root_to_what_is_seen(kind: str) -> None:
    truth = kind_run(kind).truth
    assert truth.culprit
    assert [each.after_ns for each in truth.chain] == sorted(each.after_ns for each in truth.chain)
    told = {truth.culprit, *truth.components, *truth.harmless, *truth.innocent}
    assert truth.chain[0].component in told
    if truth.stalls or truth.lost_ranks:
        assert len(truth.chain) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_is_loud_elsewhere_is_named_as_innocent(kind: str) -> None:
    (fault,) = plan_faults(CLUSTER, [planned_of(kind)], seed=7)
    named = {*fault.innocent, *fault.components, *fault.harmless}
    nodes = {node_of(each) for each in named}
    nodes |= {node for node in CLUSTER.node_names for r in ranks_on(node) if r in named}
    for symptom in fault.symptoms:
        is_loud = isinstance(symptom.effect, KernelLine | RankDies | RankGivesUp | RankPrints)
        if is_loud and symptom.node != fault.node:
            assert symptom.node in nodes, symptom


@pytest.mark.parametrize("kind", ["xid79", "port-down", "row-remap-pending", "pcie-degraded"])
def test_what_is_mended_shows_nothing_any_more_and_its_node_has_another_boot(kind: str) -> None:
    run = kind_run(kind, repair_s=2.0)
    assert run.truth.repaired_ns > run.truth.began_ns
    node = run.truth.node
    told = [each for _, each in run.observations if each.node == node]
    assert len({each.boot_id for each in told}) == 2
    after = [(at, each) for at, each in run.observations if at > run.truth.repaired_ns + SECOND]
    (fault,) = plan_faults(CLUSTER, [planned_of(kind)], seed=7)
    weigher = Weigher([fault], load_params().truth, start_ns=START_NS)
    for now_ns, fact in after:
        weigher.take(now_ns, fact)
    (weighed,) = weigher.weighings()
    assert not [at for at in weighed.delivered if fault.evidence[at].decisive]


def test_a_switch_that_is_mended_tells_its_ports_again() -> None:
    run = kind_run("switch-down", repair_s=4.0)
    polls = [
        each
        for at, each in run.observations
        if isinstance(each, FabricSampled) and at > run.truth.repaired_ns
    ]
    mine = [each for each in polls if each.switch == run.truth.culprit]
    assert mine
    assert all(port.up for port in mine[-1].ports)


def test_a_node_without_power_gives_no_light_to_its_switch_ports() -> None:
    run = kind_run("node-lost", after_s=SILENCE_S)
    seen = {
        port.peer.split("/")[1]: port.up
        for _, each in run.observations
        if isinstance(each, FabricSampled)
        for port in each.ports
        if port.peer.startswith("nic/")
    }
    assert {f"node/{node}" for node, up in seen.items() if not up} == {run.truth.culprit}


def ranks_on(node: str) -> list[str]:
    return [f"rank/{CLUSTER.job.name}/{number}" for number in CLUSTER.ranks_of(node)]


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_both_guilty_and_an_innocent_bystander(kind: str) -> None:
    truth = kind_run(kind).truth
    assert not set(truth.components) & set(truth.innocent)
    assert len(truth.innocent) == len(set(truth.innocent))
    assert set(truth.innocent) or kind not in CASCADES


@pytest.mark.parametrize(
    ("kind", "domain", "switches_count"), [("gb200-nvl72", "rack", 18), ("dgx-b200", "node", 2)]
)
def test_no_line_names_an_nvswitch_that_no_node_sees(
    kind: str, domain: str, switches_count: int
) -> None:
    of = cluster(kind, 18, {"nodes_per_leaf": 6})
    (fault,) = plan_faults(of, [planned_of("nvswitch-fatal")], seed=7)
    _, where, number = fault.culprit.split("/")
    assert where == (of.rack_of(fault.node) if domain == "rack" else fault.node)
    assert int(number) < switches_count
    lines = {
        (each.node, each.effect.text)
        for each in fault.symptoms
        if isinstance(each.effect, KernelLine)
    }
    assert {node for node, _ in lines} == set(of.nodes_of_nvlink(where))
    assert not any("SXid" in text for _, text in lines)
    assert not any(each.decisive for each in fault.evidence)
    gpus = [gpu(node, each.pci) for node in of.nodes_of_nvlink(where) for each in of.gpus_of(node)]
    assert set(gpus) <= set(fault.innocent)


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_every_setting_that_can_be_wrong_is_right_to_name(setting: str) -> None:
    plan = msgspec.convert({"kind": "host-misset", "after_s": 3.0, "setting": setting}, HostMisset)
    (fault,) = plan_faults(CLUSTER, [plan], seed=7)
    assert SETTINGS[setting].component.format(node=fault.node) in fault.components


def test_gpus_that_are_linked_without_a_switch_cannot_lose_one() -> None:
    without = msgspec.structs.replace(CLUSTER.node, nvswitches=(), nvswitch_count=0)
    of = msgspec.structs.replace(CLUSTER, node=without)
    with pytest.raises(BadScenarioError, match="has no NVSwitch"):
        plan_faults(of, [planned_of("nvswitch-fatal")], seed=7)
