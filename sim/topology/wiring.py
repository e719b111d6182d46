"""Switches and what their ports are plugged into: integer arrays over all ports, names on demand.

A NIC has the number node * nics + index, a port a number too: the ports of leaves first, then those
of spines, then of cores, each switch's in turn. A port's peer is a port, or ~NIC.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.observed import PortDescribed, Tier
from nemesis.sim.topology.fabric import Shape, offsets

Ints = NDArray[np.int64]
TIERS: Final[tuple[Tier, ...]] = ("leaf", "spine", "core")


class Wiring:
    """Who is plugged into whom.

    `switches` all names, leaves first; `first_port[s]` the first port of switch s, one entry more
    than switches; `peer[port]`; `nic_port[nic]` the leaf port of a NIC.
    """

    def __init__(self, shape: Shape, node_names: Sequence[str], nic_names: Sequence[str]) -> None:
        self.shape: Final = shape
        self._nodes: Final = node_names
        self._nics: Final = nic_names
        leaves = len(shape.group_sizes) * shape.rails
        spines = len(shape.pod_sizes) * shape.spines
        self.counts: Final = (leaves, spines, shape.cores)
        self.switches: Final = tuple(
            name
            for tier, count in zip(TIERS, self.counts, strict=True)
            for name in _numbered(tier, count)
        )
        self.index: Final = {name: at for at, name in enumerate(self.switches)}
        self.first_port, self.peer, self.nic_port = _plugged(shape, len(nic_names))
        self._first: Final[list[int]] = self.first_port.tolist()
        self._pods: Final = offsets(shape.pod_sizes)

    @property
    def link_count(self) -> int:
        """Cables: one for each NIC, and one for two ports that are plugged into each other."""
        nics = len(self.nic_port)
        return nics + (len(self.peer) - nics) // 2

    def tier(self, switch: int) -> Tier:
        """The tier of a switch."""
        leaves, spines, _ = self.counts
        return TIERS[(switch >= leaves) + (switch >= leaves + spines)]

    def switch_of(self, port: int) -> int:
        """The switch that a port belongs to."""
        return bisect_right(self._first, port) - 1

    def ports(self, switch: int) -> range:
        """The ports of a switch."""
        return range(self._first[switch], self._first[switch + 1])

    def port_name(self, port: int) -> str:
        """`port/leaf03/17`, counted from 1."""
        switch = self.switch_of(port)
        return f"port/{self.switches[switch]}/{port - self._first[switch] + 1}"

    def nic_name(self, nic: int) -> str:
        """`nic/n012/mlx5_3`."""
        node, at = divmod(nic, len(self._nics))
        return f"nic/{self._nodes[node]}/{self._nics[at]}"

    def peer_name(self, port: int) -> str:
        """What a port is plugged into."""
        peer = int(self.peer[port])
        return self.nic_name(~peer) if peer < 0 else self.port_name(peer)

    def link_name(self, port: int) -> str:
        """The link of a port, named by its NIC or its lower port: `link/leaf03/33`."""
        peer = int(self.peer[port])
        lower = self.nic_name(~peer) if peer < 0 else self.port_name(min(port, peer))
        return f"link/{lower.partition('/')[2]}"

    def described(self, switch: int) -> tuple[PortDescribed, ...]:
        """The ports of a switch as its collector tells them."""
        name, first = self.switches[switch], self._first[switch]
        return tuple(
            PortDescribed(f"port/{name}/{port - first + 1}", self.peer_name(port))
            for port in self.ports(switch)
        )

    def port_at(self, switch: str, number: str) -> int:
        """The port of a name's parts, -1 where there is none."""
        at = self.index.get(switch, -1)
        if at < 0 or not number.isdecimal() or not 0 < int(number) <= len(self.ports(at)):
            return -1
        return self._first[at] + int(number) - 1

    def uplinks(self, switch: int) -> range:
        """The ports of a switch that lead to the tier above."""
        shape, ports = self.shape, self.ports(switch)
        up = {
            "leaf": shape.spines * shape.spine_links,
            "spine": shape.plane * shape.core_links,
        }.get(self.tier(switch), 0)
        return range(ports.stop - up, ports.stop)

    def down_to(self, switch: int, below: range) -> list[int]:
        """The ports of a switch that lead to some of the tier below."""
        first, last = self._first[below.start], self._first[below.stop]
        ports = self.ports(switch)
        peers = self.peer[ports.start : ports.stop]
        hits: list[int] = np.flatnonzero((peers >= first) & (peers < last)).tolist()
        return [ports.start + hit for hit in hits]

    def pod_of_leaf(self, leaf: int) -> int:
        """The pod of a leaf switch."""
        return bisect_right(self._pods, leaf // self.shape.rails) - 1

    def spines_of(self, pod: int) -> range:
        """The spine switches of a pod."""
        first = self.counts[0] + pod * self.shape.spines
        return range(first, first + self.shape.spines)


def _numbered(tier: Tier, count: int) -> Iterator[str]:
    digits = max(2, len(str(count)))
    return (f"{tier}{number:0{digits}d}" for number in range(1, count + 1))


def _plugged(shape: Shape, nics: int) -> tuple[Ints, Ints, Ints]:
    """(first_port, peer, nic_port) of a shape whose nodes have so many NICs."""
    sizes, rails = np.array(shape.group_sizes), shape.rails
    per_node = nics // rails
    down = np.repeat(sizes * per_node, rails)
    leaves, spines, cores = len(down), len(shape.pod_sizes) * shape.spines, shape.cores
    up = shape.spines * shape.spine_links
    pod_leaves = np.array(shape.pod_sizes) * rails
    spine_down = np.repeat(pod_leaves * shape.spine_links, shape.spines)
    spine_up = shape.plane * shape.core_links
    core_ports = len(shape.pod_sizes) * shape.sharers * shape.core_links
    counts = np.concatenate([down + up, spine_down + spine_up, np.full(cores, core_ports)])
    first = np.array(offsets(counts.tolist()))
    peer = np.zeros(first[-1], np.int64)

    group = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(group)) - np.array(offsets(shape.group_sizes))[group]
    nic = np.arange(nics)
    leaf = group[:, None] * rails + nic % rails
    nic_port = (first[leaf] + place[:, None] * per_node + nic // rails).ravel()
    peer[nic_port] = ~np.arange(len(nic_port))

    if up:
        pod = np.repeat(np.arange(len(pod_leaves)), pod_leaves)
        in_pod = np.arange(leaves) - np.array(offsets(pod_leaves.tolist()))[pod]
        spine, line = np.divmod(np.arange(up), shape.spine_links)
        lower = (first[:leaves] + down)[:, None] + np.arange(up)
        upper = (
            first[leaves + pod[:, None] * shape.spines + spine]
            + in_pod[:, None] * shape.spine_links
            + line
        )
        _join(peer, lower, upper)
    if spine_up:
        pod, spine = np.divmod(np.arange(spines), shape.spines)
        plane, line = np.divmod(np.arange(spine_up), shape.core_links)
        lower = (first[leaves : leaves + spines] + spine_down)[:, None] + np.arange(spine_up)
        core = (spine * cores // shape.spines)[:, None] + plane
        seat = pod * shape.sharers + spine % shape.sharers
        upper = first[leaves + spines + core] + seat[:, None] * shape.core_links + line
        _join(peer, lower, upper)
    return first, peer, nic_port


def _join(peer: Ints, lower: Ints, upper: Ints) -> None:
    peer[lower] = upper
    peer[upper] = lower
