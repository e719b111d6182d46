"""Where a fault strikes: a node and one of its places, with everything that has a name there."""

from random import Random
from typing import Final

import msgspec

from nemesis.schemas.components import gpu as gpu_name
from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.sim.faults.planned import SPARE, FaultPlanned, OnGpu, OnNic
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import Effect, Symptom
from nemesis.sim.topology.cluster import Cluster

MS: Final = 1_000_000


class Target(msgspec.Struct, frozen=True):
    """Place `index` of a node: a GPU, the rank that runs on it, the NIC that serves it."""

    cluster: Cluster
    node: str
    index: int

    @property
    def rank(self) -> int:
        """-1 on a spare."""
        ranks = self.cluster.ranks_of(self.node)
        return ranks[self.index] if ranks else -1

    @property
    def gpu(self) -> GpuDescribed:
        """As the node's inventory describes it."""
        return self.cluster.gpus_of(self.node)[self.index]

    @property
    def nic(self) -> NicDescribed:
        """As the node's inventory describes it."""
        return self.cluster.nics_of(self.node)[self.index]

    @property
    def slot(self) -> str:
        """The GPU's address as the driver prints it, without function."""
        return self.gpu.pci.removesuffix(".0")

    def names(self) -> dict[str, tuple[str, ...]]:
        """What {gpu}, {nic} and so on stand for."""
        job = self.cluster.job.name
        nic = f"{self.node}/{self.nic.name}"
        ranks = self.cluster.ranks_of(self.node)
        port = self.nic.switch_port
        return {
            "gpu": (gpu_name(self.node, self.gpu.pci),),
            "nic": (f"nic/{nic}",),
            "link": (f"link/{nic}",),
            "port": (port,),
            "switch": (f"switch/{port.split('/')[1]}",),
            "node": (node_name(self.node),),
            "rank": (rank_name(job, self.rank),) if self.rank >= 0 else (),
            "ranks": tuple(rank_name(job, rank) for rank in ranks),
            "job": (job,),
        }


class Course(msgspec.Struct, kw_only=True):
    """How a fault goes, as it is told step by step; `at` and `line` add to it."""

    node: str
    symptoms: list[Symptom] = []
    onset_ns: int = 0
    """From its begin."""
    stalls: bool = False
    lost_ranks: tuple[int, ...] = ()

    def at(self, after_ns: int, effect: Effect, *, node: str = "") -> None:
        """Something happens, on the fault's node where no other is named."""
        self.symptoms.append(Symptom(after_ns, node or self.node, effect))


def draw_target(cluster: Cluster, fault: FaultPlanned, random: Random) -> Target:
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
    if not node or node == SPARE:
        among = cluster.spares if node == SPARE else cluster.job_nodes
        if not among:
            raise BadScenarioError(f"fault.node: {node!r}: the cluster has no spare node")
        node = random.choice(among)
    if index < 0:
        index = random.randrange(cluster.ranks_per_node)
    if node not in cluster.node_index:
        raise BadScenarioError(
            f"fault.node: {node!r}: no such node, expected {cluster.node_names[0]}"
            f" to {cluster.node_names[-1]} or {SPARE}"
        )
    if index >= cluster.ranks_per_node:
        raise BadScenarioError(
            f"fault.gpu or nic: {index}: a node has {cluster.ranks_per_node}, counted from 0"
        )
    return Target(cluster, node, index)


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
