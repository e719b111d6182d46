"""A simulated cluster as a scheduler sees it."""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.topology.gpu_class import class_of
from nemesis.processors.topology.pool import Pool
from nemesis.sim.topology.cluster import Cluster

EFA_NAME: Final = "rdmap"
"""How the driver of Elastic Fabric Adapters names them; a cluster file knows RoCE only."""


def pool_of(cluster: Cluster) -> Pool:
    """All GPUs of a cluster, all of them free."""
    nodes = cluster.cluster.nodes
    node, shape = cluster.node, cluster.shape
    efa = any(name.startswith(EFA_NAME) for name in node.nic_names)
    domains = {
        name: at
        for at, name in enumerate(dict.fromkeys(map(cluster.nvlink_of, cluster.node_names)))
    }
    leaves = _numbered(shape.group_sizes)
    pods = [pod for pod, count in enumerate(shape.pod_sizes) for _ in range(count)]
    tiers = [leaves]
    tapers = [1.0]
    if shape.spines:
        tiers.append([pods[leaf] for leaf in leaves])
        tapers.append(cluster.fabric.oversubscription)
    if len(set(tiers[-1])) > 1:  # what is above is not described where there are no cores
        tiers.append([0] * nodes)
        tapers.append(cluster.fabric.core_oversubscription if shape.cores else 1.0)
    return Pool(
        nodes=cluster.node_names,
        gpu_classes=(class_of(node.gpu_model).name,) * nodes,
        gpu_counts=(len(node.gpus),) * nodes,
        free_counts=(len(node.gpus),) * nodes,
        domains=tuple(domains[cluster.nvlink_of(name)] for name in cluster.node_names),
        tiers=tuple(tuple(tier) for tier in tiers),
        rail_counts=(len(node.nics),) * nodes,
        nic_mbps=(node.nic_rate_mbps,) * nodes,
        transport="efa" if efa else cluster.fabric.transport,
        tapers=tuple(tapers),
    )


def _numbered(sizes: Sequence[int]) -> list[int]:
    """The number of its group, for each member in turn."""
    return [group for group, size in enumerate(sizes) for _ in range(size)]
