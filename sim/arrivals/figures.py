"""What a trace did to a cluster: how busy it was, who waited how long, what lay idle in pieces.

Fragmentation after the usual measure: of F free nodes, gangs of g nodes can use floor(F / g) * g;
close together, floor(f / g) * g of each group of the lowest tier that has groups as large as g.
Of several sizes that wait, the one that can use most counts. Both shares are means over the time
in which somebody waits, weighted by what is free then.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from typing import Final

import msgspec

from nemesis.processors.topology.pool import TIER_NAMES
from nemesis.sim.arrivals.planner import Course, Refusal, Stay
from nemesis.sim.topology.cluster import NODES_MAX, Cluster
from nemesis.sim.topology.pool import pool_of

BUCKETS: Final = 48
"""Of the whole course, for a picture."""
CLASSES: Final = ((1, 1), (2, 4), (5, 16), (17, 64), (65, NODES_MAX))
"""Nodes of a gang, from and to."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs of a class waited."""

    nodes: str
    """`all`, `1 node`, `2-4 nodes`, ..."""
    count: int
    p50_s: int
    p95_s: int
    most_s: int


class Closeness(msgspec.Struct, frozen=True, kw_only=True):
    """Gangs of several nodes that one group of a tier could hold, and those that lay in one."""

    tier: str
    possible: int
    inside: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trace, in numbers. Shares are of 1."""

    scheduler: str
    ran: int
    backfilled: int
    refused: tuple[Refusal, ...]
    span_s: int
    """From the first submission to the last end."""
    utilisation: float
    """GPUs that jobs asked for and had, of all, from the first submission to the last."""
    utilisation_over: tuple[float, ...]
    """The same by equal parts of the whole span."""
    waits: tuple[Waits, ...]
    waiting_s: int
    """How long somebody waited."""
    free: float
    """GPUs that were free meanwhile, of all."""
    unusable: float
    """Of these, what no gang that waited could have used."""
    unusable_close: float
    """Of these, what none could have used as close together as it can lie."""
    closeness: tuple[Closeness, ...]


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a cluster by tier, from the leaf up; the last is all of them."""

    size: int
    """GPUs of a node."""
    names: tuple[str, ...]
    of: tuple[dict[str, int], ...]
    """By tier, the group of each node."""
    largest: tuple[int, ...]
    """By tier, nodes of the largest group."""

    @property
    def gpu_count(self) -> int:
        """Of the whole cluster."""
        return self.size * len(self.of[0])

    def tier_of(self, nodes: int) -> int:
        """The lowest tier with a group that holds so many."""
        return next(at for at, most in enumerate(self.largest) if most >= nodes)


def groups_of(cluster: Cluster) -> Groups:
    """The groups of a cluster."""
    pool = pool_of(cluster)
    of = tuple(dict(zip(pool.nodes, tier, strict=True)) for tier in pool.tiers)
    return Groups(
        size=len(cluster.node.gpus),
        names=tuple(TIER_NAMES[: len(of)]),
        of=of,
        largest=tuple(max(Counter(tier.values()).values()) for tier in of),
    )


def figures_of(name: str, course: Course, groups: Groups) -> Figures:
    """The figures of a course in which somebody ran."""
    stays = course.stays
    begin_s = min(stay.arrival.submitted_s for stay in stays)
    last_s = max(stay.arrival.submitted_s for stay in stays)
    end_s = max(stay.ended_s for stay in stays)
    free, unusable, close, waiting_s = _idle(stays, groups)
    over = _parts(stays, begin_s, end_s)
    return Figures(
        scheduler=name,
        ran=len(stays),
        backfilled=sum(stay.backfilled for stay in stays),
        refused=course.refused,
        span_s=end_s - begin_s,
        utilisation=_busy(stays, begin_s, last_s) / groups.gpu_count,
        utilisation_over=tuple(busy / groups.gpu_count for busy in over),
        waits=tuple(_waits(stays, groups.size)),
        waiting_s=waiting_s,
        free=free,
        unusable=unusable,
        unusable_close=close,
        closeness=tuple(_closeness(stays, groups)),
    )


def _busy(stays: Iterable[Stay], from_s: float, to_s: float) -> float:
    """GPUs that jobs had on average."""
    if to_s <= from_s:
        return 0.0
    held = (
        max(0.0, min(to_s, stay.ended_s) - max(from_s, stay.began_s)) * stay.arrival.gpu_count
        for stay in stays
    )
    return sum(held) / (to_s - from_s)


def _parts(stays: Sequence[Stay], begin_s: int, end_s: int) -> list[float]:
    edges = [begin_s + (end_s - begin_s) * at / BUCKETS for at in range(BUCKETS + 1)]
    return [_busy(stays, edges[at], edges[at + 1]) for at in range(BUCKETS)]


def _waits(stays: Sequence[Stay], size: int) -> Iterable[Waits]:
    yield _waits_of("all", [stay.waited_s for stay in stays])
    for least, most in CLASSES:
        nodes = "1 node" if most == 1 else f"{least}-{most} nodes"
        told = nodes if most < NODES_MAX else f"{least} nodes and more"
        waits = [stay.waited_s for stay in stays if least <= stay.arrival.nodes(size) <= most]
        yield _waits_of(told, waits)


def _waits_of(nodes: str, waits: list[int]) -> Waits:
    ranked = sorted(waits) or [0]
    p50, p95 = (ranked[ceil(len(ranked) * share) - 1] for share in (0.5, 0.95))
    return Waits(nodes=nodes, count=len(waits), p50_s=p50, p95_s=p95, most_s=ranked[-1])


def _closeness(stays: Sequence[Stay], groups: Groups) -> Iterable[Closeness]:
    gangs = [stay for stay in stays if len(stay.nodes) > 1]
    for at, tier in enumerate(groups.names[:-1]):
        fit = [stay for stay in gangs if len(stay.nodes) <= groups.largest[at]]
        inside = sum(len({groups.of[at][node] for node in stay.nodes}) == 1 for stay in fit)
        yield Closeness(tier=tier, possible=len(fit), inside=inside)


def _idle(stays: Sequence[Stay], groups: Groups) -> tuple[float, float, float, int]:
    """(free of all, unusable of free, unusable close together, seconds) while somebody waited."""
    free = [Counter(tier.values()) for tier in groups.of]
    waiting: Counter[int] = Counter()
    changes = _changes(stays)
    moments = sorted(changes)
    seconds = free_s = unusable_s = close_s = 0
    for now_s, next_s in pairwise(moments):
        for stay, more_free, more_wait in changes[now_s]:
            waiting[len(stay.nodes)] += more_wait
            for of, counts in zip(groups.of, free, strict=True):
                for node in stay.nodes:
                    counts[of[node]] += more_free
        sizes = [size for size, count in waiting.items() if count]
        if sizes:
            passed_s, left = next_s - now_s, free[-1].total()
            close = max(_used(free[groups.tier_of(size)].values(), size) for size in sizes)
            seconds += passed_s
            free_s += left * passed_s
            unusable_s += (left - max(_used([left], size) for size in sizes)) * passed_s
            close_s += (left - close) * passed_s
    nodes = len(groups.of[0])
    return (
        free_s / seconds / nodes if seconds else 0.0,
        unusable_s / free_s if free_s else 0.0,
        close_s / free_s if free_s else 0.0,
        seconds,
    )


def _changes(stays: Iterable[Stay]) -> dict[int, list[tuple[Stay, int, int]]]:
    """By second: (whose, by how much more of its nodes is free, how many more gangs wait)."""
    found: dict[int, list[tuple[Stay, int, int]]] = {}
    for stay in stays:
        found.setdefault(stay.arrival.submitted_s, []).append((stay, 0, 1))
        found.setdefault(stay.began_s, []).append((stay, -1, -1))
        found.setdefault(stay.ended_s, []).append((stay, 1, 0))
    return found


def _used(groups: Iterable[int], size: int) -> int:
    """Nodes that gangs of one size can use, each in one group."""
    return sum(free // size * size for free in groups)
