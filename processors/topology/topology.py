"""What needs what: the one graph of a cluster, made from inventory facts and from nothing else.

Why: a verdict must know what components share, a scheduler what is near to what, and neither may
read a file that says how the cluster was meant to be. How: every component is a vertex by its
canonical name, and an edge leads from it to what it needs: a GPU to its PCIe switch, its NVLink
domain and the NIC that serves it, a NIC to its leaf switch, a leaf to its spines. What it needs is
grouped by `via`; of several by one `via`, as of spines, one is enough. `queries.py` asks.

Not here: NUMA nodes, rails and indices are attributes of vertices; ports are ends of edges. A link
that a node and a switch both tell stands once. Links between switches are told by leaves, upwards,
and by cores, downwards: a spine alone cannot say which of its peers are above it.

Vertices that are no components: `pcie/<node>/<switch>`, `domain/<name>` of NVLink.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import networkx as nx

from nemesis.schemas import components
from nemesis.schemas.observed import (
    FabricInventoryReported,
    GpuDescribed,
    InventoryReported,
    NicDescribed,
    Tier,
)

_SHARED: Final = ("rack", "domain", "switch")
"""Kinds of vertices that stand for what several told of."""


class Topology:
    """The cluster as it has been told so far; the newest word of each node and switch holds."""

    def __init__(self) -> None:
        self.graph: Final[Any] = nx.DiGraph()
        """Edge attributes: `via`; of wires also `links`, {(lower end, upper port): tellers}."""
        self._nodes: Final[dict[str, tuple[object, ...]]] = {}
        self._switches: Final[dict[str, FabricInventoryReported]] = {}
        self._told: Final[dict[str, list[tuple[str, str]]]] = {}
        """By teller, its links."""

    def take_node(self, data: InventoryReported) -> None:
        """Take up what a node is made of."""
        told = (data.gpus, data.nics, data.rack, data.nvswitches)
        if self._nodes.get(data.node) == told:
            return
        name = components.node(data.node)
        self._forget(name)
        self._nodes[data.node] = told
        self.graph.add_node(name)
        if data.rack:
            self._need(name, f"rack/{data.rack}", "power")
        for at, _ in enumerate(data.nvswitches):
            self._need(f"nvswitch/{data.node}/{at}", name, "host")
        nics = [f"nic/{data.node}/{nic.name}" for nic in data.nics]
        for at, (nic, part) in enumerate(zip(nics, data.nics, strict=True)):
            self._sit(nic, data.node, part)
            self.graph.nodes[nic].update(index=at, rail=part.rail)
            if part.switch_port.count("/") == 2:
                self._wire(nic, part.switch_port, name)
        nearest = _nearest(data.gpus, data.nics)
        for gpu, at in zip(data.gpus, nearest, strict=True):
            self._add_gpu(data.node, gpu, nics[at] if at >= 0 else "")
        if any(gpu.nvlink_domain == data.node for gpu in data.gpus):
            for at, _ in enumerate(data.nvswitches):
                switch = f"nvswitch/{data.node}/{at}"
                self._need(f"domain/{data.node}", switch, f"nvswitch {at}")

    def _add_gpu(self, node: str, part: GpuDescribed, nic: str) -> None:
        gpu = f"gpu/{node}/{part.pci}"
        self._sit(gpu, node, part)
        self.graph.nodes[gpu].update(index=part.index)
        if part.nvlink_domain:
            self._need(gpu, f"domain/{part.nvlink_domain}", "nvlink")
        if nic:
            self._need(gpu, nic, "network")

    def take_switch(self, data: FabricInventoryReported) -> None:
        """Take up what a switch's ports are plugged into."""
        known = self._switches.get(data.switch)
        if known and (known.ports, known.tier) == (data.ports, data.tier):
            return
        self._forget(data.switch)
        self._switches[data.switch] = data
        self.graph.add_node(data.switch, tier=data.tier)
        for port in data.ports:
            kind, _, _ = port.peer.partition("/")
            if kind == "nic" or (kind == "port" and data.tier == "core"):
                self._wire(port.peer, port.port, data.switch)
            elif kind == "port" and data.tier == "leaf":
                self._wire(port.port, port.peer, data.switch)

    def tier(self, switch: str) -> Tier:
        """Of a switch by its canonical name, "" where it told nothing."""
        told = self._switches.get(switch)
        return told.tier if told else ""

    def links(self) -> list[tuple[str, str]]:
        """Every cable as (NIC or lower port, upper port), sorted."""
        wires = self.graph.edges(data="links")
        return sorted(link for _, _, links in wires for link in links or ())

    def _sit(self, device: str, node: str, part: GpuDescribed | NicDescribed) -> None:
        """A device hangs at the CPU or below a PCIe switch."""
        holder = components.node(node)
        self.graph.add_node(device, numa=part.numa)
        if part.pcie_switch:
            switch = f"pcie/{node}/{part.pcie_switch}"
            self._need(switch, holder, "host")
            holder = switch
        self._need(device, holder, "host")

    def _need(self, component: str, needed: str, via: str) -> None:
        self.graph.add_edge(component, needed, via=via)

    def _wire(self, lower: str, upper: str, teller: str) -> None:
        ends = (switch_of(lower) if lower.startswith("port/") else lower, switch_of(upper))
        if not self.graph.has_edge(*ends):
            self.graph.add_edge(*ends, via="wire", links={})
        tellers = self.graph.edges[ends]["links"].setdefault((lower, upper), [])
        if teller not in tellers:
            tellers.append(teller)
            self._told.setdefault(teller, []).append((lower, upper))

    def _unwire(self, lower: str, upper: str, teller: str) -> None:
        ends = (switch_of(lower) if lower.startswith("port/") else lower, switch_of(upper))
        links = self.graph.edges[ends]["links"]
        links[lower, upper].remove(teller)
        if not links[lower, upper]:
            del links[lower, upper]
        if not links:
            self.graph.remove_edge(*ends)

    def _forget(self, teller: str) -> None:
        """Undo all that a node or a switch told before."""
        if teller not in self.graph:
            return
        for lower, upper in self._told.pop(teller, ()):
            self._unwire(lower, upper, teller)
        node = teller.removeprefix("node/") if teller.startswith("node/") else ""
        own = [teller, *_belonging(self.graph, node)] if node else [teller]
        around = {each for part in own for each in nx.all_neighbors(self.graph, part)}
        for part in own:
            wires = [edge for edge in self.graph.out_edges(part, "via") if edge[2] == "wire"]
            wires += [edge for edge in self.graph.in_edges(part, "via") if edge[2] == "wire"]
            if not wires:
                self.graph.remove_node(part)
            else:  # another one still tells of it
                needs = [
                    edge[:2] for edge in self.graph.out_edges(part, "via") if edge[2] != "wire"
                ]
                self.graph.remove_edges_from(needs)
        self._drop_unneeded(around)

    def _drop_unneeded(self, names: Iterable[str]) -> None:
        for name in names:
            unknown = name not in self._switches and name.partition("/")[0] in _SHARED
            if unknown and name in self.graph and self.graph.degree(name) == 0:
                self.graph.remove_node(name)


def switch_of(port: str) -> str:
    """`switch/leaf03` of `port/leaf03/17`."""
    return f"switch/{port.split('/')[1]}" if port.count("/") == 2 else ""


def _belonging(graph: Any, node: str) -> list[str]:
    """The parts of a node: what needs it as its host, directly or below a PCIe switch."""
    found: list[str] = []
    ahead = [components.node(node)]
    while ahead:
        holder = ahead.pop()
        ahead += (parts := [at for at, _, via in graph.in_edges(holder, "via") if via == "host"])
        found += parts
    return found


def _nearest(gpus: Sequence[GpuDescribed], nics: Sequence[NicDescribed]) -> list[int]:
    """The NIC that serves each GPU: below its PCIe switch, else of its NUMA node, else any.

    Several NICs as near are shared out among the GPUs that are as near to them, in order. -1: none.
    """
    found = [-1] * len(gpus)
    nears: tuple[Callable[[GpuDescribed | NicDescribed], Hashable], ...] = (
        lambda part: part.pcie_switch or None,
        lambda part: part.numa if part.numa >= 0 else None,
        lambda part: 0,
    )
    for near in nears:
        by_place: dict[Hashable, list[int]] = {}
        for at, nic in enumerate(nics):
            by_place.setdefault(near(nic), []).append(at)
        sharers: dict[Hashable, list[int]] = {}
        for at, gpu in enumerate(gpus):
            if near(gpu) is not None:
                sharers.setdefault(near(gpu), []).append(at)
        for place, own in sharers.items():
            close = by_place.get(place, ())
            for order, at in enumerate(own):
                if close and found[at] < 0:
                    found[at] = close[order * len(close) // len(own)]
    return found
