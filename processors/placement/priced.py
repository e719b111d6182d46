"""A bound by prices: what no placement of several gangs on one level of switches can beat.

`bounds.fewest` counts each gang alone, as if it had all switches to itself. Here gangs compete.
Each pays a price for every segment that is placed, and gets something back for each switch that it
must touch anyway; each switch takes the mix of gangs, its *pattern*, that earns most beyond what
touching costs. What all gangs pay, less what all switches earn, is below the cost of any placement,
whatever the prices are (Lagrangian relaxation over the patterns of Gilmore and Gomory, Operations
Research 9, 1961). So anyone may find prices, in floats; the bound is computed in whole numbers.
"""

from collections.abc import Sequence
from math import gcd

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.placement.bounds import fewest
from nemesis.processors.placement.ground import Gang, Ground
from nemesis.processors.topology.pool import sums

Pattern = dict[int, int]
"""By gang that touches a switch, its segments there."""


class Level(msgspec.Struct, frozen=True):
    """Switches of one level, and what gangs want of them."""

    gangs: tuple[Gang, ...]
    weights: tuple[int, ...]
    """By gang, what touching one more of them costs."""
    fewest: tuple[int, ...]
    """By gang, how many it must touch."""
    rooms: tuple[tuple[int, int], ...]
    """(free nodes, how many switches have as many), those with least first."""


class Prices(msgspec.Struct, frozen=True):
    """By gang, in parts of a weight: what it pays for a segment and gets back for a touch."""

    segment: tuple[int, ...]
    touch: tuple[int, ...]
    unit: int
    """How many parts a weight of one has."""


class Priced(msgspec.Struct, frozen=True):
    """What prices show."""

    bound: int
    patterns: tuple[tuple[int, Pattern], ...]
    """(free nodes, what earns most there), for each size of switch; {} where nothing earns."""


def level_of(ground: Ground, height: int, gangs: Sequence[Gang], weights: Sequence[int]) -> Level:
    """A level of the ground; `weights`: by gang."""
    level = ground.levels[height]
    counts: dict[int, int] = {}
    for room in sums(level, ground.free).values():
        counts[room] = counts.get(room, 0) + 1
    return Level(
        gangs=tuple(gangs),
        weights=tuple(weights),
        fewest=tuple(fewest(ground, level, gang) for gang in gangs),
        rooms=tuple(sorted(pair for pair in counts.items() if pair[0])),
    )


def priced(level: Level, prices: Prices) -> Priced:
    """The bound that prices show, rounded up to what a sum of weights can be."""
    most = max(room for room, _ in level.rooms)
    best, choices = _earned(level, prices, most)
    paid = sum(p * gang.segments for p, gang in zip(prices.segment, level.gangs, strict=True))
    back = sum(p * least for p, least in zip(prices.touch, level.fewest, strict=True))
    earned = sum(count * int(best[room]) for room, count in level.rooms)
    step = gcd(*level.weights) * prices.unit
    bound = -(-(paid + back - earned) // step) * gcd(*level.weights)
    patterns = tuple((room, _pattern(level.gangs, choices, room)) for room, _ in level.rooms)
    return Priced(max(0, bound), patterns)


Choices = NDArray[np.int64] | None


def _earned(level: Level, prices: Prices, most: int) -> tuple[NDArray[np.int64], list[Choices]]:
    """(by free nodes, the most that a switch earns; by gang and free nodes, its segments then)."""
    best = np.zeros(most + 1, np.int64)
    choices: list[Choices] = []
    rows = zip(level.gangs, level.weights, prices.segment, prices.touch, strict=True)
    for gang, weight, price, back in rows:
        fixed = weight * prices.unit - back
        segments = np.arange(1, min(gang.segments, most // gang.segment) + 1)
        if not len(segments) or max(price, price * int(segments[-1])) <= fixed:
            choices.append(None)
            continue
        before = np.concatenate([np.full(most + 1, np.iinfo(np.int64).min // 2), best])
        start = most + 1 - segments * gang.segment
        options = np.lib.stride_tricks.sliding_window_view(before, most + 1)[start]
        options = np.vstack([best, options + (segments * price - fixed)[:, None]])
        chosen = options.argmax(axis=0)
        best = options[chosen, np.arange(most + 1)]
        choices.append(chosen.astype(np.int64))
    return best, choices


def _pattern(gangs: Sequence[Gang], choices: Sequence[Choices], room: int) -> Pattern:
    found: Pattern = {}
    for number in reversed(range(len(gangs))):
        chosen = choices[number]
        if chosen is not None and chosen[room]:
            found[number] = int(chosen[room])
            room -= found[number] * gangs[number].segment
    return found
