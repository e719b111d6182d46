"""Figures of prediction that count as a fleet would: weighted, alarms and not steps, by device.

Definitions stand in decision 0018. Steps are weighted by the lives that each stands for, so a kind
that was drawn a thousand times too often counts a thousand times less. Alarms have hysteresis: one
begins when a chance crosses its threshold and ends when it is below half of it.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import PPM
from nemesis.sim.prediction.labels import EDGES
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
BINS: Final = 15
LEAD_STEPS_MAX: Final = 2_160
"""An alarm more than three hours before a failure did not foresee it."""


def average_precision(scores: Ints, positive: Flags, weights: Floats) -> float:
    """Area below the precision-recall curve, as a sum over falling scores; ties count as one."""
    order = np.argsort(-scores, kind="stable")
    own, hit, weight = scores[order], positive[order], weights[order]
    total = float((weight * hit).sum())
    if total == 0.0:
        return 0.0
    true, every = np.cumsum(weight * hit), np.cumsum(weight)
    last = np.append(np.flatnonzero(np.diff(own)), len(own) - 1)
    recall = np.concatenate([[0.0], true[last] / total])
    precision = true[last] / np.maximum(every[last], np.finfo(float).tiny)
    return float((np.diff(recall) * precision).sum())


def best_threshold(scores: Ints, positive: Flags, weights: Floats) -> int:
    """The score from which on F1 is highest: to be found on one split and used on another."""
    order = np.argsort(-scores, kind="stable")
    own, hit, weight = scores[order], positive[order], weights[order]
    true, every = np.cumsum(weight * hit), np.cumsum(weight)
    last = np.append(np.flatnonzero(np.diff(own)), len(own) - 1)
    f1 = 2 * true[last] / (every[last] + float((weight * hit).sum()))
    return int(own[last[int(np.argmax(f1))]])


def f1_at(threshold: int, scores: Ints, positive: Flags, weights: Floats) -> float:
    """F1 of steps whose score is at least the threshold."""
    said = scores >= threshold
    true = float(weights[said & positive].sum())
    wrong = float(weights[said & ~positive].sum() + weights[~said & positive].sum())
    return 2 * true / (2 * true + wrong) if true else 0.0


def calibration_error(ppm: Ints, positive: Flags, weights: Floats) -> float:
    """Expected calibration error over bins of about equal weight; equal chances share a bin."""
    chances, group = np.unique(ppm, return_inverse=True)
    mass = np.bincount(group, weights)
    total = float(mass.sum())
    if total == 0.0:
        return 0.0
    middles = (np.cumsum(mass) - mass / 2) / total
    bins = np.minimum((middles * BINS).astype(int), BINS - 1)
    said = np.bincount(bins, mass * chances / PPM, minlength=BINS)
    came = np.bincount(bins, np.bincount(group, weights * positive), minlength=BINS)
    return float(np.abs(said - came).sum()) / total


class Alarms(msgspec.Struct, kw_only=True):
    """What a threshold would have told, in lives of a million GPU-days."""

    foreseen: float
    """Failures with an alarm that was up when they came and began in the three hours before."""
    failures: float
    needless: float
    """Alarms that no failure followed within the horizon."""
    right: float
    leads_steps: list[int]
    """Of the failures that were foreseen, as they were drawn."""

    @property
    def precision(self) -> float:
        """Of alarms; 0 where there were none."""
        told = self.right + self.needless
        return self.right / told if told else 0.0

    @property
    def recall(self) -> float:
        """Of failures."""
        return self.foreseen / self.failures if self.failures else 0.0


def alarms(found: Scored, head: int, threshold_ppm: int, weights: Floats) -> Alarms:
    """Alarms of one head at a threshold; `weights` [step] of `found`, or of a resample of it."""
    told = Alarms(foreseen=0.0, failures=0.0, needless=0.0, right=0.0, leads_steps=[])
    horizon = EDGES[head]
    order = np.lexsort((found.steps, found.gpus))
    gpus = found.gpus[order]
    starts = np.append(0, np.flatnonzero(np.diff(gpus)) + 1)
    for begin, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        own = order[begin:end]
        weight = float(weights[own[0]])
        until, up = found.until[own], False
        if until[0] < 1 << 30:
            told.failures += weight
        began = 0
        for at, ppm in enumerate(found.ppm[head, own].tolist()):
            if not up and ppm >= threshold_ppm:
                up, began = True, at
                if until[at] <= horizon:
                    told.right += weight
                else:
                    told.needless += weight
            elif up and 2 * ppm < threshold_ppm:
                up = False
        if up and until[-1] <= EVERY_STEPS and until[began] <= LEAD_STEPS_MAX:
            told.foreseen += weight
            told.leads_steps.append(int(until[began]))
    return told


def resampled(found: Scored, random: np.random.Generator) -> Floats:
    """Weights of a bootstrap over GPUs, not over steps: those of one GPU go together."""
    count = int(found.gpus.max()) + 1
    times = np.bincount(random.integers(0, count, count), minlength=count)
    drawn: Floats = found.weights * times[found.gpus]
    return drawn
