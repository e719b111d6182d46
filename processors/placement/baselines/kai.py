"""KAI-Scheduler's topology plugin: the fitting domain with least room, in it the emptiest first.

NVIDIA/KAI-Scheduler, docs/developer/designs/topology-awareness. A job names a required or a
preferred level; domains are tried from the lowest that fits. Domains are packed, so that large
holes stay; inside, sub-domains with the most room come first, so that a job stays on few.
"""

from nemesis.processors.placement.ground import Gang, Ground, Placement, filled
from nemesis.processors.topology.pool import sums


def kai(ground: Ground, gang: Gang, *, required: int | None = None) -> Placement:
    """The placement, () where none of a domain at the required level holds the gang."""
    room = [free // gang.segment for free in ground.free]
    last = len(ground.levels) if required is None else required + 1
    for height in range(last):
        level = ground.levels[height]
        fitting = [(count, g) for g, count in sums(level, room).items() if count >= gang.segments]
        if fitting:
            _, group = min(fitting)
            inside = [s for s in range(len(room)) if level[s] == group]
            return _emptiest_first(ground, gang, inside, room, height)
    return ()


def _emptiest_first(
    ground: Ground, gang: Gang, inside: list[int], room: list[int], height: int
) -> Placement:
    below = ground.levels[max(0, height - 1)]
    by_child = sums([below[s] for s in inside], [room[s] for s in inside])
    order = sorted(inside, key=lambda s: (-by_child[below[s]], below[s], -room[s], s))
    return filled(ground, gang, order)
