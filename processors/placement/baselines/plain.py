"""Two that know nothing of switches: at random, and onto what is fullest.

The first is what a scheduler without topology comes to after a while; the second packs GPUs, as
cluster autoscalers want it. Both were baselines of Arnold (arXiv 2509.15940, section 5).
"""

from collections.abc import Callable, Sequence

from nemesis.processors.placement.ground import Gang, Ground, Part, Placement, filled

Pick = Callable[[Sequence[int]], int]
"""One of several shelves by its place in the list; the dice are the caller's."""


def at_random(ground: Ground, gang: Gang, pick: Pick) -> Placement:
    """Segments on any nodes that are free, in the order in which they were drawn."""
    slots = [s for s, free in enumerate(ground.free) for _ in range(free // gang.segment)]
    if len(slots) < gang.segments:
        return ()
    found: list[Part] = []
    for _ in range(gang.segments):
        shelf = slots.pop(pick(slots))
        found.append(Part(shelf, gang.segment))
    return tuple(found)


def packed(ground: Ground, gang: Gang) -> Placement:
    """Shelves with the least room first, wherever they are."""
    return filled(ground, gang, sorted(range(len(ground.free)), key=lambda s: (ground.free[s], s)))
