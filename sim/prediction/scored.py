"""A data set as the shipped model scores it: the exact network, step by step, one sample a minute.

The first half hour of a life is left out: until then the network has not seen all that it looks at,
and a processor says nothing.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, RECEPTIVE_STEPS, Model, probabilities_ppm
from nemesis.processors.ecc_model.network import Logits, Network
from nemesis.sim.prediction.labels import left, within
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Flags, Ints

Floats = NDArray[np.float64]
EVERY_STEPS: Final = 12


class Scored(msgspec.Struct, kw_only=True):
    """Every minute of every GPU that is up, by GPU and then by time."""

    gpus: Ints
    """[n]: which life."""
    steps: Ints
    until: Ints
    """Steps until it fails."""
    weights: Floats
    """Lives of a million GPU-days that each stands for."""
    gpus_count: int
    positive: Flags
    """[HORIZONS_S, n]: whether it fails within each horizon."""
    logits: Logits
    """[HORIZONS_S, n]; nothing where no network scored."""
    ppm: Ints
    """[HORIZONS_S, n]: of failing within each horizon."""


def judged(data: DataSet) -> Scored:
    """The steps of a data set that are judged, not scored by anybody yet."""
    lives = data.lives
    count = lives.codes.shape[2]
    steps = np.arange(
        RECEPTIVE_STEPS + -RECEPTIVE_STEPS % EVERY_STEPS, len(lives.codes), EVERY_STEPS
    )
    gpus, when = np.repeat(np.arange(count), len(steps)), np.tile(steps, count)
    up = (lives.fails[gpus] < 0) | (when < lives.fails[gpus])
    gpus, when = gpus[up], when[up]
    until = left(lives.fails[gpus], when)
    return Scored(
        gpus=gpus,
        steps=when,
        until=until,
        weights=data.weights[gpus],
        gpus_count=count,
        positive=within(until),
        logits=np.zeros((len(HORIZONS_S), len(gpus)), np.int16),
        ppm=np.zeros((len(HORIZONS_S), len(gpus)), np.int64),
    )


def scored(model: Model, data: DataSet) -> Scored:
    """Score a data set."""
    found = judged(data)
    codes = data.lives.codes
    count = codes.shape[2]
    network = Network(model, count, part_width=min(512, count))
    every = np.empty((len(codes), len(HORIZONS_S), count), np.int16)
    for step, each in enumerate(codes):
        every[step] = network.step(each)
    found.logits = np.ascontiguousarray(every[found.steps, :, found.gpus].T)
    found.ppm = probabilities_ppm(model.hazard_table(), found.logits)
    return found
