"""From logits to hazards that mean what they say: isotonic, one horizon at a time, as tables.

Each part's hazard is fitted on the GPUs at risk in it, weighted to a fleet, by pooling adjacent
violators (Ayer et al., 1955). A table never falls, so chances never do. Where pooled steps saw no
failure, the hazard is that of half a life that fails: 0 would claim more than was seen.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, UNIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
PSEUDO_EVENTS: Final = 0.5


class Rates(msgspec.Struct, frozen=True):
    """Pooled rates."""

    rates: Floats
    """[place], rising"""
    blocks: Ints
    """[place]: which of the pools it is in"""


def pooled(positives: Floats, totals: Floats) -> Rates:
    """The rising rates nearest to positives / totals, each weighted by its total.

    Places without any take the value of the one before them.
    """
    blocks: list[tuple[float, float, int]] = []
    for positive, total in zip(positives.tolist(), totals.tolist(), strict=True):
        block = (positive, total, 1)
        while blocks and block[0] * blocks[-1][1] <= blocks[-1][0] * block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    rates = [(positive / total if total else 0.0) for positive, total, _ in blocks]
    lengths = [length for *_, length in blocks]
    found = np.maximum.accumulate(np.repeat(rates, lengths))
    return Rates(found, np.repeat(np.arange(len(blocks)), lengths))


def isotonic(places: Ints, happened: Flags, weights: Floats, lives: Ints, count: int) -> Floats:
    """[count]: rising rates of what happened at each place, as sure as lives allow.

    `places`, `happened`, `weights`, `lives` [step]. Steps of a life are no news to one another: a
    pool whose failures are those of k lives claims k / (k + 1) of its rate (Laplace's rule), so
    that three lives never make a certainty.
    """
    totals = np.bincount(places, weights, minlength=count).astype(np.float64)
    positives = np.bincount(places, weights * happened, minlength=count).astype(np.float64)
    found = pooled(positives, totals)
    own = np.unique(np.stack([found.blocks[places[happened]], lives[happened]]), axis=1)
    failing = np.bincount(own[0], minlength=count)[found.blocks]
    return np.maximum.accumulate(found.rates * failing / (failing + 1))


def hazard_tables(logits: Ints, events: Flags, risk: Flags, weights: Floats, lives: Ints) -> bytes:
    """Model.hazards from scored steps.

    `logits`, `events`, `risk` [HORIZONS_S, step]; `weights`, `lives` [step].
    """
    tables = np.empty((len(HORIZONS_S), LOGITS), np.int64)
    for at in range(len(HORIZONS_S)):
        code = logits[at][risk[at]] + LOGITS // 2
        weight = weights[risk[at]]
        happened = events[at][risk[at]]
        rates = isotonic(code, happened, weight, lives[risk[at]], LOGITS)
        least = PSEUDO_EVENTS * _lightest(weight, happened) / max(float(weight.sum()), 1e-300)
        tables[at] = np.minimum(np.floor(np.maximum(rates, least) * UNIT + 0.5), UNIT)
    return np.maximum.accumulate(tables, axis=1).astype("<i4").tobytes()


def _lightest(weights: Floats, happened: Flags) -> float:
    own: Sequence[float] = weights[happened].tolist()
    return min(own, default=0.0)
