"""From logits to hazards that mean what they say: isotonic, one horizon at a time, as tables.

Each part's hazard is fitted on the GPUs at risk in it, weighted to a fleet, by pooling adjacent
violators (Ayer et al., 1955). A table never falls, so chances never do. Where pooled steps saw no
failure, the hazard is that of half a life that fails: 0 would claim more than was seen.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, UNIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PSEUDO_EVENTS: Final = 0.5


def isotonic(positives: Floats, totals: Floats) -> Floats:
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
    found = np.repeat(rates, [length for *_, length in blocks])
    return np.maximum.accumulate(found)


def hazard_tables(
    logits: Ints, events: NDArray[np.bool_], risk: NDArray[np.bool_], weights: Floats
) -> bytes:
    """Model.hazards from scored steps.

    `logits`, `events`, `risk` [HORIZONS_S, step]; `weights` [step].
    """
    tables = np.empty((len(HORIZONS_S), LOGITS), np.int64)
    for at in range(len(HORIZONS_S)):
        code = logits[at][risk[at]] + LOGITS // 2
        weight = weights[risk[at]]
        totals = np.bincount(code, weight, minlength=LOGITS).astype(np.float64)
        happened = events[at][risk[at]]
        positives = np.bincount(code, weight * happened, minlength=LOGITS).astype(np.float64)
        rates = isotonic(positives, totals)
        least = PSEUDO_EVENTS * _lightest(weight, happened) / max(totals.sum(), 1e-300)
        tables[at] = np.minimum(np.floor(np.maximum(rates, least) * UNIT + 0.5), UNIT)
    return np.maximum.accumulate(tables, axis=1).astype("<i4").tobytes()


def _lightest(weights: Floats, happened: NDArray[np.bool_]) -> float:
    own: Sequence[float] = weights[happened].tolist()
    return min(own, default=0.0)
