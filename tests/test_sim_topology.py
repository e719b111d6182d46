"""Promises of the simulated fabric: cables have two ends, ways lead there, cuts are whole."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import encode_observation
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import DEFAULT, BadClusterError, cluster_of, load_cluster
from nemesis.sim.topology.node import node_kinds
from tests.clusters import JOB, cluster, clusters, fabric_inventories, fat, inventories

RAILS = {"kind": "rail-optimised", "nodes_per_leaf": 4, "spines": 4}


def nics(of: Cluster) -> list[str]:
    return [f"nic/{node}/{nic.name}" for node in of.node_names for nic in of.nics_of(node)]


@settings(max_examples=30)
@given(clusters())
def test_both_ends_of_every_cable_name_each_other(of: Cluster) -> None:
    ports = {each.port: each.peer for switch in of.switches for each in of.ports_of(switch)}
    ends = {end: link.name for link in of.links() for end in (link.lower, link.upper)}
    assert len(ends) == 2 * sum(1 for _ in of.links())
    assert set(ends) == {*ports, *nics(of)}
    for port, peer in ports.items():
        assert of.peer_of(port) == peer
        assert ports.get(peer, port) == port
        assert ends[port] == ends[peer]
    plugged = {
        f"nic/{n}/{nic.name}": nic.switch_port for n in of.node_names for nic in of.nics_of(n)
    }
    assert plugged == {peer: port for port, peer in ports.items() if peer.startswith("nic/")}


@settings(max_examples=30)
@given(clusters(), st.data())
def test_a_way_is_an_unbroken_chain_of_cables_and_a_shortest_one(
    of: Cluster, data: st.DataObject
) -> None:
    one, other = (data.draw(st.sampled_from(nics(of))) for _ in range(2))
    way = of.path(one, other)
    assert (way[0], way[-1]) == (one, other)
    assert len(set(way)) == len(way)
    ends = {link.name: {link.lower, link.upper} for link in of.links()}
    for before, link, after in zip(way, way[1:], way[2:], strict=False):
        if link.startswith("link/"):
            assert ends[link] == {before, after}
    switches = [each for each in way if each.startswith("switch/")]
    tiers = [of.tier_of(each.removeprefix("switch/")) for each in switches]
    assert tiers in (
        [],
        ["leaf"],
        ["leaf", "leaf"],
        ["leaf", "spine", "leaf"],
        ["leaf", "spine", "core", "spine", "leaf"],
    )
    assert of.path(one, other) == way


@settings(max_examples=30)
@given(clusters(), st.data())
def test_a_way_goes_around_what_failed_or_there_is_none(of: Cluster, data: st.DataObject) -> None:
    one, other = (data.draw(st.sampled_from(nics(of))) for _ in range(2))
    inner = [each for each in of.path(one, other) if each.startswith(("switch/", "port/", "link/"))]
    if not inner:
        return
    failed = data.draw(st.sampled_from(inner))
    way = of.path(one, other, failed=[failed])
    assert failed not in way
    if of.shape.spines > 1 and len(of.shape.pod_sizes) == 1:
        assert way or {one, other} & of.cut(failed).nics


def test_flows_are_spread_over_all_spines_and_each_keeps_its_way() -> None:
    of = cluster("dgx-h100", 64, {"kind": "rail-optimised", "nodes_per_leaf": 32, "spines": 16})
    ways = [of.path(f"nic/n{at:03d}/mlx5_0", f"nic/n{at + 32:03d}/mlx5_0") for at in range(1, 33)]
    spines = Counter(each for way in ways for each in way if each.startswith("switch/spine"))
    assert sum(spines.values()) == 32
    assert len(spines) > 10


def test_nics_of_a_rail_share_a_leaf_and_those_of_a_node_do_not() -> None:
    of = cluster("dgx-h100", 8, RAILS)
    leaves = {nic.rail: nic.switch_port.split("/")[1] for nic in of.nics_of("n001")}
    assert len(set(leaves.values())) == len(leaves) == 8
    assert {nic.rail: nic.switch_port.split("/")[1] for nic in of.nics_of("n004")} == leaves
    assert not {nic.switch_port.split("/")[1] for nic in of.nics_of("n005")} & set(leaves.values())


def test_a_leaf_has_uplinks_for_its_nics_over_its_oversubscription() -> None:
    for ratio, links in ((1.0, 32), (2.0, 16), (7.0, 8)):
        of = cluster(
            "dgx-h100", 64, {**RAILS, "nodes_per_leaf": 32, "spines": 8, "oversubscription": ratio}
        )
        assert len(of.wiring.uplinks(0)) == links
        assert len(of.ports_of("leaf01")) == 32 + links


def test_a_superpod_has_the_switches_of_its_reference_architecture() -> None:
    """127 DGX H100 in four units of 32: 32 leaves of 64 ports, 16 spines (DGX SuperPOD H100 RA)."""
    of = cluster("dgx-h100", 128, {"kind": "rail-optimised", "spines": 16})
    assert of.wiring.counts == (32, 16, 0)
    assert {len(of.ports_of(switch)) for switch in of.switches} == {64}


def test_the_trays_of_an_nvl72_share_one_nvlink_domain_and_its_switches() -> None:
    of = cluster("gb200-nvl72", 36, {**RAILS, "nodes_per_leaf": 18})
    assert of.racks == ("rack01", "rack02")
    domains = {node: {gpu.nvlink_domain for gpu in of.gpus_of(node)} for node in of.node_names}
    assert domains["n001"] == domains["n018"] == {"rack01"}
    assert domains["n019"] == {"rack02"}
    assert len(of.cut("nvswitch/rack02/17").gpus) == 72
    with pytest.raises(BadNameError, match="nvswitch/rack02/18"):
        of.cut("nvswitch/rack02/18")


def test_a_cut_takes_what_hangs_at_the_component_and_nothing_else() -> None:
    of = fat()
    leaf = of.cut("switch/leaf01")
    assert leaf.nics == {nic for nic in nics(of) if nic.startswith(("nic/n001", "nic/n002"))}
    assert len(leaf.links) == len(of.ports_of("leaf01"))
    assert not leaf.nodes
    spine = of.cut("switch/spine1" if "spine1" in of.switches else "switch/spine01")
    assert not spine.nics
    assert len(spine.links) == len(of.ports_of("spine01"))
    rack = of.cut("rack/rack01")
    assert rack.nodes == {"node/n001", "node/n002", "node/n003", "node/n004"}
    assert len(rack.gpus) == len(rack.nics) == 32
    assert of.cut("port/leaf01/1") == of.cut("link/n001/mlx5_0") == of.cut("nic/n001/mlx5_0")
    assert of.cut("port/leaf01/17").links == {"link/leaf01/17"}
    assert of.cut(of.peer_of("port/leaf01/17")).links == {"link/leaf01/17"}
    assert of.cut("nvswitch/n001/0").gpus == of.cut("node/n001").gpus
    railed = cluster("dgx-h100", 8, RAILS).cut("fabric/rail3")
    assert railed.nics == {f"nic/n{at:03d}/mlx5_5" for at in range(1, 9)}


@pytest.mark.parametrize(
    "name",
    ["switch/leaf99", "port/leaf01/0", "port/leaf01/999", "link/leaf01/x", "nic/n001/mlx5_99",
     "node/n999", "rack/rack99", "gpu/n001/0000:00:00.0", "nvlink/n001/0", "fabric/rail0",
     "rank/x"],
)  # fmt: skip
def test_a_component_that_is_not_there_cuts_nothing_but_is_named(name: str) -> None:
    with pytest.raises(BadNameError, match="the cluster has no"):
        fat().cut(name)


@pytest.mark.parametrize("kind", sorted(node_kinds()))
def test_every_kind_of_node_says_where_its_devices_sit(kind: str) -> None:
    of = cluster(kind, 2, {"leaf_ports": 64})
    gpus, plugged = of.gpus_of("n001"), of.nics_of("n001")
    addresses = {*(each.pci for each in gpus), *(each.pci for each in plugged)}
    assert len(addresses) == len(gpus) + len(plugged)
    assert {each.numa for each in gpus} == {each.numa for each in plugged}
    assert {each.pcie_switch for each in gpus} == {each.pcie_switch for each in plugged}
    assert len({each.name for each in plugged}) == len(plugged)
    assert of.nvswitch_count > 0
    served = [of.node.gpus_of_nic(at) for at in range(len(plugged))]
    assert sorted(gpu for each in served for gpu in each) == list(range(len(gpus)))
    for at, nic in enumerate(plugged):
        assert {gpus[gpu].numa for gpu in served[at]} == {nic.numa}


def test_a_cluster_of_a_hundred_thousand_gpus_fits_the_facts_that_describe_it() -> None:
    of = cluster(
        "dgx-h100",
        12_500,
        {"kind": "rail-optimised", "groups_per_pod": 16, "spines": 32, "cores": 256},
    )
    assert (of.node_names[0], of.node_names[-1]) == ("n00001", "n12500")
    assert of.wiring.counts == (3_128, 800, 256)
    assert sum(len(of.ports_of(switch)) for switch in of.switches[::100]) > 0
    way = of.path("nic/n00001/mlx5_0", "nic/n12500/mlx5_11")
    assert [each.split("/")[1][:4] for each in way if each.startswith("switch/")] == [
        "leaf", "spin", "core", "spin", "leaf",
    ]  # fmt: skip
    largest = max(fabric_inventories(fat(nodes=24)), key=lambda fact: len(fact.ports))
    assert len(encode_observation(largest)) < 64 << 10


def test_the_largest_switch_that_a_file_may_ask_for_fits_one_fact() -> None:
    of = cluster("dgx-h100", 85, {"kind": "fat-tree", "leaf_ports": 768, "spines": 1,
                                  "nodes_per_leaf": 43, "oversubscription": 1.0})  # fmt: skip
    sizes = {len(encode_observation(each)) for each in fabric_inventories(of)}
    assert max(sizes) < 64 << 10
    assert max(len(encode_observation(each)) for each in inventories(of)) < 4 << 10


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"node": {"kind": "dgx-x"}}, r"node.kind: 'dgx-x': expected .*dgx-h100"),
        ({"node": {"kind": "dgx-h100", "gpu_numa": [0]}}, "gpu_numa must have 8 entries or none"),
        ({"node": {"kind": "dgx-h100", "nics": ["18:00.0"] * 3}}, "node.nics"),
        ({"node": {"kind": "dgx-h100", "gpus": ["what"] * 8}}, "'what' is no PCI address"),
        ({"node": {"kind": "dgx-h100", "nodes_per_rack": 0}}, "nodes_per_rack"),
        ({"fabric": {"kind": "fat-tree"}}, "fabric.spines must be positive"),
        ({"fabric": {"spines": 2}}, "fabric.spines and cores need"),
        ({"fabric": {"leaf_sizes": [3, 4]}}, "leaf_sizes must sum to cluster.nodes, 8, not to 7"),
        (
            {"fabric": {"leaf_ports": 32, "nodes_per_leaf": 8}},
            "leaf_ports: 32, but a leaf needs 64",
        ),
        ({"fabric": {"leaf_ports": 9999}}, "leaf_ports must be 1 to 768"),
        ({"fabric": {"oversubscription": 0.0}}, "oversubscription"),
        ({"fabric": {**RAILS, "nodes_per_leaf": 4, "groups_per_pod": 1}}, "several pods"),
        ({"fabric": {**RAILS, "cores": 3}}, "multiple of fabric.spines or divide it"),
        ({"fabric": {"transport": ""}}, "fabric.transport"),
        ({"fabric": {"spines": "two"}}, "fabric.spines: 'two': expected `int`, got `str`"),
        ({"node": {"kind": "dgx-h100", "nics": 3}}, "node: nics: 3: expected `array`"),
        ({"fabric": {"shape": "torus"}}, "unknown field `shape`"),
        ({"cluster": {"name": "x", "nodes": 8, "sample_period_ms": 1, "rack_sizes": [9]}}, "rack_"),
        ({"cluster": {"name": "x", "nodes": 0, "sample_period_ms": 1}}, "cluster.nodes must be"),
        ({"cluster": {"name": "x", "nodes": 8, "sample_period_ms": 1 << 62}}, "sample_period_ms"),
        (
            {"cluster": {"shape": ["superpod-h100"]}},
            r"cluster.shape: \['superpod-h100'\]: expected",
        ),
        ({"cluster": {"shape": "superpod-h100"}, "node": 3}, "node: 3: expected a table"),
        ({"node": {"kind": ["dgx-h100"]}}, "node.kind: .*: expected a100-4nic"),
        ({"job": {**JOB, "grace_s": float("nan")}}, "grace_s must be 0 to a day"),
        ({"job": {**JOB, "step_ms": 1 << 62}}, "job.step_ms, allreduce_ms must be positive"),
        ({"job": {**JOB, "checkpoint_steps": 0}}, "job.checkpoint_steps"),
        ({"job": []}, "job: at least one"),
        ({"job": [JOB, JOB]}, "two jobs of one name"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_one_line(change: dict[str, Any], says: str) -> None:
    document: dict[str, Any] = {
        "cluster": {"name": "x", "nodes": 8, "sample_period_ms": 1000},
        "node": {"kind": "dgx-h100"},
        "fabric": {},
        "job": JOB,
    }
    cluster_of(document)
    with pytest.raises(BadClusterError, match=says) as caught:
        cluster_of({**document, **change})
    assert "\n" not in str(caught.value)


def test_parts_of_a_node_may_be_written_out_or_changed(tmp_path: Path) -> None:
    text = DEFAULT.read_text()
    parts = (
        'model = "own"\ngpu_model = "G"\ngpus = ["01:00.0"]\nnics = ["02:00.0"]\nnic_rate_mbps = 1'
    )
    path = tmp_path / "cluster.toml"
    path.write_text(text.replace('kind = "dgx-h100"', parts).replace("= 64", "= 1"))
    own = load_cluster(path)
    assert [nic.name for nic in own.nics_of("n001")] == ["mlx5_0"]
    assert own.gpus_of("n001")[0].numa == -1
    path.write_text(text.replace('"dgx-h100"', '"dgx-h100"\nnodes_per_rack = 8'))
    assert load_cluster(path).racks == ("rack01", "rack02")
