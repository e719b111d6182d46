"""The model's steps by torch's integer products: the bits of numpy in less than half the time.

Why: a core that multiplies bytes does four times as many of them as floats. How: the rings, taps
and everything that is small are numpy's as ever; only the product of each convolution, int8 times
int8 summed in int32, is torch's. Bytes are 0 to 255 and torch wants -128 to 127, so their top bit
is turned and the bias makes up for it. Sums are whole numbers far below 2^31 (model.py), so they
are exact in any order; but a processor without such an instruction may be given one that saturates
in between (oneDNN says so of AVX2), so the worst sums are tried before anything is believed.
torch is an extra, looked for only where it is asked for; its product of bytes is `torch._int_mm`.
"""

import importlib
from typing import Any, Final

import numpy as np

from nemesis.processors.ecc_model.model import ACTIVATION_MAX, TAPS, Model
from nemesis.processors.ecc_model.network import Bytes, Network
from nemesis.schemas.errors import NemesisError

PART_WIDTH: Final = 2_048
"""Columns of a part: bytes take a quarter of the cache that floats do."""
TOP_BIT: Final = 128
CHANNELS_USUAL: Final = 32
"""Of models: the product that is tried is as large as theirs."""


class EngineError(NemesisError):
    """The engine that was asked for cannot be had here."""

    exit_code = 2


def integer_torch() -> Any:
    """torch, if its products of bytes are exact on this processor.

    Raises:
        EngineError: it is not installed, or they are not.
    """
    hint = "unset NEMESIS_ENGINE: numpy gives the same scores"
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)  # a second thread collapses where anything else runs
        exact = _is_exact(torch)
    except ImportError as error:
        raise EngineError("the engine torch is not installed", hint=hint) from error
    except (AttributeError, RuntimeError) as error:
        raise EngineError(
            f"the engine torch has no product of bytes: {error}", hint=hint
        ) from error
    if not exact:
        raise EngineError("the engine torch rounds products of bytes here", hint=hint)
    return torch


def _is_exact(torch: Any) -> bool:
    """Whether the greatest sums of both signs, and mixed ones, are what integers say."""
    random, terms = np.random.default_rng(1), TAPS * CHANNELS_USUAL
    weights = random.integers(-127, 128, (CHANNELS_USUAL, terms)).astype(np.int8)
    weights[:2] = np.array([[127], [-127]])
    bytes_ = random.integers(-128, 128, (terms, PART_WIDTH)).astype(np.int8)
    bytes_[:, :2] = np.array([127, -128])
    found = torch._int_mm(torch.from_numpy(weights), torch.from_numpy(bytes_)).numpy()
    return bool((found == weights.astype(np.float64) @ bytes_.astype(np.float64)).all())


class TorchNetwork(Network):
    """A network whose convolutions are products of bytes."""

    def __init__(self, model: Model, count: int) -> None:
        torch, width = integer_torch(), PART_WIDTH
        self._product: Final[Any] = torch._int_mm
        self._integers: Final[list[tuple[Any, Any, Any]]] = []
        """Of each convolution: weights, biases, shifts."""
        for layer in model.convolutions:
            weights = np.frombuffer(layer.weights, np.int8).reshape(layer.outputs, -1).copy()
            turned = TOP_BIT * weights.astype(np.int64).sum(axis=1)
            biases = np.frombuffer(layer.biases, "<i4") + turned
            shifts = np.frombuffer(layer.shifts, np.uint8).astype(np.int32)
            column = (biases.astype(np.int32).reshape(-1, 1), shifts.reshape(-1, 1))
            self._integers.append((torch.from_numpy(weights), *column))
        self._tapped: Final = np.empty((TAPS, model.channels, width), np.uint8)
        self._turned: Final = torch.from_numpy(self._tapped.reshape(-1, width).view(np.int8))
        self._sums: Final = np.empty((model.channels, width), np.int32)
        self._summed: Final = torch.from_numpy(self._sums)
        super().__init__(model, count, part_width=width)

    def _convolved(self, now: Bytes, rings: list[Bytes]) -> Bytes:
        sums, residual = self._sums, np.empty_like(self._sums)
        for at, ((weights, biases, shifts), ring) in enumerate(
            zip(self._integers, rings, strict=True)
        ):
            self._gather(self._tapped, now, ring, self._dilations[at])
            if at % 2 == 0:
                residual[:] = now
            np.bitwise_xor(self._tapped, TOP_BIT, out=self._tapped)
            self._product(weights, self._turned, out=self._summed)
            np.add(sums, biases, out=sums)
            if at % 2:
                np.left_shift(residual, shifts, out=residual)
                np.add(sums, residual, out=sums)
            np.right_shift(sums, shifts, out=sums)
            np.clip(sums, 0, ACTIVATION_MAX, out=sums)
            now = sums.astype(np.uint8)
        return now
