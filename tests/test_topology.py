"""Promises of the topology of processors: facts give it, in any order, and nothing else does."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.topology import queries
from nemesis.processors.topology.topology import Topology
from nemesis.schemas.observed import (
    FabricInventoryReported,
    GpuDescribed,
    InventoryReported,
    NicDescribed,
    PortDescribed,
)
from nemesis.sim.topology.cluster import Cluster
from tests.clusters import cluster, clusters, fabric_inventories, fat, inventories

Described = InventoryReported | FabricInventoryReported
GPU = "gpu/n001/0000:1b:00.0"


def told(*facts: Described) -> Topology:
    topology = Topology()
    for fact in facts:
        if isinstance(fact, InventoryReported):
            topology.take_node(fact)
        else:
            topology.take_switch(fact)
    return topology


def topology_of(of: Cluster) -> Topology:
    return told(*inventories(of), *fabric_inventories(of))


def edges(topology: Topology) -> list[tuple[str, str, str, list[str]]]:
    return sorted(
        (lower, upper, data["via"], sorted(map(str, data.get("links", ()))))
        for lower, upper, data in topology.graph.edges(data=True)
    )


def inventory(node: str = "n1", **fields: object) -> InventoryReported:
    return InventoryReported(node=node, start_ns=1, n=1, at_ns=1, **fields)  # type: ignore[arg-type]


@settings(max_examples=25)
@given(clusters())
def test_the_facts_of_a_cluster_give_back_its_links_exactly(of: Cluster) -> None:
    assert topology_of(of).links() == sorted((link.lower, link.upper) for link in of.links())


@settings(max_examples=20)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_facts_and_repetitions_do_not_matter(of: Cluster, random: Random) -> None:
    facts: list[Described] = [*inventories(of), *fabric_inventories(of)]
    mixed = facts + random.choices(facts, k=5)
    random.shuffle(mixed)
    first, second = told(*facts), told(*mixed)
    assert edges(first) == edges(second)
    assert set(first.graph) == set(second.graph)


@settings(max_examples=15)
@given(clusters(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_answers_in_other_names(of: Cluster, random: Random) -> None:
    """Relabelling: nodes and switches are names, nothing is read out of them."""
    names = [*of.node_names, *of.switches]
    others = [f"x{number}" for number in random.sample(range(10_000), len(names))]
    new = dict(zip(names, others, strict=True))

    def renamed(component: str) -> str:
        kind, holder, *rest = component.split("/")
        return "/".join((kind, new.get(holder, holder), *rest))

    facts: list[Described] = [
        replace(
            fact,
            node=new[fact.node],
            nics=tuple(replace(nic, switch_port=renamed(nic.switch_port)) for nic in fact.nics),
            gpus=tuple(
                replace(gpu, nvlink_domain=new.get(gpu.nvlink_domain, gpu.nvlink_domain))
                for gpu in fact.gpus
            ),
        )
        for fact in inventories(of)
    ]
    facts += [
        replace(
            fact,
            switch=renamed(fact.switch),
            ports=tuple(
                PortDescribed(renamed(each.port), renamed(each.peer)) for each in fact.ports
            ),
        )
        for fact in fabric_inventories(of)
    ]
    before, after = topology_of(of), told(*facts)
    assert set(map(renamed, before.graph)) == set(after.graph)
    for name in random.sample(sorted(before.graph), min(10, len(before.graph))):
        assert set(map(renamed, queries.domain_of(before, name))) == set(
            queries.domain_of(after, renamed(name))
        )
        assert {renamed(each): far for each, far in queries.above(before, name).items()} == (
            queries.above(after, renamed(name))
        )


def test_a_gpu_is_followed_to_the_port_of_its_leaf() -> None:
    of = fat()
    topology = topology_of(of)
    route = queries.route(topology, GPU)
    assert route == (GPU, "pcie/n001/pcie0", "nic/n001/mlx5_0", "port/leaf01/1", "switch/leaf01")
    assert queries.gpus_of(topology, "nic/n001/mlx5_0") == (GPU,)
    assert queries.peer_of(topology, "port/leaf01/1") == "nic/n001/mlx5_0"
    uplink = of.peer_of("port/leaf01/17")
    assert queries.peer_of(topology, "port/leaf01/17") == uplink
    assert queries.peer_of(topology, uplink) == "port/leaf01/17"


@pytest.mark.parametrize("kind", ["dgx-a100", "a100-4nic", "gb200-nvl72", "hgx-h100"])
def test_the_nic_of_a_gpu_is_the_one_that_its_kind_gives_it(kind: str) -> None:
    of = cluster(kind, 2, {})
    topology = topology_of(of)
    for at, gpu in enumerate(of.gpus_of("n002")):
        nic = of.nics_of("n002")[of.node.nic_index(at)]
        assert queries.nic_of(topology, f"gpu/n002/{gpu.pci}") == f"nic/n002/{nic.name}"


@pytest.mark.parametrize(
    ("names", "suspect"),
    [
        (("nic/n001/mlx5_0", "nic/n002/mlx5_3"), "switch/leaf01"),
        (("nic/n001/mlx5_0", "nic/n001/mlx5_3"), "node/n001"),
        (("port/leaf01/1", "port/leaf01/9"), "switch/leaf01"),
        (("link/n001/mlx5_0", "link/n002/mlx5_0"), "switch/leaf01"),
        (("link/leaf01/17", "link/leaf02/17"), "switch/spine01"),
        (("node/n001", "node/n003"), "rack/rack01"),
        ((GPU, "gpu/n001/0000:43:00.0"), "domain/n001"),
        ((GPU, "nic/n001/mlx5_0"), "nic/n001/mlx5_0"),
        ((GPU,), GPU),
    ],
)
def test_what_fails_together_is_traced_to_the_narrowest_that_stops_all(
    names: tuple[str, ...], suspect: str
) -> None:
    assert queries.suspects(topology_of(fat()), names)[0] == suspect


def test_what_would_not_stop_them_is_shared_and_no_suspect() -> None:
    topology = topology_of(fat())
    leaves = ("switch/leaf01", "switch/leaf02")
    assert queries.shared(topology, leaves)[:2] == ("switch/spine01", "switch/spine02")
    assert queries.suspects(topology, leaves) == ()
    assert queries.shared(topology, []) == queries.suspects(topology, []) == ()
    assert queries.shared(topology, ["gpu/n9/x", GPU]) == ()


def test_a_component_takes_with_it_what_has_no_other_way() -> None:
    of = fat()
    topology = topology_of(of)
    leaf = queries.domain_of(topology, "switch/leaf01")
    nics = {name for name in leaf if name.startswith("nic/")}
    assert nics == of.cut("switch/leaf01").nics
    assert {name for name in leaf if name.startswith("gpu/")} == {
        name for node in ("n001", "n002") for name in of.cut(f"node/{node}").gpus
    }
    assert queries.domain_of(topology, "switch/spine01") == ("switch/spine01",)
    port = queries.domain_of(topology, "port/leaf01/1")
    assert port == (GPU, "nic/n001/mlx5_0", "port/leaf01/1")
    assert queries.domain_of(topology, "link/leaf01/17") == ("link/leaf01/17",)
    rack = set(queries.domain_of(topology, "rack/rack01"))
    assert of.cut("rack/rack01").nics | of.cut("rack/rack01").gpus < rack
    assert {"node/n004", "nvswitch/n004/3"} <= rack
    assert "node/n005" not in rack
    nvswitch = queries.domain_of(topology, "nvswitch/n001/0")
    assert {name for name in nvswitch if name.startswith("gpu/")} == of.cut("nvswitch/n001/0").gpus


def test_peers_are_of_one_kind_and_alike_in_one_way() -> None:
    railed = {"kind": "rail-optimised", "nodes_per_leaf": 2, "spines": 2}
    topology = topology_of(cluster("dgx-h100", 4, railed))
    nic = "nic/n001/mlx5_5"
    same = tuple(f"nic/n00{at}/mlx5_5" for at in (2, 3, 4))
    assert queries.peers(topology, nic, "rail") == same == queries.peers(topology, nic, "index")
    assert queries.peers(topology, nic, "switch") == ("nic/n002/mlx5_5",)
    assert len(queries.peers(topology, GPU, "node")) == 7
    assert queries.peers(topology, GPU, "nvlink") == queries.peers(topology, GPU, "node")
    assert queries.peers(topology, GPU, "switch") == ("gpu/n002/0000:1b:00.0",)
    assert queries.peers(topology, GPU, "host") == ()
    assert queries.peers(topology, "node/n001", "switch") == ("node/n002",)
    assert queries.peers(topology, "node/n001", "rack") == ("node/n002", "node/n003", "node/n004")
    assert queries.peers(topology, "gpu/n9/x", "rail") == ()


def test_the_nvlink_of_a_rack_is_shared_by_its_trays() -> None:
    topology = topology_of(cluster("gb200-nvl72", 20, {}))
    peers = queries.peers(topology, "gpu/n001/0008:01:00.0", "nvlink")
    assert len(peers) == 71
    ends = ["gpu/n001/0008:01:00.0", "gpu/n018/0019:01:00.0"]
    assert queries.shared(topology, ends)[0] == "domain/rack01"


def test_a_node_that_changed_is_known_as_it_is_now() -> None:
    of = fat()
    topology = topology_of(of)
    (first, *_) = inventories(of)
    moved = replace(
        first,
        rack="rack99",
        gpus=first.gpus[1:],
        nics=(replace(first.nics[0], switch_port=""), *first.nics[1:]),
    )
    topology.take_node(moved)
    assert GPU not in topology.graph
    assert queries.peers(topology, "node/n001", "rack") == ()
    port = "port/leaf01/1"
    assert queries.port_of(topology, "nic/n001/mlx5_0") == port  # its switch still says so
    (leaf, *_) = fabric_inventories(of)
    empty = replace(leaf, ports=(PortDescribed(port), *leaf.ports[1:]))
    topology.take_switch(empty)
    assert queries.port_of(topology, "nic/n001/mlx5_0") == ""
    topology.take_node(first)
    topology.take_switch(leaf)
    assert edges(topology) == edges(topology_of(of))
    assert set(topology.graph) == set(topology_of(of).graph)


def test_a_node_of_an_old_producer_is_known_by_what_it_says() -> None:
    gpus = tuple(GpuDescribed(pci=f"0000:{at}0:00.0", index=at) for at in range(1, 5))
    nics = tuple(NicDescribed(name=f"mlx5_{at}", switch_port=f"port/sw/{at}") for at in range(2))
    topology = told(inventory(gpus=gpus, nics=nics))
    assert queries.nic_of(topology, "gpu/n1/0000:10:00.0") == "nic/n1/mlx5_0"
    assert queries.nic_of(topology, "gpu/n1/0000:40:00.0") == "nic/n1/mlx5_1"
    assert queries.domain_of(topology, "switch/sw")[0] == "gpu/n1/0000:10:00.0"
    assert queries.peers(topology, "gpu/n1/0000:10:00.0", "rail") == ()


def test_nothing_is_known_of_what_nobody_told() -> None:
    topology = told(inventory(nics=(NicDescribed(name="a", switch_port="odd"),)))
    assert topology.links() == []
    assert queries.route(topology, "gpu/n7/0000:10:00.0") == ("gpu/n7/0000:10:00.0",)
    assert queries.domain_of(topology, "switch/x") == ("switch/x",)
    assert queries.peer_of(topology, "port/x/1") == ""
    assert topology.tier("switch/x") == ""
