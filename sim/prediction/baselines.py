"""What the model must beat: thresholds, the hazard rule, and a straight line through the inputs.

Each gives a whole number a step, higher where a failure is likelier. All see the codes of one step,
in which what is slow is contained; none looks into the last half hour as the network does.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.inputs import CODE_MAX, INPUTS
from nemesis.sim.prediction.scored import Scored
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
_AT: Final = {name: at for at, name in enumerate(INPUTS)}
RIDGE: Final = 1e-3
LEARNT_MAX: Final = 60_000  # steps, evenly drawn; more of the same lives say nothing new
ROUNDS: Final = 15  # of Newton's method; it settles after about ten


def shown(data: DataSet, found: Scored) -> Ints:
    """[n, INPUTS]: the codes of every step that was scored."""
    return data.lives.codes[found.steps, :, found.gpus].astype(np.int64)


def thresholds(codes: Ints) -> Ints:
    """The bands of `ecc_rules`, as far as the channels show them: act 3, watch 2, record 1."""
    column = {name: codes[:, at] for name, at in _AT.items()}
    used_up = (column["spare_rows_low"] > 0) & (column["remaps_week"] > 0)
    noted = (column["ue_recency"] > 0) | (column["remap_pending"] > 0)
    noted |= column["spare_rows_low"] > 0
    return np.where(column["remap_failed"] > 0, 3, np.where(used_up, 2, noted.astype(np.int64)))


def probation(codes: Ints) -> Ints:
    """The hazard rule: how recent the last uncorrected error is."""
    return codes[:, _AT["ue_recency"]]


class Line:
    """Logistic regression on the codes of one step."""

    def __init__(self, codes: Ints, positive: Flags, weights: Floats) -> None:
        """Fitted by Newton's method with a small ridge."""
        values = self._values(codes)
        shares = weights / weights.mean()
        # a rare positive is lifted, or the ridge would be all that is heard
        lift = (shares * ~positive).sum() / max((shares * positive).sum(), 1e-300)
        shares = np.where(positive, shares * lift, shares)
        self._slopes = np.zeros(values.shape[1])
        for _ in range(ROUNDS):
            chances = 1.0 / (1.0 + np.exp(-np.clip(values @ self._slopes, -30, 30)))
            gradient = values.T @ (shares * (chances - positive)) / len(values)
            curve = (values * (shares * chances * (1 - chances))[:, None]).T @ values / len(values)
            step = np.linalg.solve(
                curve + RIDGE * np.eye(len(gradient)), gradient + RIDGE * self._slopes
            )
            self._slopes -= np.clip(step, -2, 2)

    def scores(self, codes: Ints) -> Ints:
        """In millionths of a logit."""
        return np.floor(self._values(codes) @ self._slopes * 1e6).astype(np.int64)

    @staticmethod
    def _values(codes: Ints) -> Floats:
        scaled = codes / CODE_MAX
        shows = (codes[:, [_AT["ce_day"], _AT["ue_recency"], _AT["links_day"]]] > 0).astype(float)
        return np.hstack([np.ones((len(codes), 1)), scaled, scaled**2, shows])


def fitted_line(data: DataSet, found: Scored, head: int) -> Line:
    """The line that foresees failures within a horizon best on a data set."""
    few = np.arange(0, len(found.gpus), 1 + len(found.gpus) // LEARNT_MAX)
    codes = data.lives.codes[found.steps[few], :, found.gpus[few]].astype(np.int64)
    return Line(codes, found.positive[head][few], found.weights[few])
