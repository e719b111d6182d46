"""Best fit by subtree: the smallest group that holds the gang, and in it as few parts as can be.

The lowest level with a group that is large enough decides; of several the one where fewest shelves
are enough, then the tightest, so that large holes stay whole. Where a group must be filled from
several children, the largest go first and the last is the tightest that holds the rest.
Milliseconds at 12,500 nodes.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from nemesis.processors.placement.ground import Gang, Ground, Part, Placement
from nemesis.processors.topology.pool import sums


def best_fit(ground: Ground, gang: Gang) -> Placement:
    """A placement of a gang, () where the ground has no room for it."""
    room = [free // gang.segment for free in ground.free]
    if sum(room) < gang.segments:
        return ()
    for height, level in enumerate(ground.levels):
        inside: dict[int, list[int]] = {}
        for shelf, group in enumerate(level):
            inside.setdefault(group, []).append(shelf)
        fitting = [
            (
                _shelves([room[s] for s in members], gang.segments),
                sum(room[s] for s in members),
                group,
            )
            for group, members in inside.items()
            if sum(room[s] for s in members) >= gang.segments
        ]
        if fitting:
            return filled(ground, inside[min(fitting)[2]], height, room, gang)
    return ()


def _shelves(room: Sequence[int], need: int) -> int:
    """The fewest shelves that hold what is needed."""
    reached = accumulate(sorted(room, reverse=True))
    return next(at for at, total in enumerate(reached, 1) if total >= need)


def filled(
    ground: Ground, members: Sequence[int], height: int, room: Sequence[int], gang: Gang
) -> Placement:
    """The gang on these shelves, which have room for it: few parts, neighbours together."""
    return tuple(
        Part(shelf, count * gang.segment)
        for shelf, count in _shares(ground, members, height, room, gang.segments)
    )


def _shares(
    ground: Ground, members: Sequence[int], height: int, room: Sequence[int], need: int
) -> list[tuple[int, int]]:
    """(shelf, segments) of a group at this height."""
    if height == 0:
        return [(members[0], need)]
    level = ground.levels[height - 1]
    children = dict(sums([level[shelf] for shelf in members], [room[shelf] for shelf in members]))
    found: list[tuple[int, int]] = []
    while need:
        child = tightest(children, need)
        share = min(need, children.pop(child))
        inside = [shelf for shelf in members if level[shelf] == child]
        found += _shares(ground, inside, height - 1, room, share)
        need -= share
    return found


def tightest(room: Mapping[int, int], need: int) -> int:
    """The group with the least room that holds what is needed, else the one with the most."""
    enough = [(count, group) for group, count in room.items() if count >= need]
    if enough:
        return min(enough)[1]
    return min((-count, group) for group, count in room.items())[1]
