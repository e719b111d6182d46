"""Does anything leak between splits, or from who a GPU is into what becomes of it? Must be chance.

Two probes, each an area under the ROC curve with one half as chance: a line that learnt from labels
shuffled over GPUs is asked on GPUs of another split; and the names of GPUs, hashed, are asked
whether they fail. And a count: GPUs that stand in two splits.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
import numpy as np

from nemesis.sim.prediction.baselines import Line, shown
from nemesis.sim.prediction.figures import MIDDLE, Value
from nemesis.sim.prediction.scored import judged
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Flags, Ints

SHUFFLES: Final = 40
SALTS: Final = 40
LEARNT_MAX: Final = 4_000
"""Steps that a probe learns from."""
HEAD: Final = 2


class Leaks(msgspec.Struct, kw_only=True, frozen=True):
    """What the probes found."""

    shuffled: Value
    """Mean and the spread of shuffles."""
    names: Value
    """Mean and the spread of salts."""
    shared_count: int
    """GPUs in two of the splits."""


def probed(learnt: DataSet, other: DataSet) -> Leaks:
    """Ask a split what another one taught, with labels that mean nothing."""
    steps, asked = judged(learnt), judged(other)
    count = len(steps.gpus)
    few = np.sort(np.random.default_rng(0).permutation(count)[: min(count, LEARNT_MAX)])
    codes, there = shown(learnt, steps)[few], shown(other, asked)
    positive = asked.positive[HEAD]
    fails = learnt.lives.fails >= 0
    shuffled = []
    for seed in range(SHUFFLES):
        labels = np.random.default_rng(seed).permutation(fails)[steps.gpus[few]]
        line = Line(codes, labels, np.ones(len(few)))
        shuffled.append(area(line.scores(there), positive))
    names = [
        area(_hashed(other.lives.devices, salt)[asked.gpus], positive) for salt in range(SALTS)
    ]
    return Leaks(
        shuffled=_spread(shuffled),
        names=_spread(names),
        shared_count=len(set(learnt.lives.devices) & set(other.lives.devices)),
    )


def area(scores: Ints, positive: Flags) -> float:
    """How often a positive is above a negative, ties counted as half; 0.5 is chance."""
    known, group = np.unique(scores, return_inverse=True)
    below = np.bincount(group, ~positive, minlength=len(known))
    hits = np.bincount(group, positive, minlength=len(known))
    pairs = float(hits.sum() * below.sum())
    return float((hits * (np.cumsum(below) - below / 2)).sum()) / pairs if pairs else 0.5


def _hashed(devices: Sequence[str], salt: int) -> Ints:
    digests = (sha256(f"{salt}/{each}".encode()).digest()[:6] for each in devices)
    return np.array([int.from_bytes(each) for each in digests], np.int64)


def _spread(areas: list[float]) -> Value:
    low, high = np.quantile(areas, MIDDLE).tolist()
    return Value(value=float(np.mean(areas)), low=low, high=high)
