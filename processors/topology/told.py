"""The cluster as a scheduler sees it, from what nodes and switches told of themselves.

Why: a job is placed on what is there, and no file that says how a cluster was meant to be knows
that. How: of each inventory only what a pool is made of is kept, a few dozen bytes a node. Nodes
that share a leaf switch are a leaf group, with rails as without; leaf groups that share a spine are
a pod. How much a tier is oversubscribed follows from its ports: those that lead down over those
that lead up.

Not here: which GPUs are free (processors/scheduler), the rate of a NIC, which no inventory tells.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from nemesis.processors.topology.gpu_class import class_of
from nemesis.processors.topology.pool import Pool
from nemesis.processors.topology.topology import switch_of
from nemesis.schemas.node_ranges import parse_nodes
from nemesis.schemas.observed import FabricInventoryReported, InventoryReported


class NodePart(msgspec.Struct, frozen=True, array_like=True):
    """What a pool is made of, of one node."""

    bays: tuple[tuple[str, str, int], ...]
    """(NVLink domain, class of its GPUs, how many); "" where they have no NVLink."""
    leaves: tuple[str, ...]
    """Switches that it is plugged into."""
    rail_count: int
    rack: str = ""


class SwitchPart(msgspec.Struct, frozen=True, array_like=True):
    """What a pool is made of, of one switch."""

    tier: str
    transport: str
    nic_count: int
    """Ports with a NIC in them."""
    peers: tuple[tuple[str, int], ...]
    """(other switch, ports that lead to it)."""


class Told(msgspec.Struct, array_like=True):
    """The newest word of each node and switch."""

    nodes: dict[str, NodePart] = {}
    switches: dict[str, SwitchPart] = {}

    def take_node(self, data: InventoryReported) -> bool:
        """Take up what a node is made of; whether a pool is another one for it.

        A name that reads as a range of nodes is left out: no job could be put on it.
        """
        if parse_nodes((data.node,)) != (data.node,):
            return False
        now = _node_part(data)
        changed = self.nodes.get(data.node) != now
        self.nodes[data.node] = now
        return changed

    def take_switch(self, data: FabricInventoryReported) -> bool:
        """Take up what a switch is plugged into; whether a pool is another one for it."""
        now = _switch_part(data)
        changed = self.switches.get(data.switch) != now
        self.switches[data.switch] = now
        return changed

    def pool(self) -> Pool:
        """All GPUs, all of them free, nodes in the order of their names."""
        rows = [(name, bay) for name in sorted(self.nodes) for bay in self.nodes[name].bays]
        nodes = [name for name, _ in rows]
        counts = tuple(count for _, (_, _, count) in rows)
        domains = _numbered(domain or (name, at) for at, (name, (domain, _, _)) in enumerate(rows))
        tiers = self._tiers(nodes)
        return Pool(
            nodes=tuple(nodes),
            gpu_classes=tuple(of_class for _, (_, of_class, _) in rows),
            gpu_counts=counts,
            free_counts=counts,
            domains=domains,
            tiers=tiers,
            rail_counts=tuple(self.nodes[name].rail_count for name in nodes),
            nic_mbps=(0,) * len(nodes),
            transport=_most(switch.transport for switch in self.switches.values()),
            tapers=(1.0, *self._tapers())[: len(tiers)],
        )

    def _tiers(self, nodes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """By tier, the group of each row; the last tier is one group."""
        groups = _Groups()
        for name in sorted(self.nodes):
            groups.join(("node", name), *self.nodes[name].leaves)
        tiers = [_numbered(groups.of(("node", name)) for name in nodes)]
        by_tier = {name: switch.tier for name, switch in sorted(self.switches.items())}
        if "spine" in by_tier.values():
            for name, tier in by_tier.items():
                for peer, _ in self.switches[name].peers:
                    if {tier, by_tier.get(peer, "")} == {"leaf", "spine"}:
                        groups.join(name, peer)
            tiers.append(_numbered(groups.of(("node", name)) for name in nodes))
        if not nodes or len(set(tiers[-1])) > 1:
            tiers.append((0,) * len(nodes))
        return tuple(tiers)

    def _tapers(self) -> tuple[float, float]:
        """Of leaves towards spines, of spines towards cores: the worst of each."""
        worst = {"leaf": 1.0, "spine": 1.0}
        lower = {"leaf": "", "spine": "leaf"}
        upper = {"leaf": "spine", "spine": "core"}
        for switch in self.switches.values():
            if switch.tier not in worst:
                continue
            by_tier = Counter[str]()
            for peer, count in switch.peers:
                known = self.switches.get(peer)
                by_tier[known.tier if known else ""] += count
            down = switch.nic_count if switch.tier == "leaf" else by_tier[lower[switch.tier]]
            if up := by_tier[upper[switch.tier]]:
                worst[switch.tier] = max(worst[switch.tier], down / up)
        return worst["leaf"], worst["spine"]


class _Groups:
    """Things that are joined to one another, directly or through others."""

    def __init__(self) -> None:
        self._above: Final[dict[Hashable, Hashable]] = {}

    def of(self, one: Hashable) -> Hashable:
        """What stands for all that are joined to it."""
        while (above := self._above.setdefault(one, one)) != one:
            self._above[one] = self._above.setdefault(above, above)
            one = above
        return one

    def join(self, one: Hashable, *others: Hashable) -> None:
        """These are of one group."""
        for other in others:
            self._above[self.of(other)] = self.of(one)


def _numbered(groups: Iterable[Hashable]) -> tuple[int, ...]:
    """Numbers in place of groups, in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(group, len(numbers)) for group in groups)


def _most(words: Iterable[str]) -> str:
    """What most say who say anything; of equals the first in the alphabet."""
    counted = Counter(word for word in words if word)
    return min(counted, key=lambda word: (-counted[word], word), default="")


def _node_part(data: InventoryReported) -> NodePart:
    bays: dict[tuple[str, str], int] = {}
    for gpu in data.gpus:
        key = (gpu.nvlink_domain, class_of(gpu.model).name)
        bays[key] = bays.get(key, 0) + 1
    ports = [switch_of(nic.switch_port) for nic in data.nics]
    numbered = sum(nic.rail >= 0 for nic in data.nics)
    return NodePart(
        bays=tuple((domain, of_class, count) for (domain, of_class), count in bays.items()),
        leaves=tuple(sorted(set(ports) - {""})),
        rail_count=numbered or sum(map(bool, ports)) or len(ports),
        rack=data.rack,
    )


def _switch_part(data: FabricInventoryReported) -> SwitchPart:
    kinds = [port.peer.partition("/")[0] for port in data.ports]
    peers = Counter(
        switch_of(port.peer) for port, kind in zip(data.ports, kinds, strict=True) if kind == "port"
    )
    return SwitchPart(
        tier=data.tier,
        transport=data.transport,
        nic_count=kinds.count("nic"),
        peers=tuple(sorted((name, count) for name, count in peers.items() if name)),
    )


def without_a_word(nodes: Mapping[str, NodePart]) -> bool:
    """Nobody has told what it is made of."""
    return not any(part.bays for part in nodes.values())
