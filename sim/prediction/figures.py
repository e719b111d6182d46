"""Figures of prediction that count as a fleet would: weighted, alarms and not steps, by device.

Definitions stand in decision 0018. Steps are weighted by the lives that each stands for, so a kind
that was drawn a thousand times too often counts a thousand times less. Intervals are bootstraps
over GPUs, each kind by itself, as they were drawn: `times` [resample, GPU] says how often a
resample has each GPU, and a figure is computed for all resamples at once.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import PPM
from nemesis.sim.prediction.scored import Scored
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
BINS: Final = 15
RESAMPLES: Final = 200
MIDDLE: Final = (0.025, 0.975)


class Value(msgspec.Struct, kw_only=True, frozen=True):
    """A figure and the middle 95 % of its resamples."""

    value: float
    low: float
    high: float


def as_drawn(gpus_count: int) -> Floats:
    """One "resample" that has every GPU once."""
    return np.ones((1, gpus_count))


def resamples(kinds: Sequence[str], seed: int, count: int = RESAMPLES) -> Floats:
    """[1 + count, GPU]: as drawn, then resamples within each kind."""
    random = np.random.default_rng(seed)
    times = np.ones((1 + count, len(kinds)))
    names = np.array(kinds)
    for kind in sorted(set(kinds)):
        own = np.flatnonzero(names == kind)
        drawn = random.integers(0, len(own), (count, len(own)))
        for at, row in enumerate(drawn, 1):
            times[at, own] = np.bincount(row, minlength=len(own))
    return times


def value_of(figures: Floats) -> Value:
    """Of a figure for every row of `resamples`."""
    low, high = np.quantile(figures[1:] if len(figures) > 1 else figures, MIDDLE).tolist()
    return Value(value=float(figures[0]), low=low, high=high)


def average_precision(scores: Ints, positive: Flags, weights: Floats) -> float:
    """Area below the precision-recall curve, as a sum over falling scores; ties count as one."""
    gpus = np.arange(len(scores))
    return float(average_precisions(scores, positive, weights, gpus, as_drawn(len(scores)))[0])


def average_precisions(
    scores: Ints, positive: Flags, weights: Floats, gpus: Ints, times: Floats
) -> Floats:
    """`average_precision` of each resample; `gpus` [step]."""
    order = np.argsort(-scores, kind="stable")
    own, hit, weight, gpu = scores[order], positive[order], weights[order], gpus[order]
    last = np.append(np.flatnonzero(np.diff(own)), len(own) - 1)
    found = np.zeros(len(times))
    for at, row in enumerate(times):
        every = weight * row[gpu]
        true = np.cumsum(every * hit)[last]
        if true[-1] > 0:
            precision = true / np.maximum(np.cumsum(every)[last], np.finfo(float).tiny)
            found[at] = (np.diff(true, prepend=0.0) * precision).sum() / true[-1]
    return found


def curve(scores: Ints, positive: Flags, weights: Floats, points: int = 200) -> list[list[float]]:
    """(recall, precision) of steps at falling scores, at most so many of them."""
    order = np.argsort(-scores, kind="stable")
    own, hit, weight = scores[order], positive[order], weights[order]
    last = np.append(np.flatnonzero(np.diff(own)), len(own) - 1)
    last = last[np.unique(np.geomspace(1, len(last), points).astype(int)) - 1]
    true, every = np.cumsum(weight * hit), np.cumsum(weight)
    recall, precision = true[last] / max(true[-1], 1e-300), true[last] / every[last]
    return np.stack([recall, precision], axis=1).round(6).tolist()  # type: ignore[no-any-return]


def best_threshold(scores: Ints, positive: Flags, weights: Floats) -> int:
    """The score from which on F1 is highest: to be found on one split and used on another."""
    order = np.argsort(-scores, kind="stable")
    own, hit, weight = scores[order], positive[order], weights[order]
    true, every = np.cumsum(weight * hit), np.cumsum(weight)
    last = np.append(np.flatnonzero(np.diff(own)), len(own) - 1)
    f1 = 2 * true[last] / (every[last] + float((weight * hit).sum()))
    return int(own[last[int(np.argmax(f1))]])


def f1s_at(threshold: int, scores: Ints, positive: Flags, found: Scored, times: Floats) -> Floats:
    """F1 of steps whose score is at least the threshold, for each resample."""
    said = scores >= threshold
    true = _by_gpu(found, said & positive)
    wrong = _by_gpu(found, said != positive)
    hits, misses = times @ true, times @ wrong
    return np.where(hits > 0, 2 * hits / np.maximum(2 * hits + misses, 1e-300), 0.0)


def _by_gpu(found: Scored, flags: Flags) -> Floats:
    own: Floats = found.weights * flags
    return np.bincount(found.gpus, own, minlength=found.gpus_count).astype(np.float64)


def bins_of(ppm: Ints, positive: Flags, weights: Floats) -> Floats:
    """[3, BINS]: mass, mean chance and share that came, in bins of about equal mass.

    Equal chances share a bin; a bin may be empty.
    """
    chances, group = np.unique(ppm, return_inverse=True)
    mass = np.bincount(group, weights)
    middles = (np.cumsum(mass) - mass / 2) / max(float(mass.sum()), 1e-300)
    bins = np.minimum((middles * BINS).astype(int), BINS - 1)
    whole = np.bincount(bins, mass, minlength=BINS)
    said = np.bincount(bins, mass * chances / PPM, minlength=BINS)
    came = np.bincount(bins, np.bincount(group, weights * positive), minlength=BINS)
    least = np.maximum(whole, 1e-300)
    return np.stack([whole, said / least, came / least]).astype(np.float64)


def calibration_error(ppm: Ints, positive: Flags, weights: Floats) -> float:
    """Expected calibration error over the bins of `bins_of`."""
    mass, said, came = bins_of(ppm, positive, weights)
    return float((mass * np.abs(said - came)).sum() / max(float(mass.sum()), 1e-300))
