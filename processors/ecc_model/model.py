"""The model as it is shipped: integers, and the proof that its sums are exact.

A layer computes floor((sum of weight x activation + bias) / 2^shift), each output with a shift of
its own, clamped to what eight bits hold. Weights are int8, activations 0 to 255, inputs -127 to
127. **Why float32 may carry this exactly**: integers below 2^24 in size, and such integers divided
by one power of two, are float32 numbers, and so is each partial sum, in whatever order and with or
without fused multiply-add, as long as the sum of the sizes of all terms stays below 2^24:

    most(activation) x sum(|weight|) + |bias| + 255 x 2^shift < 2^24      for each output

The last term is the residual that a block adds. With 7 taps of 32 channels it is at most
255 x 127 x 224 + ... = 7.3 million + bias and residual: it fits, and `expect_exact` refuses a
model for which it does not, so no BLAS, no thread count and no batch size can change a bit.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.inputs import CODE_MAX, INPUTS
from nemesis.schemas.errors import MalformedFactError

EXACT_BELOW: Final = 1 << 24
SHIFT_MAX: Final = 16  # the residual alone is then 255 x 2^16, just below EXACT_BELOW
ACTIVATION_MAX: Final = 255
TAPS: Final = 7
DILATIONS: Final = (1, 2, 4, 8, 16)
"""Of the five blocks, two convolutions each."""
RECEPTIVE_STEPS: Final = 2 * (TAPS - 1) * sum(DILATIONS)
"""Past steps that a score depends on: 372."""
HORIZONS_S: Final = (1_800, 3_600, 7_200, 10_800)
LOGIT_BITS: Final = 12
LOGITS: Final = 1 << LOGIT_BITS
"""Codes of a logit, -LOGITS/2 on."""
UNIT_BITS: Final = 30
UNIT: Final = 1 << UNIT_BITS
"""One, as a probability."""
PPM: Final = 1_000_000
SHARE_BINS: Final = 16
"""Equal parts of what a code or a logit can be."""
SHARES_BYTES: Final = 4 * (len(INPUTS) + len(HORIZONS_S)) * SHARE_BINS

Floats = NDArray[np.float32]


class Layer(msgspec.Struct, frozen=True):
    """Outputs of one matrix product."""

    outputs: int
    weights: bytes
    """int8 [outputs, terms]; the terms of a convolution are [tap, channel], now first."""
    biases: bytes
    """little-endian int32 [outputs]; the half that rounds is part of it."""
    shifts: bytes
    """uint8 [outputs]"""

    @property
    def terms(self) -> int:
        """Activations that each output sums over."""
        return len(self.weights) // max(1, self.outputs)

    def matrix(self) -> Floats:
        """float32 [outputs, terms], each row divided by 2^shift, which is exact."""
        weights = np.frombuffer(self.weights, np.int8).reshape(self.outputs, -1)
        return weights.astype(np.float32) * self._scales()

    def offsets(self) -> Floats:
        """float32 [outputs, 1]: the biases, divided likewise."""
        biases = np.frombuffer(self.biases, "<i4").reshape(-1, 1)
        return biases.astype(np.float32) * self._scales()

    def _scales(self) -> Floats:
        shifts = np.frombuffer(self.shifts, np.uint8).astype(np.int32).reshape(-1, 1)
        return np.ldexp(np.ones(shifts.shape, np.float32), -shifts)

    def sizes(self, most: int) -> NDArray[np.int64]:
        """[outputs]: bound of every partial sum, for activations of at most this size."""
        weights = np.frombuffer(self.weights, np.int8).astype(np.int64).reshape(self.outputs, -1)
        biases = np.abs(np.frombuffer(self.biases, "<i4").astype(np.int64))
        residual = ACTIVATION_MAX << np.frombuffer(self.shifts, np.uint8).astype(np.int64)
        found: NDArray[np.int64] = most * np.abs(weights).sum(axis=1) + biases + residual
        return found


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a score depends on, and where it came from."""

    inputs: tuple[str, ...]
    """Names of the input rows; those of inputs.py."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=256)]
    stem: Layer
    convolutions: tuple[Layer, ...]
    """Two for each of DILATIONS."""
    hidden: Layer
    """Of the last block's output and the stem's: the slow state is heard to the end."""
    logits: Layer
    """One for each of HORIZONS_S."""
    hazards: bytes
    """little-endian int32 [HORIZONS_S, LOGITS]: of failing within this horizon and not within the
    one before it, given survival so far, in 1/UNIT; sigmoid and calibration in one table."""
    data_sha256: str = ""
    """Of the generator's parameters that it was trained with."""
    card: str = ""
    """What the training run says of itself, as JSON."""
    shares: bytes = b""
    """little-endian uint32 [inputs, then HORIZONS_S; SHARE_BINS]: of input codes and of logits in
    training, in ppm (`drift.Tally.shares`); empty: nobody counted, and drift is not told."""

    def hazard_table(self) -> NDArray[np.int64]:
        """[HORIZONS_S, LOGITS]"""
        return np.frombuffer(self.hazards, "<i4").astype(np.int64).reshape(len(HORIZONS_S), LOGITS)


def load_model(raw: bytes) -> Model:
    """A model from its file.

    Raises:
        MalformedFactError: not a model, of another shape, or with sums that may not be exact.
    """
    try:
        model = msgspec.msgpack.decode(raw, type=Model)
        expect_exact(model)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedFactError(f"failure model of {len(raw)} bytes: {error}") from error
    return model


def expect_exact(model: Model) -> None:
    """Refuse a model that does not fit together or whose sums could be rounded.

    Raises:
        ValueError: which layer, and what of it.
    """
    width = model.channels
    if model.inputs != INPUTS:
        raise ValueError(f"inputs {model.inputs}: expected {INPUTS}")
    if len(model.convolutions) != 2 * len(DILATIONS):
        raise ValueError(f"{len(model.convolutions)} convolutions: expected {2 * len(DILATIONS)}")
    _expect(model.stem, "stem", width, len(INPUTS), CODE_MAX)
    for at, layer in enumerate(model.convolutions):
        _expect(layer, f"convolution {at}", width, TAPS * width, ACTIVATION_MAX)
    _expect(model.hidden, "hidden", width, 2 * width, ACTIVATION_MAX)
    _expect(model.logits, "logits", len(HORIZONS_S), width, ACTIVATION_MAX)
    table = model.hazard_table()
    if (table < 0).any() or (table > UNIT).any() or (np.diff(table) < 0).any():
        raise ValueError(f"hazards: expected 0 to {UNIT}, not falling with the logit")
    if len(model.shares) not in (0, SHARES_BYTES):
        raise ValueError(f"shares: {len(model.shares)} bytes, expected {SHARES_BYTES} or none")


def _expect(layer: Layer, name: str, outputs: int, terms: int, most: int) -> None:
    sizes = (layer.outputs, len(layer.weights), len(layer.biases), len(layer.shifts))
    wanted = (outputs, outputs * terms, 4 * outputs, outputs)
    if sizes != wanted:
        raise ValueError(f"{name}: outputs and bytes {sizes}: expected {wanted}")
    if max(layer.shifts) > SHIFT_MAX:
        raise ValueError(f"{name}: shift {max(layer.shifts)}: expected at most {SHIFT_MAX}")
    bound = layer.sizes(most).max()
    if bound >= EXACT_BELOW:
        raise ValueError(f"{name}: sums up to {bound}: expected less than {EXACT_BELOW}")


def probabilities_ppm(table: NDArray[np.int64], logits: NDArray[np.int16]) -> NDArray[np.int64]:
    """[HORIZONS_S, GPU]: of failing within each horizon, by the chain of hazards.

    `table`: Model.hazard_table(); `logits` [HORIZONS_S, GPU] as the network gives them. They never
    fall from one horizon to the next: each step only takes from those that survive.
    """
    alive = np.full(logits.shape[1], UNIT, np.int64)
    found = np.empty(logits.shape, np.int64)
    for at, row in enumerate(logits):
        alive = alive - (alive * table[at][row.astype(np.intp) + LOGITS // 2] >> UNIT_BITS)
        found[at] = (UNIT - alive) * PPM >> UNIT_BITS
    return found


def layer_of(weights: NDArray[np.int8], biases: Sequence[int], shifts: Sequence[int]) -> Layer:
    """A layer from its arrays."""
    return Layer(
        outputs=len(weights),
        weights=np.ascontiguousarray(weights).tobytes(),
        biases=np.array(biases, "<i4").tobytes(),
        shifts=np.array(shifts, np.uint8).tobytes(),
    )
