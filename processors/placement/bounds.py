"""What no placement can beat: the fewest groups of each level that can hold a gang.

Of the groups of a level, sorted by room, the shortest prefix with enough room is the least number
that any placement touches. Levels are bounded one by one and gangs each by themselves, so the sum
is never above the optimum; a solver's bound is sharper and slower.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from nemesis.processors.placement.ground import Gang, Ground
from nemesis.processors.topology.pool import sums


def fewest(ground: Ground, level: Sequence[int], gang: Gang) -> int:
    """The least number of groups of a level that hold a gang, 0 where all together do not."""
    room = sums(level, [free // gang.segment for free in ground.free])
    reached = accumulate(sorted(room.values(), reverse=True))
    return next((at for at, total in enumerate(reached, 1) if total >= gang.segments), 0)


def lower_bound(ground: Ground, gangs: Iterable[Gang], weights: Sequence[int]) -> int:
    """No placement of these gangs costs less."""
    return sum(
        weight * fewest(ground, level, gang)
        for gang in gangs
        for weight, level in zip(weights, ground.levels, strict=False)
    )
