"""Gradient boosting on what the last half hour shows (lightgbm, an extra): the usual answer.

One ensemble a horizon, learnt from the lives that the network learns from, weighted as it weighs
them. Failures without any sign are left out while learning for both. Steps of a life are no news to
one another, so a leaf is to hold those of several lives: how large trees and leaves are, and how
many trees, is chosen by every fourth life, which is not learnt from until it is chosen.
"""

import importlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.errors import NemesisError
from nemesis.sim.prediction.precursors import Precursors
from nemesis.sim.prediction.scored import Scored, judged
from nemesis.sim.prediction.scorers import HEADS, Calibrated, Scorer
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.prediction.training import teaching
from nemesis.sim.prediction.windows import Floats32, windows
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
ROUNDS_MAX: Final = 400
PATIENCE: Final = 30
"""Rounds without a better one."""
CHOSEN_BY: Final = 4
"""Every so manyth life."""
LEARNT_MAX: Final = 60_000
"""Steps that are learnt from, drawn by chance where there are more."""
_SETTINGS: Final = {
    "objective": "binary",
    "learning_rate": 0.06,
    "metric": "binary_logloss",
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.5,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}
_SIZES: Final = (
    {"num_leaves": 31, "min_data_in_leaf": 60},
    {"num_leaves": 15, "min_data_in_leaf": 300},
    {"num_leaves": 7, "min_data_in_leaf": 600},
    {"num_leaves": 4, "min_data_in_leaf": 1_200},
)
"""A life is about 75 of LEARNT_MAX steps."""


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
    lives, weights = steps.gpus[chosen], taught[chosen]
    ensembles = [
        _ensemble(
            lightgbm,
            rows,
            positive=steps.positive[head][chosen],
            weights=weights,
            lives=lives,
            seed=seed,
        )
        for head in HEADS
    ]

    def ranks(data: DataSet, found: Scored) -> Ints:
        shown = windows(data.lives.codes, found.gpus, found.steps)
        logits = np.array([each.predict(shown, raw_score=True) for each in ensembles])
        return np.floor(logits * 1e6).astype(np.int64)

    return Calibrated(ranks, calibration)


def _ensemble(
    lightgbm: Any,
    rows: Floats32,
    *,
    positive: Flags,
    weights: Floats,
    lives: Ints,
    seed: int,
) -> Any:
    """Of all lives, as large as is best for those that are left out while that is found."""
    judging = lives % CHOSEN_BY == 0
    losses: list[tuple[float, int, dict[str, int]]] = []
    for size in _SIZES:
        own = _SETTINGS | size | {"seed": seed}
        data = lightgbm.Dataset(rows[~judging], positive[~judging], weight=weights[~judging])
        others = lightgbm.Dataset(
            rows[judging], positive[judging], weight=weights[judging], reference=data
        )
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        tried = lightgbm.train(own, data, ROUNDS_MAX, valid_sets=[others], callbacks=[stop])
        loss = float(tried.best_score["valid_0"]["binary_logloss"])
        losses.append((loss, tried.best_iteration, size))
    _, rounds, size = min(losses, key=lambda each: each[0])
    data = lightgbm.Dataset(rows, positive, weight=weights)
    return lightgbm.train(_SETTINGS | size | {"seed": seed}, data, rounds)
