"""A cluster: nodes in racks, switches, and the jobs that have the nodes."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.observed import GpuDescribed, NicDescribed, PortDescribed, Tier
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.topology.cuts import Cut, cut
from nemesis.sim.topology.fabric import FabricModel, Shape, offsets, shape_of
from nemesis.sim.topology.node import NodeModel
from nemesis.sim.topology.paths import named, ports_between
from nemesis.sim.topology.wiring import Wiring

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


class ClusterSize(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How many nodes, in which racks."""

    name: str
    nodes: int
    sample_period_ms: int
    rack_sizes: tuple[int, ...] = ()
    """Nodes of each rack in turn; as many as the node's kind has in one where it is not given."""


class Link(msgspec.Struct, frozen=True):
    """A cable."""

    name: str
    """`link/n012/mlx5_3`, between switches by the lower port: `link/leaf03/33`."""
    lower: str
    """A NIC, or a port of the lower tier."""
    upper: str


class Cluster(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """What is there, what is wired to what, and the jobs that have it.

    Jobs get their nodes in the order of both, unless `places` says which; the nodes that no job
    uses are spares of all.
    """

    cluster: ClusterSize
    node: NodeModel
    fabric: FabricModel
    jobs: tuple[JobModel, ...]
    places: tuple[tuple[str, ...], ...] = ()
    """By job, its nodes in the order of its ranks."""

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

    @property
    def node_index(self) -> Mapping[str, int]:
        """A node's place in `node_names`."""
        return self._node_index

    @cached_property
    def _node_index(self) -> Mapping[str, int]:
        return {node: index for index, node in enumerate(self.node_names)}

    @cached_property
    def _first_nodes(self) -> Mapping[str, int]:
        ends = accumulate((job.nodes for job in self.jobs), initial=0)
        return {job.name: first for job, first in zip(self.jobs, ends, strict=False)}

    @cached_property
    def _job_places(self) -> Mapping[str, tuple[JobModel, int]]:
        """By node that a job has: the job and the node's place among the job's nodes."""
        return {node: (job, at) for job in self.jobs for at, node in enumerate(self.nodes_of(job))}

    def nodes_of(self, job: JobModel) -> tuple[str, ...]:
        """The nodes of a job: rank r on nodes_of(job)[r // ranks_per_node]."""
        if self.places:
            names = [each.name for each in self.jobs]
            return self.places[names.index(job.name)]
        first = self._first_nodes[job.name]
        return self.node_names[first : first + job.nodes]

    def world_of(self, job: JobModel) -> int:
        """How many ranks a job has when it is whole."""
        return job.nodes * self.ranks_per_node

    def job_on(self, node: str) -> JobModel | None:
        """The job that has a node, None of a spare."""
        place = self._job_places.get(node)
        return place[0] if place is not None else None

    @cached_property
    def job_nodes(self) -> tuple[str, ...]:
        """The nodes of the first job."""
        return self.nodes_of(self.job)

    @cached_property
    def spares(self) -> tuple[str, ...]:
        """The nodes that stand by."""
        return tuple(node for node in self.node_names if node not in self._job_places)

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
        place = self._job_places.get(node)
        if place is None:
            return ()
        first = place[1] * self.ranks_per_node
        return tuple(range(first, first + self.ranks_per_node))

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """All racks, `rack01` first."""
        count = len(self._rack_starts) - 1
        digits = max(2, len(str(count)))
        return tuple(f"rack{number:0{digits}d}" for number in range(1, count + 1))

    @cached_property
    def _rack_starts(self) -> list[int]:
        size, nodes = self.node.nodes_per_rack, self.cluster.nodes
        even = [min(size, nodes - first) for first in range(0, nodes, size)]
        return offsets(self.cluster.rack_sizes or even)

    @cached_property
    def _rack_index(self) -> Mapping[str, int]:
        return {rack: index for index, rack in enumerate(self.racks)}

    @cached_property
    def _racks_by_node(self) -> tuple[str, ...]:
        starts = self._rack_starts
        sizes = (end - start for start, end in pairwise(starts))
        return tuple(
            chain.from_iterable(
                (rack,) * size for rack, size in zip(self.racks, sizes, strict=True)
            )
        )

    def rack_of(self, node: str) -> str:
        """The rack of a node: what shares its power."""
        return self._racks_by_node[self.node_index[node]]

    def nodes_of_rack(self, rack: str) -> tuple[str, ...]:
        """The nodes in a rack, none where there is no such rack."""
        index = self._rack_index.get(rack)
        if index is None:
            return ()
        return self.node_names[self._rack_starts[index] : self._rack_starts[index + 1]]

    def nvlink_of(self, node: str) -> str:
        """The NVLink domain of a node's GPUs: the node itself, or its rack."""
        return self.rack_of(node) if self.node.nvlink_domain == "rack" else node

    def nodes_of_nvlink(self, domain: str) -> tuple[str, ...]:
        """The nodes of an NVLink domain, none where there is no such domain."""
        if self.node.nvlink_domain == "rack":
            return self.nodes_of_rack(domain)
        return (domain,) if domain in self.node_index else ()

    @property
    def nvswitch_count(self) -> int:
        """NVSwitches of an NVLink domain: `nvswitch/n012/0` and so on."""
        return self.node.nvswitch_count or len(self.node.nvswitches)

    @cached_property
    def _gpu_parts(self) -> tuple[GpuDescribed, ...]:
        return self.node.gpu_parts()

    @cached_property
    def _nic_parts(self) -> tuple[NicDescribed, ...]:
        rails = self.wiring.shape.rails
        parts = self.node.nic_parts()
        if rails == 1:
            return parts
        return tuple(replace(part, rail=at % rails) for at, part in enumerate(parts))

    @cached_property
    def _nic_index(self) -> Mapping[str, int]:
        return {part.name: at for at, part in enumerate(self.node.nic_parts())}

    def gpus_of(self, node: str) -> tuple[GpuDescribed, ...]:
        """The GPUs of a node, with identities that follow from its name."""
        number, domain = self.node_index[node], self.nvlink_of(node)
        return tuple(
            replace(
                part,
                uuid=f"GPU-{number:08x}-{at:04x}-4000-8000-5349{number:04x}{at:04x}",
                serial=f"16501{number:04d}{at:04d}",
                nvlink_domain=domain,
            )
            for at, part in enumerate(self._gpu_parts)
        )

    def nics_of(self, node: str) -> tuple[NicDescribed, ...]:
        """The NICs of a node and the leaf port that each is plugged into."""
        first = self.node_index[node] * len(self._nic_parts)
        wiring = self.wiring
        return tuple(
            replace(part, switch_port=wiring.port_name(int(wiring.nic_port[first + at])))
            for at, part in enumerate(self._nic_parts)
        )

    def nic_number(self, nic: str) -> int:
        """The number of a NIC in the wiring by its canonical name, -1 where there is none."""
        _, node, name = (*nic.split("/"), "", "")[:3]
        if node not in self.node_index or name not in self._nic_index:
            return -1
        return self.node_index[node] * len(self._nic_index) + self._nic_index[name]

    @cached_property
    def shape(self) -> Shape:
        """The fabric in numbers."""
        return shape_of(self.fabric, self.cluster.nodes, len(self.node.nics))

    @property
    def wiring(self) -> Wiring:
        """Who is plugged into whom, in integers."""
        return self._wiring

    @cached_property
    def _wiring(self) -> Wiring:
        return Wiring(self.shape, self.node_names, tuple(p.name for p in self.node.nic_parts()))

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches: leaves, then spines, then cores; `leaf01` first."""
        return self.wiring.switches

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaf switches."""
        return self.wiring.switches[: self.wiring.counts[0]]

    def tier_of(self, switch: str) -> Tier:
        """leaf, spine or core."""
        return self.wiring.tier(self.wiring.index[switch])

    def ports_of(self, switch: str) -> tuple[PortDescribed, ...]:
        """The ports of a switch and what each is plugged into."""
        return self.wiring.described(self.wiring.index[switch])

    def peer_of(self, port: str) -> str:
        """What a port is plugged into, "" where there is no such port."""
        number = self.wiring.port_at(*(*port.split("/"), "", "")[1:3])
        return self.wiring.peer_name(number) if number >= 0 else ""

    def links(self) -> Iterator[Link]:
        """Every cable, from the lower end up."""
        wiring = self.wiring
        for port, peer in enumerate(wiring.peer.tolist()):
            if peer < port:  # the lower tier has the lower numbers, a NIC a negative one
                name, lower = wiring.link_name(port), wiring.peer_name(port)
                yield Link(name, lower, wiring.port_name(port))

    def path(self, nic: str, other: str, *, failed: Collection[str] = ()) -> tuple[str, ...]:
        """All components from one NIC to another, both included, in order; () where none is left.

        `failed`: links, ports, switches, NICs, nodes or racks to go around; see `paths` for how a
        way is chosen.

        Raises:
            BadNameError: the cluster has no such NIC, or no such component in `failed`.
        """
        source, target = self.nic_number(nic), self.nic_number(other)
        for name, number in ((nic, source), (other, target)):
            if number < 0:
                raise BadNameError(f"the cluster has no NIC {name[:60]!r}")
        if source == target:
            return (nic,)
        dead = {
            end for each in failed for link in cut(self, each).links for end in self._ends(link)
        }
        ports = ports_between(self.wiring, source, target, dead)
        return () if ports is None else (nic, *named(self.wiring, ports), other)

    def _ends(self, link: str) -> tuple[int, int]:
        """The ports at both ends of a link; of a NIC's link twice the same."""
        _, holder, name = link.split("/")
        nic = self.nic_number(f"nic/{holder}/{name}")
        lower = int(self.wiring.nic_port[nic]) if nic >= 0 else self.wiring.port_at(holder, name)
        return lower, max(lower, int(self.wiring.peer[lower]))

    def cut(self, component: str) -> Cut:
        """What the failure of a component takes with it.

        Raises:
            BadNameError: the cluster has no such component.
        """
        return cut(self, component)
