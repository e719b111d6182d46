"""How long a group of ranks communicates, given where its members lie.

A group is described by its `Span`: members, the NVLink domains they lie in, and how much the tier
that joins those domains is oversubscribed. Inside a domain the measured curve of the architecture
holds; across domains a ring runs over as many rails as the group has members in a domain, so the
curve measured on eight rails is read at the bytes that one rail carries. Nothing here gets faster
by a worse link: a group over several domains is never faster than inside one.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from nemesis.processors.mfu.curves import ACROSS, INSIDE, Curve, How, curves, time_ns, worse
from nemesis.processors.mfu.gpus import Architecture, Gpu

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]

MILLION: Final = 1_000_000
RAIL_PPM: Final = 900_000
"""Of a rail's data-sheet rate, a ring: 365 of 400 GB/s on 4 nodes, 350 on 248
(nccl-tests #309, #283)."""
RING_RAIL_NS: Final = 4_000
RING_LINK_NS: Final = 1_900
TREE_RAIL_NS: Final = 14_000
"""A hop of a ring over the network and over NVLink (LL128), of a tree over the network (Simple):
NCCL src/graph/tuning.cc at 5067397c."""
SEND_NS: Final = 20_000
"""To start a send: the network's ring hop with the Simple protocol, and a launch."""
MEASURED_RAILS: Final = 8
SMALL_GROUP: Final = 4
"""Members up to which the switch does not reduce (H200, B200: stas00/ml-engineering)."""


class Span(msgspec.Struct, frozen=True):
    """Where the members of a group lie."""

    members: int
    domains: int = 1
    """NVLink domains that hold members of it."""
    taper_ppm: int = MILLION
    """Oversubscription of the way between the domains, 3,000,000 for 1:3."""

    @property
    def per_domain(self) -> int:
        """Members in the domain that has fewest: as many rails a ring can use."""
        return max(1, self.members // self.domains)


class Transfer(msgspec.Struct, frozen=True):
    """One operation of one group, and what the time rests on."""

    kind: Kind
    size_bytes: int
    span: Span
    ns: float
    how: How
    curve: str = ""


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """The links of a cluster of one class of GPU."""

    gpu: Gpu
    rail_gbps: float
    """GB/s of the network a GPU, one direction."""

    def ring_gbps(self) -> float:
        """What a ring reaches in one domain: the measured all-reduce of the largest size."""
        curve = self._curve(INSIDE)
        size, ns = curve.points[-1]
        return 2 * (curve.members - 1) / curve.members * size / ns * self._ring()

    def _curve(self, names: Mapping[Architecture, str]) -> Curve:
        return curves().curves[names[self.gpu.architecture]]

    def _ring(self) -> float:
        return curves().ring_ppm.get(self.gpu.architecture, MILLION) / MILLION

    def collective(self, kind: Kind, size_bytes: float, span: Span) -> Transfer:
        """An all-reduce, or one of its halves, of that size in full."""
        if span.members <= 1 or size_bytes <= 0:
            return Transfer(kind, round(size_bytes), span, 0.0, "none")
        half = kind != "all_reduce"
        inside, how = self._inside(half, size_bytes, span)
        ns, name = inside, INSIDE[self.gpu.architecture]
        if span.domains > 1:
            across, how_across = self._across(half, size_bytes, span)
            how = worse(how, how_across)
            if across > inside:
                ns, name = across, ACROSS[self.gpu.architecture]
        return Transfer(kind, round(size_bytes), span, ns / 2 if half else ns, how, name)

    def _inside(self, half: bool, size_bytes: float, span: Span) -> tuple[float, How]:
        curve = self._curve(INSIDE)
        factor = (span.members - 1) / span.members / ((curve.members - 1) / curve.members)
        if half or span.members <= SMALL_GROUP:
            factor = factor / self._ring()
        whole = time_ns(curve, size_bytes)
        ns = curve.least_ns + (whole - curve.least_ns) * factor
        if size_bytes > curve.bytes_max:
            return ns, "extrapolated"
        same = not half and span.members == curve.members and self.gpu.name == curve.gpu
        return ns, "interpolated" if same else "scaled"

    def _across(self, half: bool, size_bytes: float, span: Span) -> tuple[float, How]:
        curve = self._curve(ACROSS)
        inside = self._curve(INSIDE)
        on_rails = size_bytes * MEASURED_RAILS / span.per_domain
        measured = time_ns(curve, on_rails) - curve.least_ns
        size, ns = curve.points[-1]
        reached = 2 * (curve.members - 1) / curve.members * size / ns / MEASURED_RAILS
        factor = (span.members - 1) / span.members / ((curve.members - 1) / curve.members)
        own = self.rail_gbps * RAIL_PPM / span.taper_ppm
        ring = (span.domains - 1) * RING_RAIL_NS + (span.members - span.domains) * RING_LINK_NS
        tree = (span.domains - 1).bit_length() * TREE_RAIL_NS
        hops = 2 * ring if half else 2 * min(ring, tree)
        slower = measured * factor * reached / own
        return (
            inside.least_ns + hops + slower,
            "extrapolated" if on_rails > curve.bytes_max else "scaled",
        )

    def all_to_all(self, size_bytes: float, span: Span) -> Transfer:
        """Each rank sends `size_bytes` in all, evenly to all members."""
        if span.members <= 1 or size_bytes <= 0:
            return Transfer("all_to_all", round(size_bytes), span, 0.0, "none")
        near = (span.per_domain - 1) / span.members
        far = 1 - span.per_domain / span.members
        inside = size_bytes * near / self.ring_gbps()
        across = size_bytes * far * span.taper_ppm / (self.rail_gbps * RAIL_PPM)
        start = self._curve(INSIDE).least_ns + (SEND_NS if span.domains > 1 else 0)
        slower = max(inside, across, size_bytes * (near + far) / self.ring_gbps())
        return Transfer("all_to_all", round(size_bytes), span, start + slower, "assumed")

    def send(self, size_bytes: float, span: Span) -> Transfer:
        """From one rank to its neighbour."""
        if span.members <= 1 or size_bytes <= 0:
            return Transfer("send", round(size_bytes), span, 0.0, "none")
        inside = size_bytes / self.ring_gbps()
        if span.domains == 1:
            return Transfer("send", round(size_bytes), span, SEND_NS + inside, "assumed")
        rail = self.rail_gbps * curves().p2p_rail_ppm / span.taper_ppm
        return Transfer(
            "send", round(size_bytes), span, SEND_NS + max(inside, size_bytes / rail), "scaled"
        )
