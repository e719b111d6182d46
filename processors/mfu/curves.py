"""Measured NCCL curves: how long an all-reduce of so many bytes took, and where that was measured.

No line of latency and bandwidth follows such a curve, because NCCL changes its protocol with the
size; so times are read from the measured points themselves. `data/nccl_busbw/` has the
points and their sources, and makes `curves.json`, in which the way between two of them is drawn on
logarithmic axes, eight steps to an octave.
"""

from bisect import bisect_left
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from nemesis.processors.mfu.gpus import Architecture

How = Literal["none", "interpolated", "scaled", "extrapolated", "assumed"]
"""Of a time: none was needed; read between two measured points of such a group; the same carried
over to other members, rails or kinds; beyond the measured sizes; no measurement at all."""
_WORST: Final[tuple[How, ...]] = ("none", "interpolated", "scaled", "extrapolated", "assumed")

INSIDE: Final[dict[Architecture, str]] = {
    "volta": "a100_1n_azure",
    "ampere": "a100_1n_azure",
    "hopper": "h100_1n_azure",
    "blackwell": "b200_1n_p6_stas",
}
ACROSS: Final[dict[Architecture, str]] = {
    "volta": "a100_2n_p4de_efa",
    "ampere": "a100_2n_p4de_efa",
    "hopper": "h100_2n_p5_efa",
    "blackwell": "b200_4n_p6_stas",
}


class Curve(msgspec.Struct, frozen=True):
    """Of one all-reduce: bytes and ns, both rising."""

    source: str
    gpu: str
    members: int
    domains: int
    points: list[tuple[int, int]]

    @property
    def least_ns(self) -> int:
        return self.points[0][1]

    @property
    def bytes_max(self) -> int:
        return self.points[-1][0]


class Curves(msgspec.Struct, frozen=True):
    """All of them, and what a ring reaches of what the switch reaches."""

    curves: dict[str, Curve]
    ring_ppm: dict[str, int]
    p2p_rail_ppm: int
    """Of a rail's data-sheet rate, send and receive."""


@cache
def curves() -> Curves:
    """What this release has measured."""
    file = files("nemesis.processors.mfu").joinpath("curves.json")
    return msgspec.json.decode(file.read_bytes(), type=Curves)


def time_ns(curve: Curve, size_bytes: float) -> float:
    """How long that size takes; beyond the largest at the rate of the largest."""
    points = curve.points
    if size_bytes <= points[0][0]:
        return float(points[0][1])
    if size_bytes >= points[-1][0]:
        return points[-1][1] * size_bytes / points[-1][0]
    at = bisect_left(points, size_bytes, key=lambda point: point[0])
    (size, ns), (next_size, next_ns) = points[at - 1], points[at]
    return ns + (next_ns - ns) * (size_bytes - size) / (next_size - size)


def worse(one: How, other: How) -> How:
    """The less certain of two."""
    return one if _WORST.index(one) > _WORST.index(other) else other
