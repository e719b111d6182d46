"""Everything that is judged, on equal terms: what each says of a data set's steps, and its chances.

A scorer ranks steps for each horizon; `fitted` gives its ranks the meaning of chances by the same
isotonic regression, on the same split, as the model's hazards. So thresholds, tiers and costs are
asked of all alike. `oracle` knows of every failure from its first sign on when it will come, and
nothing before: nobody can do better.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, PPM, Model
from nemesis.sim.prediction.baselines import fitted_line, probation, shown, thresholds
from nemesis.sim.prediction.calibrate import isotonic
from nemesis.sim.prediction.scored import Scored, judged, scored
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
HEADS: Final = range(len(HORIZONS_S))
MODEL: Final = "model"
ORACLE: Final = "oracle"


class Scorer(Protocol):
    """Says of steps how likely a failure is."""

    def __call__(self, data: DataSet) -> Scored:
        """Every judged step of a data set with chances; `ranks` where chances are coarser."""
        ...


Ranker = Callable[[DataSet, Scored], Ints]
"""[HORIZONS_S, n] of the judged steps: larger where a failure is likelier."""


class Calibrated:
    """A ranker whose ranks mean chances."""

    def __init__(self, ranker: Ranker, data: DataSet) -> None:
        """Fitted to a data set that the ranker did not learn from."""
        self._ranker: Final = ranker
        steps = judged(data)
        ranks = ranker(data, steps)
        self._tables: Final = [
            chances_of(ranks[head], steps.positive[head], steps) for head in HEADS
        ]

    def __call__(self, data: DataSet) -> Scored:
        """Every judged step with its chances, which do not fall with the horizon."""
        found = judged(data)
        ranks = self._ranker(data, found)
        for head, (known, ppm) in enumerate(self._tables):
            at = np.searchsorted(known, ranks[head], side="right") - 1
            found.ppm[head] = ppm[np.maximum(at, 0)]
        np.maximum.accumulate(found.ppm, axis=0, out=found.ppm)
        return found


def chances_of(ranks: Ints, positive: Flags, steps: Scored) -> tuple[Ints, Ints]:
    """(ranks that were seen, the chance of each in ppm)."""
    known, places = np.unique(ranks, return_inverse=True)
    rates = isotonic(places, positive, steps.weights, steps.gpus, len(known))
    return known, np.floor(rates * PPM + 0.5).astype(np.int64)


def of_model(model: Model) -> Scorer:
    """The model that is judged."""
    return lambda data: scored(model, data)


def of_oracle(data: DataSet) -> Scored:
    """Who knows the end of every failure that has shown a sign."""
    found = judged(data)
    signs = data.lives.signs[found.gpus]
    found.ppm = (found.positive & (signs >= 0) & (signs <= found.steps)) * PPM
    return found


def simple(learnt: DataSet, calibration: DataSet) -> Mapping[str, Scorer]:
    """What sees one step: thresholds, the hazard rule, logistic regression."""
    lines = [fitted_line(learnt, judged(learnt), head) for head in HEADS]

    def line(data: DataSet, steps: Scored) -> Ints:
        codes = shown(data, steps)
        return np.array([each.scores(codes) for each in lines])

    def rules(rule: Callable[[Ints], Ints]) -> Ranker:
        return lambda data, steps: np.tile(rule(shown(data, steps)), (len(HORIZONS_S), 1))

    rankers: dict[str, Ranker] = {
        "thresholds": rules(thresholds),
        "probation": rules(probation),
        "logistic": line,
    }
    return {name: Calibrated(each, calibration) for name, each in rankers.items()}


class Absent(msgspec.Struct, frozen=True):
    """A baseline that was left out, and why."""

    scorer: str
    why: str
