"""Placements of a queue made better by taking two gangs out and putting them back the other way.

Best fit places one gang after the other, so a late one pays for what an early one did not need. A
gang that touches more than it would alone is taken out with each other one in turn; both are placed
anew, in either order, and what is cheaper is kept. It stops after a round without a gain, or after
so many attempts: counted, not timed, so that it ends the same everywhere.
"""

from collections.abc import Sequence

from nemesis.processors.placement.bounds import lower_bound
from nemesis.processors.placement.ground import Gang, Ground, Part, Placement, cost
from nemesis.processors.placement.subtree import best_fit


def exchanged(
    ground: Ground,
    gangs: Sequence[Gang],
    weights: Sequence[Sequence[int]],
    placements: Sequence[Placement],
    *,
    attempts_max: int,
) -> tuple[Placement, ...]:
    """Placements that cost no more than those given, which hold; `weights`: by gang, by level."""
    now = list(placements)
    free = ground
    for placement in now:
        free = free.less(placement)
    left = attempts_max
    gained = True
    while gained and left > 0:
        gained = False
        for first in _by_excess(ground, gangs, weights, now):
            for second in range(len(gangs)):
                if second == first or left <= 0:
                    continue
                left -= 1
                better = _again(
                    free,
                    (gangs[first], gangs[second]),
                    (weights[first], weights[second]),
                    (now[first], now[second]),
                )
                if better is not None:
                    free, now[first], now[second] = better
                    gained = True
    return tuple(now)


def _by_excess(
    ground: Ground,
    gangs: Sequence[Gang],
    weights: Sequence[Sequence[int]],
    now: Sequence[Placement],
) -> list[int]:
    """The gangs that touch more than they would alone, the worst first."""
    excess = [
        cost(ground, placement, own) - lower_bound(ground, [gang], own)
        for gang, own, placement in zip(gangs, weights, now, strict=True)
    ]
    return sorted((at for at, each in enumerate(excess) if each > 0), key=lambda at: -excess[at])


def _again(
    free: Ground,
    pair: tuple[Gang, Gang],
    weights: tuple[Sequence[int], Sequence[int]],
    placed: tuple[Placement, Placement],
) -> tuple[Ground, Placement, Placement] | None:
    """(what is free then, both placements) where placing both anew is cheaper."""
    both = _returned(free, (*placed[0], *placed[1]))
    before = sum(cost(free, each, own) for each, own in zip(placed, weights, strict=True))
    best: tuple[Ground, Placement, Placement] | None = None
    for early, late in ((0, 1), (1, 0)):
        first = best_fit(both, pair[early])
        rest = both.less(first)
        second = best_fit(rest, pair[late])
        if first and second:
            total = cost(free, first, weights[early]) + cost(free, second, weights[late])
            if total < before:
                before = total
                ordered = (first, second) if early == 0 else (second, first)
                best = (rest.less(second), *ordered)
    return best


def _returned(ground: Ground, parts: Sequence[Part]) -> Ground:
    """The ground with these nodes free again."""
    free = list(ground.free)
    for part in parts:
        free[part.shelf] += part.nodes
    return Ground(tuple(free), ground.tiers)
