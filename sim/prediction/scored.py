"""A data set as the shipped model scores it: the exact network, step by step, one sample a minute.

The first half hour of a life is left out: until then the network has not seen all that it looks at,
and a processor says nothing.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS, Model, probabilities_ppm
from nemesis.processors.ecc_model.network import Logits, Network
from nemesis.sim.prediction.labels import left
from nemesis.sim.prediction.splits import DataSet
from nemesis.sim.telemetry.draws import Ints

Floats = NDArray[np.float64]
EVERY_STEPS: Final = 12


class Scored(msgspec.Struct, kw_only=True):
    """Every minute of every GPU that is up, in order of time."""

    gpus: Ints
    """[n]: which life."""
    steps: Ints
    until: Ints
    """Steps until it fails."""
    weights: Floats
    """Lives of a million GPU-days that each stands for."""
    logits: Logits
    """[HORIZONS_S, n]"""
    ppm: Ints
    """[HORIZONS_S, n]: of failing within each horizon."""


def scored(model: Model, data: DataSet) -> Scored:
    """Score a data set."""
    lives = data.lives
    count = lives.codes.shape[2]
    network = Network(model, count, part_width=min(512, count))
    table = model.hazard_table()
    gpus: list[Ints] = []
    steps: list[Ints] = []
    logits: list[Logits] = []
    for step, codes in enumerate(lives.codes):
        found = network.step(codes)
        if step < RECEPTIVE_STEPS or step % EVERY_STEPS:
            continue
        up = np.flatnonzero((lives.fails < 0) | (step < lives.fails))
        gpus.append(up)
        steps.append(np.full(len(up), step))
        logits.append(found[:, up])
    where, when, all_logits = np.concatenate(gpus), np.concatenate(steps), np.hstack(logits)
    return Scored(
        gpus=where,
        steps=when,
        until=left(lives.fails[where], when),
        weights=data.weights[where],
        logits=all_logits,
        ppm=probabilities_ppm(table, all_logits),
    )
