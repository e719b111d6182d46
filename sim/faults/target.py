"""Where a fault strikes: a node and one of its places, with everything that has a name there."""

from fnmatch import fnmatchcase
from random import Random
from typing import Final

import msgspec

from nemesis.schemas.components import gpu as gpu_name
from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.sim.faults.plan import SPARE, OnGpu, OnNic, Planned
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.jobs.ranks import pid_of
from nemesis.sim.topology.cluster import Cluster

MS: Final = 1_000_000


class Target(msgspec.Struct, frozen=True):
    """Place `index` of a node: a GPU, the rank that runs on it, the NIC that serves it."""

    cluster: Cluster
    node: str
    index: int

    @property
    def job(self) -> str:
        """The job that has the node, or the first one for a spare."""
        return (self.cluster.job_on(self.node) or self.cluster.job).name

    @property
    def rank(self) -> int:
        """-1 on a spare."""
        ranks = self.cluster.ranks_of(self.node)
        return ranks[self.index] if ranks else -1

    @property
    def rank_name(self) -> str:
        """Its component; none on a spare."""
        return rank_name(self.job, self.rank) if self.rank >= 0 else ""

    @property
    def process(self) -> str:
        """`pid=40017, name=python3` of the rank, as the driver prints it."""
        return f"pid={pid_of(self.rank)}, name=python3" if self.rank >= 0 else "pid='<unknown>'"

    @property
    def gpu(self) -> GpuDescribed:
        """As the node's inventory describes it."""
        return self.cluster.gpus_of(self.node)[self.index]

    @property
    def gpu_name(self) -> str:
        """Its component."""
        return gpu_name(self.node, self.gpu.pci)

    @property
    def nic_index(self) -> int:
        """Of the NIC that serves the place: there may be fewer than GPUs."""
        return self.cluster.node.nic_index(self.index)

    @property
    def nic(self) -> NicDescribed:
        """As the node's inventory describes it."""
        return self.cluster.nics_of(self.node)[self.nic_index]

    @property
    def nic_name(self) -> str:
        """Its component."""
        return f"nic/{self.node}/{self.nic.name}"

    @property
    def link_name(self) -> str:
        """The component of the cable in it."""
        return f"link/{self.node}/{self.nic.name}"

    @property
    def port(self) -> str:
        """The component of the switch port that it is plugged into."""
        return self.nic.switch_port

    @property
    def switch(self) -> str:
        """`leaf03`: the switch of that port, which is also its collector's name."""
        return self.port.split("/")[1]

    @property
    def slot(self) -> str:
        """The GPU's address as the driver prints it, without function."""
        return self.gpu.pci.removesuffix(".0")

    @property
    def rack(self) -> str:
        """What shares its power."""
        return f"rack/{self.cluster.rack_of(self.node)}"

    @property
    def rack_nodes(self) -> tuple[str, ...]:
        """The nodes in it."""
        return self.cluster.nodes_of_rack(self.cluster.rack_of(self.node))

    def ranks_of_nic(self) -> tuple[int, ...]:
        """The ranks that its NIC serves, none on a spare."""
        ranks = self.cluster.ranks_of(self.node)
        served = self.cluster.node.gpus_of_nic(self.nic_index)
        return tuple(ranks[index] for index in served) if ranks else ()

    def gpu_names(self) -> list[str]:
        """The components of the node's GPUs."""
        return [gpu_name(self.node, each.pci) for each in self.cluster.gpus_of(self.node)]

    def names(self) -> dict[str, tuple[str, ...]]:
        """What {gpu}, {nic} and so on stand for."""
        ranks = self.cluster.ranks_of(self.node)
        return {
            "gpu": (self.gpu_name,),
            "nic": (self.nic_name,),
            "nic_name": (self.nic.name,),
            "link": (self.link_name,),
            "port": (self.port,),
            "switch": (f"switch/{self.switch}",),
            "node": (node_name(self.node),),
            "node_name": (self.node,),
            "rank": (self.rank_name,) if self.rank >= 0 else (),
            "ranks": tuple(rank_name(self.job, rank) for rank in ranks),
            "program": (f"program/{self.job}",),
            "software": (f"software/{self.node}/nccl",),
            "job": (self.job,),
        }

    def others(self, random: Random, count: int, *, away_from: str = "") -> list["Target"]:
        """So many other places of the job on nodes of their own, none of them on this switch."""
        nodes = [
            node
            for node in self.cluster.job_nodes
            if node != self.node
            and not (
                away_from and self.cluster.nics_of(node)[0].switch_port.split("/")[1] == away_from
            )
        ]
        chosen = random.sample(nodes, min(count, len(nodes)))
        width = self.cluster.ranks_per_node
        return [Target(self.cluster, node, random.randrange(width)) for node in chosen]

    def on_switch(self) -> list["Target"]:
        """The place of every NIC that is plugged into the same switch, port by port."""
        places: list[Target] = []
        for port in self.cluster.ports_of(self.switch):
            kind, _, peer = port.peer.partition("/")
            if kind == "nic":
                node, _, name = peer.partition("/")
                names = [nic.name for nic in self.cluster.nics_of(node)]
                index = self.cluster.node.gpus_of_nic(names.index(name))[0]
                places.append(Target(self.cluster, node, index))
        return places


def draw_target(cluster: Cluster, fault: Planned, random: Random) -> Target:
    """The target that a scenario names, the rest drawn.

    Raises:
        BadScenarioError: the cluster has no such place.
    """
    node, index = fault.node, -1
    if isinstance(fault, OnGpu):
        index = fault.gpu
        if fault.rank >= 0:
            node, index = _of_rank(cluster, fault.rank)
    elif isinstance(fault, OnNic):
        index = fault.nic
        if fault.port:
            node, index = _of_port(cluster, fault.port)
    among = _among(cluster, fault, node)
    node = among[0] if len(among) == 1 else random.choice(among)
    width = len(cluster.node.nics) if isinstance(fault, OnNic) else cluster.ranks_per_node
    if index < 0 and fault.switch and isinstance(fault, OnNic):
        nics = enumerate(cluster.nics_of(node))
        index = random.choice([at for at, nic in nics if _fits(nic.switch_port, fault.switch)])
    if index < 0:
        index = random.randrange(width)
    if index >= width:
        raise BadScenarioError(f"fault.gpu or nic: {index}: a node has {width}, counted from 0")
    if isinstance(fault, OnNic):
        index = cluster.node.gpus_of_nic(index)[0]
    return Target(cluster, node, index)


def _among(cluster: Cluster, fault: Planned, pattern: str) -> tuple[str, ...]:
    """The nodes that a fault may strike."""
    if pattern == SPARE:
        among = cluster.spares
        if not among:
            raise BadScenarioError(f"fault.node: {pattern!r}: the cluster has no spare node")
    elif pattern:
        among = tuple(node for node in cluster.node_names if fnmatchcase(node, pattern))
        if not among:
            first, last = cluster.node_names[0], cluster.node_names[-1]
            raise BadScenarioError(
                f"fault.node: {pattern!r}: no such node, expected {first} to {last}, a pattern"
                f" or {SPARE}"
            )
    else:
        among = cluster.job_nodes if not fault.switch else cluster.node_names
    if fault.rack:
        among = tuple(node for node in among if fnmatchcase(cluster.rack_of(node), fault.rack))
        if not among:
            raise BadScenarioError(
                f"fault.rack: {fault.rack!r}: none of these nodes is in such a rack, expected one"
                f" like {cluster.racks[0]}"
            )
    if fault.switch:
        among = tuple(node for node in among if _is_on(cluster, node, fault.switch))
        if not among:
            raise BadScenarioError(
                f"fault.switch: {fault.switch!r}: no node of these is plugged into such a switch,"
                f" expected one like {cluster.leaves[0]}"
            )
    return among


def _is_on(cluster: Cluster, node: str, pattern: str) -> bool:
    return any(_fits(nic.switch_port, pattern) for nic in cluster.nics_of(node))


def _fits(port: str, pattern: str) -> bool:
    return fnmatchcase(port.split("/")[1], pattern)


def _of_rank(cluster: Cluster, rank: int) -> tuple[str, int]:
    if rank >= cluster.world:
        raise BadScenarioError(f"fault.rank: {rank}: the job has {cluster.world}, counted from 0")
    at, index = divmod(rank, cluster.ranks_per_node)
    return cluster.job_nodes[at], index


def _of_port(cluster: Cluster, port: str) -> tuple[str, int]:
    for node in cluster.node_names:
        for index, nic in enumerate(cluster.nics_of(node)):
            if nic.switch_port == f"port/{port}":
                return node, index
    raise BadScenarioError(f"fault.port: {port!r}: no such port, expected one like leaf01/1")
