"""The cluster that is simulated and its job, as a TOML file describes them."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from nemesis.schemas.components import pci_address
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.streams.documents import BadDocumentError, read_toml

DEFAULT: Final = Path(__file__).with_name("cluster.toml")


class BadClusterError(NemesisError):
    """A cluster file that cannot be simulated."""

    exit_code = 2


class ClusterSize(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How many nodes, and how they are wired."""

    name: str
    nodes: int
    nodes_per_leaf: int
    sample_period_ms: int


class NodeModel(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What every node is made of: PCI addresses in the order of their indices."""

    model: str
    gpu_model: str
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nvswitches: tuple[str, ...] = ()
    nic_rate_mbps: int


class JobModel(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One data-parallel job; the nodes that it does not use are its spares."""

    name: str
    nodes: int
    world_min: int
    step_ms: int
    allreduce_ms: int
    checkpoint_steps: int
    stall_steps: int
    shrink_ms: int
    start_ms: int
    on_log_loss: Literal["wait", "restart", "shrink"]
    grace_s: float


class Cluster(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A cluster file."""

    cluster: ClusterSize
    node: NodeModel
    job: JobModel

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, `n001` first."""
        return tuple(f"n{number:03d}" for number in range(1, self.cluster.nodes + 1))

    @property
    def job_nodes(self) -> tuple[str, ...]:
        """The nodes of the job: rank r on job_nodes[r // ranks_per_node]."""
        return self.node_names[: self.job.nodes]

    @property
    def spares(self) -> tuple[str, ...]:
        """The nodes that stand by."""
        return self.node_names[self.job.nodes :]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaf switches, `leaf01` first."""
        count = -(-self.cluster.nodes // self.cluster.nodes_per_leaf)
        return tuple(f"leaf{number:02d}" for number in range(1, count + 1))

    @property
    def ranks_per_node(self) -> int:
        """One rank a GPU."""
        return len(self.node.gpus)

    @property
    def world(self) -> int:
        """How many ranks the job has when it is whole."""
        return self.job.nodes * self.ranks_per_node

    def ranks_of(self, node: str) -> tuple[int, ...]:
        """The job's ranks on a node, none for a spare."""
        if node not in self.job_nodes:
            return ()
        first = self.job_nodes.index(node) * self.ranks_per_node
        return tuple(range(first, first + self.ranks_per_node))

    def gpus_of(self, node: str) -> tuple[GpuDescribed, ...]:
        """The GPUs of a node, with identities that follow from its name."""
        number = self.node_names.index(node)
        return tuple(
            GpuDescribed(
                pci=pci_address(pci),
                index=index,
                uuid=f"GPU-{number:08x}-{index:04x}-4000-8000-5349{number:04x}{index:04x}",
                serial=f"16501{number:04d}{index:04d}",
                model=self.node.gpu_model,
            )
            for index, pci in enumerate(self.node.gpus)
        )

    def nics_of(self, node: str) -> tuple[NicDescribed, ...]:
        """The NICs of a node and the leaf port that each is plugged into."""
        leaf, place = divmod(self.node_names.index(node), self.cluster.nodes_per_leaf)
        width = len(self.node.nics)
        return tuple(
            NicDescribed(
                name=f"mlx5_{index}",
                pci=pci_address(pci),
                switch_port=f"port/leaf{leaf + 1:02d}/{place * width + index + 1}",
            )
            for index, pci in enumerate(self.node.nics)
        )


def load_cluster(path: Path = DEFAULT) -> Cluster:
    """The cluster that a file describes.

    Raises:
        BadClusterError: no such file, not TOML, or a field that is missing, unknown or impossible.
    """
    try:
        cluster = msgspec.convert(read_toml(path), Cluster)
    except BadDocumentError as error:
        raise BadClusterError(error.message) from error
    except msgspec.ValidationError as error:
        raise BadClusterError(f"{path}: {error}") from error
    job = cluster.job
    rules = (
        (0 < cluster.cluster.nodes <= 999, "cluster.nodes must be 1 to 999"),
        (0 < job.nodes <= cluster.cluster.nodes, "job.nodes must be 1 to cluster.nodes"),
        (cluster.cluster.nodes_per_leaf > 0, "cluster.nodes_per_leaf must be positive"),
        (len(cluster.node.gpus) > 0, "node.gpus must name at least one GPU"),
        (len(cluster.node.nics) == len(cluster.node.gpus), "node.nics must be one for each GPU"),
        (job.step_ms > 0 and job.allreduce_ms > 0, "job.step_ms, allreduce_ms must be positive"),
        (job.world_min <= cluster.world, "job.world_min is larger than the job's world"),
    )
    for holds, rule in rules:
        if not holds:
            raise BadClusterError(f"{path}: {rule}")
    return cluster
