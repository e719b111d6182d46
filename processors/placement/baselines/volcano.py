"""Volcano's network-topology-aware scheduling: the lowest tier that fits, then the fullest.

volcano-sh/volcano, docs/design/network-topology-aware-scheduling.md. Tiers count from 1, the
HyperNodes of leaves. From the lowest tier up to the highest allowed a gang is tried in each
HyperNode; of one tier the one that is fullest wins. Inside, tasks are placed one after the other:
nearest to those that are placed, then where least is free. `soft` takes any HyperNode, and at
last the whole cluster.
"""

from nemesis.processors.placement.ground import Gang, Ground, Placement, filled
from nemesis.processors.topology.pool import sums


def volcano(ground: Ground, gang: Gang, *, highest_tier: int = 0, soft: bool = False) -> Placement:
    """The placement, () where the job stays pending; `highest_tier` 0: any."""
    room = [free // gang.segment for free in ground.free]
    top = len(ground.levels)
    last = top if soft or not highest_tier else min(top, highest_tier)
    for height in range(last):
        level = ground.levels[height]
        fitting = [(count, g) for g, count in sums(level, room).items() if count >= gang.segments]
        if fitting:
            _, group = min(fitting)
            inside = [s for s in range(len(room)) if level[s] == group]
            return _one_by_one(ground, gang, {s: room[s] for s in inside})
    return ()


def _one_by_one(ground: Ground, gang: Gang, room: dict[int, int]) -> Placement:
    """Segments in turn, each as near as can be to those before it, then where least is free.

    All of the lowest group around the first are equally near once one of them is taken, so it is
    enough to go up from the first shelf, group by group.
    """
    first = min((count, shelf) for shelf, count in room.items() if count)[1]
    order: list[int] = []
    for level in ground.levels:
        near = [shelf for shelf, count in room.items() if count and level[shelf] == level[first]]
        order += sorted(set(near) - set(order), key=lambda shelf: (room[shelf], shelf))
    return filled(ground, gang, order)
