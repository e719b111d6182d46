"""The cluster that is simulated and its job, as a TOML file describes them."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from nemesis.schemas.components import pci_address
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.sim.jobs.model import JobModel
from nemesis.streams.documents import BadDocumentError, read_toml

DEFAULT: Final = Path(__file__).with_name("cluster.toml")
NODES_MAX: Final = 65_535  # a GPU's made-up UUID has room for four hexadecimal digits of a node


SETTINGS: Final = {
    "nvidia_driver": "570.172.08",
    "nccl": "2.27.3",
    "fabric_manager": "570.172.08",
    "memlock_kib": "unlimited",
    "nics.mtu": "4200",
    "nics.roce_gid_index": "3",  # RoCE v2 over IPv4 (docs.nvidia.com/networking, RoCE)
    "nics.pfc_priorities": "3",
}
"""What is set on every node, as NVIDIA's reference designs set it."""


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


class ClusterFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A cluster file; one `[job]` or several `[[job]]`."""

    cluster: ClusterSize
    node: NodeModel
    job: JobModel | tuple[JobModel, ...]


class Cluster(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """What is there: nodes, leaf switches, and the jobs that have them.

    Jobs get their nodes in the order of both; the nodes that no job uses are spares of all.
    """

    cluster: ClusterSize
    node: NodeModel
    jobs: tuple[JobModel, ...]

    @property
    def job(self) -> JobModel:
        """The first job."""
        return self.jobs[0]

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, `n001` first, as many digits as the last one needs."""
        count = self.cluster.nodes
        digits = max(3, len(str(count)))
        return tuple(f"n{number:0{digits}d}" for number in range(1, count + 1))

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        """A node's place in `node_names`."""
        return {node: index for index, node in enumerate(self.node_names)}

    @cached_property
    def _first_nodes(self) -> Mapping[str, int]:
        ends = accumulate((job.nodes for job in self.jobs), initial=0)
        return {job.name: first for job, first in zip(self.jobs, ends, strict=False)}

    @cached_property
    def _job_places(self) -> tuple[tuple[JobModel, int], ...]:
        """By node index, of those in jobs: the job and the node's place among the job's nodes."""
        return tuple((job, at) for job in self.jobs for at in range(job.nodes))

    def nodes_of(self, job: JobModel) -> tuple[str, ...]:
        """The nodes of a job: rank r on nodes_of(job)[r // ranks_per_node]."""
        first = self._first_nodes[job.name]
        return self.node_names[first : first + job.nodes]

    def world_of(self, job: JobModel) -> int:
        """How many ranks a job has when it is whole."""
        return job.nodes * self.ranks_per_node

    def job_on(self, node: str) -> JobModel | None:
        """The job that has a node, None of a spare."""
        index = self.node_index[node]
        return self._job_places[index][0] if index < len(self._job_places) else None

    @cached_property
    def job_nodes(self) -> tuple[str, ...]:
        """The nodes of the first job."""
        return self.nodes_of(self.job)

    @cached_property
    def spares(self) -> tuple[str, ...]:
        """The nodes that stand by."""
        return self.node_names[len(self._job_places) :]

    @cached_property
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
        """How many ranks the first job has when it is whole."""
        return self.world_of(self.job)

    def ranks_of(self, node: str) -> tuple[int, ...]:
        """The ranks on a node, of the job that has it; none for a spare."""
        index = self.node_index[node]
        if index >= len(self._job_places):
            return ()
        first = self._job_places[index][1] * self.ranks_per_node
        return tuple(range(first, first + self.ranks_per_node))

    def gpus_of(self, node: str) -> tuple[GpuDescribed, ...]:
        """The GPUs of a node, with identities that follow from its name."""
        number = self.node_index[node]
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
        leaf, place = divmod(self.node_index[node], self.cluster.nodes_per_leaf)
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
        file = msgspec.convert(read_toml(path), ClusterFile)
    except BadDocumentError as error:
        raise BadClusterError(error.message) from error
    except msgspec.ValidationError as error:
        raise BadClusterError(f"{path}: {error}") from error
    jobs = (file.job,) if isinstance(file.job, JobModel) else file.job
    cluster = Cluster(cluster=file.cluster, node=file.node, jobs=jobs)
    for holds, rule in _rules(cluster):
        if not holds:
            raise BadClusterError(f"{path}: {rule}")
    return cluster


def _rules(cluster: Cluster) -> Iterator[tuple[bool, str]]:
    size, node, jobs = cluster.cluster, cluster.node, cluster.jobs
    yield 0 < size.nodes <= NODES_MAX, f"cluster.nodes must be 1 to {NODES_MAX}"
    yield size.nodes_per_leaf > 0, "cluster.nodes_per_leaf must be positive"
    yield len(node.gpus) > 0, "node.gpus must name at least one GPU"
    yield len(node.nics) == len(node.gpus), "node.nics must be one for each GPU"
    yield len(jobs) > 0, "job: at least one"
    yield len({job.name for job in jobs}) == len(jobs), "job.name: two jobs of one name"
    yield all(job.nodes > 0 for job in jobs), "job.nodes must be positive"
    total = sum(job.nodes for job in jobs)
    yield total <= size.nodes, f"job.nodes must be {size.nodes} at most, of all jobs, not {total}"
    for job in jobs:
        timed = job.step_ms > 0 and job.allreduce_ms > 0
        yield timed, "job.step_ms, allreduce_ms must be positive"
        small = job.world_min <= cluster.world_of(job)
        yield small, f"job.world_min is larger than the world of {job.name}"
