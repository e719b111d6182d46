"""The GPUs that jobs may be put on: how many are free, and what they are near to.

A row is a *bay*: the GPUs of one node that share one NVLink domain. A server with two domains has
two bays; a rack of 18 trays over one NVSwitch fabric is 18 bays of one domain. So GPUs are never
added up over what cannot carry a group.

Tiers count from below: `tiers[0]` are leaf groups, then pods, and so on; the last is one group, the
whole fabric. An NVLink domain is no tier: it may be wider than a leaf or narrower than a node.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from nemesis.processors.topology.gpu_class import GPU_CLASSES, UNKNOWN, GpuClass

TIER_NAMES: Final = ("leaf", "pod", "core")
_T = TypeVar("_T", int, str)


class Pool(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Columns of equal length, one entry a bay; bays of one node stand beside each other."""

    nodes: tuple[str, ...]
    gpu_classes: tuple[str, ...]
    gpu_counts: tuple[int, ...]
    free_counts: tuple[int, ...]
    domains: tuple[int, ...]
    """Number of the NVLink domain; of GPUs without NVLink each bay's own."""
    tiers: tuple[tuple[int, ...], ...]
    """By tier, the number of each bay's group."""
    rail_counts: tuple[int, ...]
    """NICs of the node that its GPUs talk over."""
    nic_mbps: tuple[int, ...]
    """Of one NIC; 0: not told."""
    transport: str
    """infiniband, roce, efa; "": not known."""
    tapers: tuple[float, ...]
    """By tier, how much more may enter it from below than it can carry: 1.0 is non-blocking."""

    @property
    def gpu_count(self) -> int:
        """All GPUs."""
        return sum(self.gpu_counts)

    @property
    def free_count(self) -> int:
        """GPUs that no job has."""
        return sum(self.free_counts)

    @cached_property
    def domain_widths(self) -> Mapping[int, int]:
        """By NVLink domain, all its GPUs."""
        return sums(self.domains, self.gpu_counts)

    @cached_property
    def node_sizes(self) -> Mapping[str, int]:
        """By node, its GPUs."""
        found: dict[str, int] = {}
        for name, count in zip(self.nodes, self.gpu_counts, strict=True):
            found[name] = found.get(name, 0) + count
        return found

    @property
    def whole_free(self) -> tuple[int, ...]:
        """GPUs of each node of which no job has any, smallest first."""
        return _whole(self.nodes, self.gpu_counts, self.free_counts)

    @property
    def whole_nodes(self) -> tuple[str, ...]:
        """Nodes of which no job has any GPU."""
        columns = zip(self.nodes, self.gpu_counts, self.free_counts, strict=True)
        broken = {name for name, count, free in columns if free < count}
        return tuple(name for name in dict.fromkeys(self.nodes) if name not in broken)

    @property
    def whole(self) -> tuple[int, ...]:
        """GPUs of each node, smallest first."""
        return _whole(self.nodes, self.gpu_counts, self.gpu_counts)

    @property
    def depth(self) -> int:
        """How many tiers there are."""
        return len(self.tiers)

    def gpu_class(self, bay: int) -> GpuClass:
        """The class of a bay's GPUs."""
        return GPU_CLASSES.get(self.gpu_classes[bay], UNKNOWN)

    def without(self, nodes: Collection[str]) -> "Pool":
        """The same pool, nothing free on these nodes."""
        taken = set(nodes)
        pairs = zip(self.nodes, self.free_counts, strict=True)
        return replace(self, free_counts=tuple(0 if n in taken else free for n, free in pairs))

    def only(self, nodes: Collection[str]) -> "Pool":
        """These nodes alone; what they are near to stays as it is."""
        return self.rows([row for row, name in enumerate(self.nodes) if name in nodes])

    def rows(self, rows: Sequence[int]) -> "Pool":
        """These rows alone, in this order."""

        def kept(column: tuple[_T, ...]) -> tuple[_T, ...]:
            return tuple(column[row] for row in rows)

        return replace(
            self,
            nodes=kept(self.nodes),
            gpu_classes=kept(self.gpu_classes),
            gpu_counts=kept(self.gpu_counts),
            free_counts=kept(self.free_counts),
            domains=kept(self.domains),
            tiers=tuple(kept(tier) for tier in self.tiers),
            rail_counts=kept(self.rail_counts),
            nic_mbps=kept(self.nic_mbps),
        )


def sums(groups: Sequence[int], counts: Sequence[int]) -> Mapping[int, int]:
    """By group, the sum of its members' counts."""
    found: dict[int, int] = {}
    for group, count in zip(groups, counts, strict=True):
        found[group] = found.get(group, 0) + count
    return found


def _whole(nodes: Sequence[str], counts: Sequence[int], free: Sequence[int]) -> tuple[int, ...]:
    taken = {name for name, count, left in zip(nodes, counts, free, strict=True) if left < count}
    by_node: dict[str, int] = {}
    for name, count in zip(nodes, counts, strict=True):
        by_node[name] = by_node.get(name, 0) + count
    return tuple(sorted(count for name, count in by_node.items() if name not in taken))
