"""Clusters of any shape for tests: from a few words, or drawn; and the facts that describe them."""

from typing import Any

import msgspec
from hypothesis import reject
from hypothesis import strategies as st

from nemesis.producers.fabric import fabric_inventory_of
from nemesis.producers.inventory import inventory_of
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import FabricInventoryReported, InventoryReported
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import BadClusterError, cluster_of, load_cluster
from nemesis.sim.topology.node import node_kinds

JOB: dict[str, Any] = {**msgspec.to_builtins(load_cluster().job), "nodes": 1, "world_min": 1}


def cluster(
    node: str, nodes: int, fabric: dict[str, Any], rack_sizes: tuple[int, ...] = ()
) -> Cluster:
    """A cluster of one kind of node with one job of one node."""
    return cluster_of(
        {
            "cluster": {
                "name": "test",
                "nodes": nodes,
                "sample_period_ms": 5000,
                "rack_sizes": list(rack_sizes),
            },
            "node": {"kind": node},
            "fabric": fabric,
            "job": JOB,
        }
    )


def fat(node: str = "dgx-h100", nodes: int = 8, **fabric: Any) -> Cluster:
    """Three tiers: two nodes a leaf, two leaves a pod, two spines a pod, four cores."""
    shape = {"nodes_per_leaf": 2, "groups_per_pod": 2, "spines": 2, "cores": 4}
    return cluster(node, nodes, {"kind": "fat-tree", **shape, **fabric})


def inventories(of: Cluster) -> list[InventoryReported]:
    """What the producers of all nodes tell at start."""
    return [
        inventory_of(
            Origin(node, start_ns=1),
            1,
            gpus=of.gpus_of(node),
            nics=of.nics_of(node),
            model=of.node.model,
            rack=of.rack_of(node),
            nvswitches=of.node.nvswitches,
        )
        for node in of.node_names
    ]


def fabric_inventories(of: Cluster) -> list[FabricInventoryReported]:
    """What the collectors of all switches tell at start."""
    return [
        fabric_inventory_of(
            Origin(switch, start_ns=1),
            1,
            switch=f"switch/{switch}",
            tier=of.tier_of(switch),
            transport=of.fabric.transport,
            ports=of.ports_of(switch),
        )
        for switch in of.switches
    ]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any kind of node, fabric and rack, regular or not, up to 12 nodes."""
    nodes = draw(st.integers(1, 12))
    kind = draw(st.sampled_from(sorted(node_kinds())))
    fabric: dict[str, Any] = {"kind": draw(st.sampled_from(["leaf", "rail-optimised", "fat-tree"]))}
    fabric["leaf_ports"] = 768
    fabric["transport"] = draw(st.sampled_from(["infiniband", "roce"]))
    groups = draw(sizes(nodes))
    fabric["leaf_sizes"] = groups
    if fabric["kind"] != "leaf":
        pods = draw(sizes(len(groups)))
        spines = draw(st.sampled_from([1, 2, 4]))
        fabric |= {"pod_sizes": pods, "spines": spines}
        fabric["oversubscription"] = draw(st.sampled_from([1.0, 2.0, 7.0]))
        if len(pods) > 1 or draw(st.booleans()):
            fabric["cores"] = draw(st.sampled_from([1, 2, 4, 8]))
            fabric["core_oversubscription"] = draw(st.sampled_from([1.0, 7.0]))
    racks = tuple(draw(sizes(nodes)))
    try:
        return cluster(kind, nodes, fabric, racks)
    except BadClusterError:  # a core of more ports than there are
        reject()


@st.composite
def sizes(draw: st.DrawFn, total: int) -> list[int]:
    """Positive numbers that sum to a total."""
    found: list[int] = []
    while (left := total - sum(found)) > 0:
        found.append(draw(st.integers(1, left)))
    return found
