"""Kueue's topology-aware scheduling: best fit, least free capacity, balanced.

KEP-2724 of kubernetes-sigs/kueue, "Computing the assignment" and "Balanced placement". A request
names a level; `required` must fit into one domain of it, `preferred` climbs until one fits and at
the top takes several. Below, each level takes from the domains of the one above together. Pods go
to domains in the order of their names. Slices are the segments of a gang.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from nemesis.processors.placement.ground import Gang, Ground, Part, Placement
from nemesis.processors.placement.subtree import tightest
from nemesis.processors.topology.pool import sums

Profile = Literal["best-fit", "least-free"]


def kueue(
    ground: Ground,
    gang: Gang,
    *,
    level: int = 0,
    required: bool = False,
    profile: Profile = "best-fit",
) -> Placement:
    """The placement for a request at a level (0: the shelves), () where it must wait."""
    room = [free // gang.segment for free in ground.free]
    levels = ground.levels
    height = level if required else _first_fitting(levels, room, gang.segments, level)
    domains = sums(levels[height], room)
    fitting = {group: count for group, count in domains.items() if count >= gang.segments}
    if not fitting and (required or sum(room) < gang.segments):
        return ()
    chosen = _taken(fitting or domains, gang.segments, profile)
    for below in range(height - 1, -1, -1):
        inside = [s for s in range(len(room)) if levels[below + 1][s] in chosen]
        domains = sums([levels[below][s] for s in inside], [room[s] for s in inside])
        chosen = _taken(domains, gang.segments, profile)
    return tuple(Part(shelf, chosen[shelf] * gang.segment) for shelf in sorted(chosen))


def _first_fitting(
    levels: Sequence[Sequence[int]], room: Sequence[int], need: int, level: int
) -> int:
    """The lowest level from this one up with a domain that holds all, else the top."""
    heights = range(level, len(levels))
    fits = (h for h in heights if max(sums(levels[h], room).values()) >= need)
    return next(fits, len(levels) - 1)


def _taken(domains: Mapping[int, int], need: int, profile: Profile) -> dict[int, int]:
    """How much of each domain is taken."""
    left, found = dict(domains), dict[int, int]()
    while need and left:
        if profile == "best-fit":
            domain = tightest(left, need)
        else:
            domain = min((count, group) for group, count in left.items())[1]
        share = min(need, left.pop(domain))
        if share:
            found[domain] = share
        need -= share
    return found


def kueue_balanced(ground: Ground, gang: Gang, *, level: int = 1) -> Placement:
    """Even shares: the least share as large as can be, then as few domains as can be.

    `level`: the domain inside which shelves are balanced; where none of it holds the gang, the next
    one up.
    """
    room = [free // gang.segment for free in ground.free]
    for height in range(level, len(ground.levels)):
        domains = sums(ground.levels[height], room)
        fitting = [(count, group) for group, count in domains.items() if count >= gang.segments]
        if fitting:
            _, group = min(fitting)
            inside = [s for s in range(len(room)) if ground.levels[height][s] == group]
            shares = _balanced([room[s] for s in inside], gang.segments)
            return tuple(
                Part(shelf, share * gang.segment)
                for shelf, share in zip(inside, shares, strict=True)
                if share
            )
    return ()


def _balanced(room: Sequence[int], need: int) -> list[int]:
    """By shelf, its share; the shelves have room for all together."""
    order = sorted(range(len(room)), key=lambda at: (-room[at], at))
    best: tuple[int, int] | None = None
    total = 0
    for count, at in enumerate(order, 1):
        total += room[at]
        if total >= need and room[at]:
            least = min(room[at], need // count)
            if best is None or least > best[0]:
                best = least, count
    assert best is not None, "there is room for all together"
    least, count = best
    used = sorted(order[:count])
    shares = [0] * len(room)
    for at in used:
        shares[at] = least
    rest = need - least * count
    while rest:
        for at in used:
            if rest and shares[at] < room[at]:
                shares[at] += 1
                rest -= 1
    return shares
