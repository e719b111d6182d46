"""Failure models for tests: small integers drawn by a seed; nobody trained them."""

import numpy as np

from nemesis.processors.ecc_model.inputs import INPUTS, Codes
from nemesis.processors.ecc_model.model import (
    DILATIONS,
    HORIZONS_S,
    LOGITS,
    TAPS,
    UNIT,
    Layer,
    Model,
    layer_of,
)


def drawn_model(seed: int = 1, channels: int = 8) -> Model:
    """A model whose activations neither die out nor saturate."""
    random = np.random.default_rng(seed)

    def layer(outputs: int, terms: int, *, shift: int) -> Layer:
        weights = random.integers(-127, 128, (outputs, terms)).astype(np.int8)
        biases = random.integers(-(1 << shift), 12 << shift, outputs).tolist()
        shifts = random.integers(shift - 1, shift + 2, outputs).tolist()
        return layer_of(weights, biases, shifts)

    hazards = np.sort(random.integers(0, UNIT // 8, (len(HORIZONS_S), LOGITS)), axis=1)
    return Model(
        inputs=INPUTS,
        channels=channels,
        stem=layer(channels, len(INPUTS), shift=7),
        convolutions=tuple(
            layer(channels, TAPS * channels, shift=9) for _ in range(2 * len(DILATIONS))
        ),
        hidden=layer(channels, 2 * channels, shift=8),
        logits=layer(len(HORIZONS_S), channels, shift=3),
        hazards=hazards.astype("<i4").tobytes(),
    )


def drawn_codes(seed: int, steps: int, count: int) -> list[Codes]:
    """Inputs of so many steps."""
    random = np.random.default_rng(seed)
    return list(random.integers(-127, 128, (steps, len(INPUTS), count)).astype(np.int8))
