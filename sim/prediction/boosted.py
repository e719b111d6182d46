"""Gradient boosting on what the last half hour shows (lightgbm, an extra): the usual answer.

One ensemble a horizon, learnt from the lives that the network learns from, weighted as it weighs
them. Failures without any sign are left out while learning for both.
"""

import importlib
from typing import Any, Final

import numpy as np

from nemesis.schemas.errors import NemesisError
from nemesis.sim.prediction.precursors import Precursors
from nemesis.sim.prediction.scored import Scored, judged
from nemesis.sim.prediction.scorers import HEADS, Calibrated, Scorer
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.prediction.training import teaching
from nemesis.sim.prediction.windows import windows
from nemesis.sim.telemetry.draws import Ints

ROUNDS: Final = 200
LEARNT_MAX: Final = 60_000
"""Steps that are learnt from, drawn by chance where there are more."""
_SETTINGS: Final = {
    "objective": "binary",
    "learning_rate": 0.06,
    "num_leaves": 31,
    "min_data_in_leaf": 60,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.5,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}


class NoBoostingError(NemesisError):
    """Gradient boosting was asked for where lightgbm is not installed."""

    exit_code = 2


def lightgbm_module() -> Any:
    """lightgbm, which only this baseline needs.

    Raises:
        NoBoostingError: it is not installed.
    """
    try:
        return importlib.import_module("lightgbm")
    except ImportError as error:
        raise NoBoostingError(
            "gradient boosting needs lightgbm, which is not installed",
            hint="pip install 'nemesis-gpu[train]'",
        ) from error


def boosted(learnt: DataSet, calibration: DataSet, precursors: Precursors, seed: int) -> Scorer:
    """Ensembles for all horizons, their scores fitted to chances.

    Raises:
        NoBoostingError: lightgbm is not installed.
    """
    lightgbm = lightgbm_module()
    steps = judged(learnt)
    signs = teaching(precursors)
    taught = np.array([signs.get(kind, 0.0) for kind in learnt.lives.kinds])[steps.gpus]
    chosen = np.flatnonzero(taught)
    if len(chosen) > LEARNT_MAX:
        chosen = np.sort(np.random.default_rng(seed).permutation(chosen)[:LEARNT_MAX])
    rows = windows(learnt.lives.codes, steps.gpus[chosen], steps.steps[chosen])
    ensembles = []
    for head in HEADS:
        data = lightgbm.Dataset(rows, steps.positive[head][chosen], weight=taught[chosen])
        ensembles.append(lightgbm.train(_SETTINGS | {"seed": seed}, data, ROUNDS))

    def ranks(data: DataSet, found: Scored) -> Ints:
        shown = windows(data.lives.codes, found.gpus, found.steps)
        logits = np.array([each.predict(shown, raw_score=True) for each in ensembles])
        return np.floor(logits * 1e6).astype(np.int64)

    return Calibrated(ranks, calibration)
