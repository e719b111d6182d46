"""Every placement there is, where so few nodes are free that all can be tried: the judge."""

from collections.abc import Iterator, Sequence
from typing import Final

from nemesis.processors.placement.ground import Gang, Ground, Part, Placement, cost

NODES_MAX: Final = 12
"""Beyond it there are too many."""


def optimum(ground: Ground, gangs: Sequence[Gang], weights: Sequence[int]) -> tuple[Placement, ...]:
    """The cheapest placement of all gangs together, the first of equals; () where none is."""
    assert sum(ground.free) <= NODES_MAX, f"all placements are tried for {NODES_MAX} nodes at most"
    best: tuple[int, tuple[Placement, ...]] | None = None
    for found in _joint(ground, list(gangs)):
        total = sum(cost(ground, placement, weights) for placement in found)
        if best is None or total < best[0]:
            best = total, found
    return best[1] if best else ()


def _joint(ground: Ground, gangs: list[Gang]) -> Iterator[tuple[Placement, ...]]:
    if not gangs:
        yield ()
        return
    for placement in _single(ground, gangs[0]):
        for rest in _joint(ground.less(placement), gangs[1:]):
            yield (placement, *rest)


def _single(ground: Ground, gang: Gang) -> Iterator[Placement]:
    def spread(shelf: int, need: int) -> Iterator[Placement]:
        if need == 0:
            yield ()
            return
        if shelf == len(ground.free):
            return
        for share in range(min(need, ground.free[shelf] // gang.segment), -1, -1):
            part = (Part(shelf, share * gang.segment),) if share else ()
            for rest in spread(shelf + 1, need - share):
                yield (*part, *rest)

    yield from spread(0, gang.segments)
