"""Prices under which no placement of a queue looks cheap: found by columns, in seconds.

A linear program chooses among the patterns that are known; its dual values are prices, and the
patterns that earn most under them are the next columns, until none earns more than it costs. What
prices are worth is computed in whole numbers (`placement.priced`): the search may stop any time.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs

from nemesis.processors.placement.ground import Gang, Ground
from nemesis.processors.placement.priced import Level, Pattern, Prices, level_of, priced

SHARPNESS: Final = 10**9
"""Parts of the largest weight in which prices are told."""
ROOM_MAX: Final = 1024
"""Nodes of the largest switch whose patterns are tried: work grows with the square."""
STALE: Final = 60
"""Rounds without a better bound that end the search."""


def least(
    ground: Ground, gangs: Sequence[Gang], weights: Sequence[Sequence[int]], *, seconds: float
) -> tuple[int, ...]:
    """By level that costs something, what touching it costs all these gangs at least.

    `weights`: by gang, of each level; the sum over levels is a bound of the whole.
    """
    heights = range(min(len(ground.levels), len(weights[0])))
    until = time.monotonic() + seconds
    return tuple(
        _least(level_of(ground, height, gangs, [own[height] for own in weights]), until)
        for height in heights
    )


def _least(level: Level, until: float) -> int:
    """The best bound that is found in time; that of each gang alone where patterns are too many."""
    alone = sum(w * least for w, least in zip(level.weights, level.fewest, strict=True))
    switches = sum(count for _, count in level.rooms)
    if switches <= 1 or level.rooms[-1][0] > ROOM_MAX or not max(level.weights):
        return alone
    master = _Master(level)
    best, stale = alone, 0
    while time.monotonic() < until and stale < STALE:
        cost, prices = master.solved()
        found = priced(level, prices)
        stale = 0 if found.bound > best else stale + 1
        best = max(best, found.bound)
        if best >= cost - 1e-6 or not master.extended(found.patterns):
            break
    return best


class _Master:
    """The linear program over patterns: rows are segments and touches by gang, and rooms."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self._unit = max(1, SHARPNESS // max(level.weights))
        self._highs: Any = _Highs()
        for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 1)):
            self._highs.setOptionValue(name, value)
        count, infinite = len(level.gangs), highspy.kHighsInf
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = 0, 2 * count + len(level.rooms)
        wanted = [float(gang.segments) for gang in level.gangs] + [float(n) for n in level.fewest]
        lp.row_lower_ = np.array(wanted + [-infinite] * len(level.rooms))
        lp.row_upper_ = np.array([infinite] * (2 * count) + [float(n) for _, n in level.rooms])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.zeros(1, np.int32)
        self._highs.passModel(lp)
        switches = sum(number for _, number in level.rooms)
        for number, (gang, weight) in enumerate(zip(level.gangs, level.weights, strict=True)):
            self._column(weight * switches, [number, count + number], [gang.segments, switches])

    def solved(self) -> tuple[float, Prices]:
        """(what the known patterns come to, prices)."""
        self._highs.run()
        count = len(self._level.gangs)
        dual = np.maximum(0.0, np.array(self._highs.getSolution().row_dual[: 2 * count]))
        whole = [round(each) for each in (dual * self._unit).tolist()]
        cost = float(self._highs.getInfo().objective_function_value)
        return cost, Prices(tuple(whole[:count]), tuple(whole[count:]), self._unit)

    def extended(self, patterns: Sequence[tuple[int, Pattern]]) -> bool:
        """Whether any of these patterns is new."""
        gained, count = False, len(self._level.gangs)
        for at, (_, pattern) in enumerate(patterns):
            own = tuple(sorted(pattern.items()))
            if not own or (at, own) in self._known:
                continue
            self._known.add((at, own))
            gangs = [gang for gang, _ in own]
            rows = [*gangs, *(count + gang for gang in gangs), 2 * count + at]
            values = [*(segments for _, segments in own), *([1] * len(own)), 1]
            self._column(sum(self._level.weights[gang] for gang in gangs), rows, values)
            gained = True
        return gained

    def _column(self, cost: int, rows: Sequence[int], values: Sequence[int]) -> None:
        self._highs.addCol(
            float(cost),
            0.0,
            highspy.kHighsInf,
            len(rows),
            np.array(rows, np.int32),
            np.array(values, np.float64),
        )
