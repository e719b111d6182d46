"""All gangs of a queue at once, within a time: good places, what they must cost, then the program.

Best fit depends on who comes first, so it is begun anew in many orders, each improved by exchanges;
the solver starts from the best. The bound of prices goes into the program as a condition a level,
where it says more than each gang alone does: the solver would have to find it by branching.
"""

import time
from collections.abc import Sequence
from operator import mul
from random import Random
from typing import Final

from msgspec.structs import replace

from nemesis.actors.solver.highs import solve
from nemesis.actors.solver.prices import least
from nemesis.processors.placement.counts import Answer, Program, greedy, program, values_of
from nemesis.processors.placement.exchange import exchanged
from nemesis.processors.placement.ground import Gang, Ground, Placement, cost

ORDERS_SHARE: Final = 0.25
BOUND_SHARE: Final = 0.35
"""Of the time, that orders and prices may take; the solver has the rest."""
ATTEMPTS: Final = 500
"""Exchanges an order."""
NOISE: Final = 1.0
"""A gang comes as early as one up to twice as large."""


def together(
    ground: Ground, gangs: Sequence[Gang], weights: Sequence[Sequence[int]], *, seconds: float
) -> tuple[Program, Answer]:
    """What was asked, and the best that is found in so many seconds; `weights`: by gang."""
    begun = time.monotonic()
    known = least(ground, gangs, weights, seconds=seconds * BOUND_SHARE)
    start = _placed(ground, gangs, weights, sum(known), time.monotonic() + seconds * ORDERS_SHARE)
    asked = program(ground, gangs, weights, least=known)
    values = values_of(asked, ground, gangs, start) if start else ()
    bound = float(sum(known))
    if start and sum(map(mul, asked.mip.costs, values)) <= bound:
        return asked, Answer(values, bound, "optimal")
    left = max(0.0, seconds - (time.monotonic() - begun))
    answer = solve(asked.mip, seconds=left, start=values)
    return asked, replace(answer, values=answer.values or values, bound=max(answer.bound, bound))


def _placed(
    ground: Ground,
    gangs: Sequence[Gang],
    weights: Sequence[Sequence[int]],
    bound: int,
    until: float,
) -> tuple[Placement, ...]:
    """The cheapest places by any order, as many as there are pairs of gangs and time for."""
    dice, best, cheapest = Random(1), tuple[Placement, ...](), 0  # noqa: S311
    order: list[int] = []  # the largest first
    for _ in range(len(gangs) ** 2):
        found = greedy(ground, gangs, order)
        if found:
            found = exchanged(ground, gangs, weights, found, attempts_max=ATTEMPTS)
            total = sum(cost(ground, each, own) for each, own in zip(found, weights, strict=True))
            if not best or total < cheapest:
                best, cheapest = found, total
        if (best and cheapest <= bound) or time.monotonic() >= until:
            break
        keys = [gang.nodes * (1 + NOISE * dice.random()) for gang in gangs]
        order = sorted(range(len(gangs)), key=lambda at: -keys[at])
    return best
