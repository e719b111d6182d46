"""Which rank runs on which GPU of which node: jobs joined on what nodes said they are made of.

Why: a flight recorder names ranks, a kernel log PCI addresses; only here do they meet. Rank r of a
job runs on nodes[r // ranks_per_node], GPU r % ranks_per_node of that node's inventory (DESIGN of
job_submitted), and moves where a completed recovery put it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.schemas import components
from nemesis.schemas.observed import InventoryReported
from nemesis.schemas.operated import JobSubmitted

ENDED_MAX: Final = 256  # names of past jobs; their last exits come within seconds


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """One rank of one job."""

    job: str
    rank: int


class JobPlaces(msgspec.Struct, dict=True):
    """Where the ranks of a job run."""

    nodes: list[str]
    ranks_per_node: int
    spares: list[str]
    moved: dict[int, str] = {}
    """Rank to node, where that differs from the submission."""
    gone: list[int] = []
    """Ranks that a recovery removed, sorted."""

    tp: int = 1
    cp: int = 1
    pp: int = 1

    def shard_of(self, ranks: NDArray[np.intp]) -> NDArray[np.intp]:
        """Which part of the parameters each rank holds; ranks of one part are replicas.

        Tensor ranks are next to each other and stages far apart (Megatron-LM, tp-cp-ep-dp-pp).
        """
        stage_size = max(1, self.world // max(1, self.pp))
        return np.asarray(ranks // stage_size * self.tp + ranks % max(1, self.tp))

    @property
    def world(self) -> int:
        """Ranks at submission."""
        return len(self.nodes) * self.ranks_per_node

    @cached_property
    def indices(self) -> dict[str, list[int]]:
        """Node to where it stands in `nodes`, which never change."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            found.setdefault(node, []).append(index)
        return found


class NicPlace(msgspec.Struct, frozen=True, array_like=True):
    """One NIC of a node."""

    name: str
    pci: str
    port: str
    """The switch port that it is plugged into, "" where the inventory does not say."""


class Inventory(msgspec.Struct):
    """Nodes and jobs, as the log has told so far."""

    gpus: dict[str, list[str]] = {}
    """Node to the PCI addresses of its GPUs, in inventory order."""
    nics: dict[str, list[NicPlace]] = {}
    """Node to its NICs, in inventory order."""
    racks: dict[str, str] = {}
    """Node to its rack, of those that told."""
    jobs: dict[str, JobPlaces] = {}
    ended: list[str] = []
    """Jobs that ended, the latest last: what their processes still do concerns nobody."""

    def report(self, data: InventoryReported) -> None:
        """Take up what a node is made of; the newest report holds."""
        if data.rack:
            self.racks[data.node] = data.rack
        self.gpus[data.node] = [gpu.pci for gpu in data.gpus]
        self.nics[data.node] = [NicPlace(nic.name, nic.pci, nic.switch_port) for nic in data.nics]

    def uplinks_of(self, node: str) -> list[str]:
        """The switches that a node's NICs are plugged into, sorted."""
        ports = (nic.port.split("/") for nic in self.nics.get(node, ()))
        return sorted({port[1] for port in ports if len(port) == 3})

    def whole_rack(self, nodes: Sequence[str]) -> str:
        """The rack of which these nodes are all that is known, several at least; else ""."""
        own = self.rack_of(nodes[0])
        return self.racks[nodes[0]] if len(own) > 1 and own == sorted(nodes) else ""

    def rack_of(self, node: str) -> list[str]:
        """The nodes of a node's rack, itself included, sorted; none where no rack is told."""
        rack = self.racks.get(node, "")
        return sorted(name for name, each in self.racks.items() if rack and each == rack)

    def submit(self, data: JobSubmitted) -> None:
        """Take up a job; a job of the same name begins anew."""
        self.ended = [name for name in self.ended if name != data.job]
        self.jobs[data.job] = JobPlaces(
            nodes=list(data.node_names),
            ranks_per_node=data.ranks_per_node,
            spares=list(data.spares),
            tp=data.tp,
            cp=data.cp,
            pp=data.pp,
        )

    def end(self, job: str) -> None:
        """A job is over."""
        self.jobs.pop(job, None)
        self.ended = [*(name for name in self.ended if name != job), job][-ENDED_MAX:]

    def is_gone(self, job: str, rank: int) -> bool:
        """Whether a recovery removed this rank from its job, or the job is over."""
        places = self.jobs.get(job)
        return job in self.ended or (places is not None and rank in places.gone)

    def nodes_of(self, job: str) -> list[str]:
        """The nodes that a job's ranks run on, sorted."""
        places = self.jobs.get(job)
        if places is None:
            return []
        gone = {*places.gone, *places.moved}
        own = places.ranks_per_node
        stayed = {
            node
            for index, node in enumerate(places.nodes)
            if not gone or any(rank not in gone for rank in range(index * own, index * own + own))
        }
        return sorted(
            stayed | {node for rank, node in places.moved.items() if rank not in places.gone}
        )

    def node_of_rank(self, job: str, rank: int) -> str:
        """The node of a rank, "" where it is not known."""
        places = self.jobs.get(job)
        if places is None or rank in places.gone:
            return ""
        if rank in places.moved:
            return places.moved[rank]
        return places.nodes[rank // places.ranks_per_node] if rank < places.world else ""

    def gpu_of_rank(self, job: str, rank: int) -> str:
        """The canonical name of a rank's GPU, "" where it is not known."""
        node = self.node_of_rank(job, rank)
        gpus = self.gpus.get(node, [])
        places = self.jobs.get(job)
        if not node or places is None:
            return ""
        index = rank % places.ranks_per_node
        return components.gpu(node, gpus[index]) if index < len(gpus) else ""

    def seats_on(self, node: str) -> list[Seat]:
        """The ranks that run on a node, by job and rank."""
        seats: list[Seat] = []
        for job, places in sorted(self.jobs.items()):
            if node not in places.indices and not places.moved:
                continue
            own = places.ranks_per_node
            ranks = {
                rank
                for index in places.indices.get(node, ())
                for rank in range(index * own, (index + 1) * own)
            }
            ranks -= {*places.gone, *places.moved}
            ranks |= {rank for rank, at in places.moved.items() if at == node}
            seats += [Seat(job, rank) for rank in sorted(ranks)]
        return seats

    def seats_of(self, component: str) -> list[Seat]:
        """The ranks that sit on a component: on its GPU, or on its node where it serves all."""
        kind, _, name = component.partition("/")
        if kind == "rank":
            job, _, rank = name.rpartition("/")
            return [Seat(job, int(rank))]
        node = components.node_of(self.nic_at(component) if kind == "port" else component)
        if node is None:
            return []
        seats = self.seats_on(node)
        if kind in ("gpu", "nvlink"):
            gpu = "gpu/" + "/".join(name.split("/")[:2])
            return [seat for seat in seats if self.gpu_of_rank(seat.job, seat.rank) == gpu]
        return [] if kind in ("process", "service") else seats

    def nic_name(self, node: str, pci: str) -> str:
        """The canonical name of a NIC, by its PCI address where the inventory has no better."""
        names = (nic.name for nic in self.nics.get(node, ()) if nic.pci == pci)
        return f"nic/{node}/{next(names, pci)}"

    def port_of(self, nic: str) -> str:
        """The switch port of a NIC by its canonical name, "" where it is not known."""
        _, node, name = nic.split("/", 2)
        return next((each.port for each in self.nics.get(node, ()) if each.name == name), "")

    def nic_at(self, port: str) -> str:
        """The canonical name of the NIC that is plugged into a switch port, "" if not known."""
        for node, nics in self.nics.items():
            for nic in nics:
                if nic.port == port:
                    return f"nic/{node}/{nic.name}"
        return ""
