"""Which places of a cluster no longer reach each other when switches between leaves are lost.

Flows go around a lost spine as long as another one is left, so most losses part nothing. Leaves
that the fabric's description does not connect at all are taken as connected elsewhere.
"""

from collections import Counter
from collections.abc import Collection

from nemesis.sim.jobs.rings import Place
from nemesis.sim.topology.cluster import Cluster


def parts_of(cluster: Cluster, lost: Collection[str]) -> dict[Place, int]:
    """Places that are parted from the largest part of their fabric, and a number for each part.

    `lost`: the names of switches. Who sits on a lost leaf is not parted but cut off.
    """
    whole, left = _components(cluster, ()), _components(cluster, lost)
    leaf_of = {
        (node, gpu): nic.switch_port.split("/")[1]
        for node in cluster.node_names
        for index, nic in enumerate(cluster.nics_of(node))
        for gpu in cluster.node.gpus_of_nic(index)
    }
    there = {place: leaf for place, leaf in leaf_of.items() if leaf in left}
    sizes = Counter((whole[leaf], left[leaf]) for leaf in there.values())
    largest = {before: now for (before, now), _ in reversed(sizes.most_common())}
    numbers = {now: number for number, now in enumerate(sorted(set(left.values())), 1)}
    return {
        place: numbers[left[leaf]]
        for place, leaf in there.items()
        if largest[whole[leaf]] != left[leaf]
    }


def _components(cluster: Cluster, lost: Collection[str]) -> dict[str, str]:
    """Each switch that is left, and one that stands for all that it reaches."""
    neighbours: dict[str, list[str]] = {
        switch: [
            port.peer.split("/")[1]
            for port in cluster.ports_of(switch)
            if port.peer.startswith("port/")
        ]
        for switch in cluster.switches
        if switch not in lost
    }
    component: dict[str, str] = {}
    for switch in neighbours:
        waiting = [] if switch in component else [switch]
        while waiting:
            each = waiting.pop()
            if each not in component:
                component[each] = switch
                waiting += (other for other in neighbours[each] if other in neighbours)
    return component
