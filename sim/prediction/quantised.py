"""What rounding costs: the same weights as floats and as the integers that are shipped.

Floats are those that the run kept beside the model; both are judged on the same steps, each by the
threshold that was best for it on the calibration split.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from nemesis.processors.ecc_model.model import HORIZONS_S, Model
from nemesis.sim.prediction.figures import as_drawn, average_precision, best_threshold, f1s_at
from nemesis.sim.prediction.float_network import LOGIT_BITS, FloatNetwork
from nemesis.sim.prediction.recurrent import ranked
from nemesis.sim.prediction.scored import Scored, scored
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Ints

GPUS_AT_ONCE: Final = 16
HEAD: Final = 2


class Rounding(msgspec.Struct, kw_only=True, frozen=True):
    """Points (hundredths) that integers lose against floats; negative: they win."""

    split: str
    f1_points: float
    pr_auc_points: float


def float_network(state: Path, channels: int) -> FloatNetwork:
    """The weights that a run kept as its best, not rounded."""
    network = FloatNetwork(channels, 1)
    kept = network.torch.load(state, weights_only=True)
    with network.torch.no_grad():
        for own, other in zip(
            network.parameters(), (kept["best"] or {"now": kept["now"]})["now"], strict=True
        ):
            own.copy_(other)
    return network


def rounding(model: Model, state: Path, calibration: DataSet, data: DataSet) -> Rounding:
    """What a model lost by being rounded, of the run whose `state.pt` this is."""
    network = float_network(state, model.channels)
    known, found = scored(model, calibration), scored(model, data)
    figures = []
    for ranks_known, ranks in (
        (_of_codes(known.logits), _of_codes(found.logits)),
        (_float_ranks(network, calibration, known), _float_ranks(network, data, found)),
    ):
        threshold = best_threshold(ranks_known[HEAD], known.positive[HEAD], known.weights)
        f1 = f1s_at(threshold, ranks[HEAD], found.positive[HEAD], found, as_drawn(found.gpus_count))
        area = average_precision(ranks[HEAD], found.positive[HEAD], found.weights)
        figures.append((float(f1[0]), area))
    (whole_f1, whole_area), (float_f1, float_area) = figures
    return Rounding(
        split=data.split,
        f1_points=100 * (float_f1 - whole_f1),
        pr_auc_points=100 * (float_area - whole_area),
    )


def _of_codes(logits: Any) -> Ints:
    return ranked(logits.astype(np.float64) / (1 << LOGIT_BITS))


def _float_ranks(network: FloatNetwork, data: DataSet, found: Scored) -> Ints:
    torch, codes = network.torch, data.lives.codes
    logits = np.empty((len(HORIZONS_S), len(found.gpus)))
    for begin in range(0, codes.shape[2], GPUS_AT_ONCE):
        own = (found.gpus >= begin) & (found.gpus < begin + GPUS_AT_ONCE)
        part = np.ascontiguousarray(codes[:, :, begin : begin + GPUS_AT_ONCE].transpose(2, 1, 0))
        with torch.no_grad():
            every = network.forward(torch.from_numpy(part)).numpy()
        logits[:, own] = every[found.gpus[own] - begin, :, found.steps[own]].T
    return ranked(logits)
