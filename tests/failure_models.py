"""Failure models for tests: small integers drawn by a seed; nobody trained them."""

from hashlib import sha256

import msgspec
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


def watching_model(name: str, weight: int = 16) -> Model:
    """Its chance of every horizon is the code of one input times weight/16, divided by 128.

    A negative one is 0, and none is greater than one.
    """

    def passes(terms: int, term: int, *, weight: int = 1, outputs: int = 1) -> Layer:
        weights = np.zeros((outputs, terms), np.int8)
        weights[:, term] = weight
        return layer_of(weights, [0] * outputs, [0] * outputs)

    nothing = passes(TAPS, 0, weight=0)
    chances = np.clip(np.arange(LOGITS) - LOGITS // 2, 0, None) * (UNIT // (LOGITS // 2))
    certain = np.zeros(LOGITS, np.int64)  # of those that survived the first horizon nothing fails
    return Model(
        inputs=INPUTS,
        channels=1,
        stem=passes(len(INPUTS), INPUTS.index(name)),
        convolutions=(nothing,) * (2 * len(DILATIONS)),
        hidden=passes(2, 0),
        logits=passes(1, 0, weight=weight, outputs=len(HORIZONS_S)),
        hazards=np.array([chances, certain, certain, certain]).astype("<i4").tobytes(),
    )


def filed(model: Model) -> tuple[str, bytes]:
    """A model's hash and file."""
    raw = msgspec.msgpack.encode(model)
    return sha256(raw).hexdigest(), raw
