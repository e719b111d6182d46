"""The model while it learns: floats in torch, on the grid of the integers that it will become.

Activations are multiples of 2^-ACTIVATION_BITS from 0 to 255 of them, as the shipped model's are;
weights get their own power of two for each output. While `exact` is off nothing is rounded; while
it is on everything is, and the gradient passes as if it were not (Bengio et al., arXiv 1308.3432;
Jacob et al., CVPR 2018). Then a float32 forward pass is exact and gives the bits of network.py.
torch is an extra and is looked for only here.
"""

import importlib
from typing import Any, Final

import numpy as np

from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import (
    ACTIVATION_MAX,
    DILATIONS,
    HORIZONS_S,
    LOGITS,
    RECEPTIVE_STEPS,
    TAPS,
    Layer,
    layer_of,
)
from nemesis.schemas.errors import NemesisError

ACTIVATION_BITS: Final = 5
LOGIT_BITS: Final = 7
INPUT_BITS: Final = 5
WEIGHT_MAX: Final = 127
SPARSE_STEPS: Final = DILATIONS[-1]
SHIFT_MAX: Final = 14
"""Residual and sums stay below 2^24 with room for the bias."""
LAYERS: Final = (
    "stem",
    *(f"convolution{at}" for at in range(2 * len(DILATIONS))),
    "hidden",
    "logits",
)


class NoTorchError(NemesisError):
    """Training was asked for where torch is not installed."""

    exit_code = 2


def torch_module() -> Any:
    """torch, which only training needs.

    Raises:
        NoTorchError: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise NoTorchError(
            "training needs torch, which is not installed",
            hint="pip install 'nemesis-gpu[train]'",
        ) from error


class FloatNetwork:
    """Weights as torch tensors, by layer."""

    def __init__(self, channels: int, seed: int) -> None:
        torch = torch_module()
        self.torch: Final[Any] = torch
        self.channels: Final = channels
        self.exact = False
        random = np.random.default_rng(seed)
        self.weights: Final[dict[str, Any]] = {}
        self.biases: Final[dict[str, Any]] = {}
        for name in LAYERS:
            outputs, terms, taps = self._shape(name)
            spread = np.sqrt((1.0 if name == "logits" else 2.0) / (terms * taps))
            if name.startswith("convolution") and int(name[11:]) % 2:
                spread /= len(DILATIONS)  # blocks begin near the identity
            drawn = random.normal(0.0, spread, (outputs, terms, taps)).astype(np.float32)
            self.weights[name] = torch.from_numpy(drawn).requires_grad_()
            self.biases[name] = torch.zeros(outputs, requires_grad=True)

    def parameters(self) -> list[Any]:
        """Everything that is learnt."""
        return [*self.weights.values(), *self.biases.values()]

    def forward(self, codes: Any) -> Any:
        """[batch, HORIZONS_S, step] logits of int8 codes [batch, INPUTS, step]."""
        functional = self.torch.nn.functional
        now = stem = self._activated(self._layer("stem", codes.float() / (1 << INPUT_BITS)))
        for block, dilation in enumerate(DILATIONS):
            before = now
            for half in range(2):
                padded = functional.pad(now, ((TAPS - 1) * dilation, 0))
                summed = self._layer(f"convolution{2 * block + half}", padded, dilation)
                now = self._activated(summed + before if half else summed)
        ends = self.torch.cat([now, stem], dim=1)
        return self._layer("logits", self._activated(self._layer("hidden", ends)))

    def sparse(self, codes: Any) -> Any:
        """`forward` at every SPARSE_STEPS-th step from RECEPTIVE_STEPS on, and nothing else.

        A block is asked only where the ones above it look: with every other output left out the
        next block's dilation is 1 again. A third of the work, the same sums.
        """
        stem = self._activated(self._layer("stem", codes.float() / (1 << INPUT_BITS)))
        now = stem
        for block, dilation in enumerate(DILATIONS):
            stride = 1 if dilation == SPARSE_STEPS else 2
            inner = self._activated(self._layer(f"convolution{2 * block}", now))
            outer = self._layer(f"convolution{2 * block + 1}", inner, stride=stride)
            now = self._activated(outer + now[:, :, 2 * (TAPS - 1) :: stride])
        ends = self.torch.cat([now, stem[:, :, RECEPTIVE_STEPS::SPARSE_STEPS]], dim=1)
        return self._layer("logits", self._activated(self._layer("hidden", ends)))

    def logit_codes(self, codes: Any) -> Any:
        """int16, as the shipped model gives them; for networks that are exact."""
        logits = self.torch.floor(self.forward(codes) * (1 << LOGIT_BITS) + 0.5)
        return logits.clamp(-(LOGITS // 2), LOGITS // 2 - 1).to(self.torch.int16)

    def layer(self, name: str) -> Layer:
        """A layer in integers; the taps from now backwards."""
        weights = self.weights[name].detach().numpy().astype(np.float64)[:, :, ::-1]
        outputs = len(weights)
        in_bits = INPUT_BITS if name == "stem" else ACTIVATION_BITS
        out_bits = LOGIT_BITS if name == "logits" else ACTIVATION_BITS
        shifts = self._shifts(name).numpy().astype(int)
        scales = np.ldexp(1.0, shifts)[:, None]
        whole = np.floor(weights.transpose(0, 2, 1).reshape(outputs, -1) * scales + 0.5)
        more = out_bits - in_bits
        own = shifts - more
        biases = self.biases[name].detach().numpy().astype(np.float64)
        halves = np.ldexp(0.5, own)
        offsets = np.floor(biases * np.ldexp(1.0, shifts + in_bits) + 0.5) + halves
        return layer_of(whole.astype(np.int8), offsets.astype(int).tolist(), own.tolist())

    def _shape(self, name: str) -> tuple[int, int, int]:
        wide = self.channels
        if name == "stem":
            return wide, len(INPUTS), 1
        if name == "hidden":
            return wide, 2 * wide, 1
        if name == "logits":
            return len(HORIZONS_S), wide, 1
        return wide, wide, TAPS

    def _shifts(self, name: str) -> Any:
        """Of each output: the largest power of two for which its weights fit into int8."""
        torch, weights = self.torch, self.weights[name].detach()
        most = weights.abs().amax(dim=(1, 2)).clamp(min=2.0**-20)
        fits = torch.floor(torch.log2((WEIGHT_MAX + 0.49) / most))
        return fits.clamp(LOGIT_BITS - ACTIVATION_BITS + 1, SHIFT_MAX)

    def _layer(self, name: str, values: Any, dilation: int = 1, stride: int = 1) -> Any:
        functional = self.torch.nn.functional
        weights, biases = self.weights[name], self.biases[name]
        if self.exact:
            scales = self.torch.exp2(self._shifts(name))
            in_bits = INPUT_BITS if name == "stem" else ACTIVATION_BITS
            weights = self._rounded(weights * scales[:, None, None]) / scales[:, None, None]
            biases = self._rounded(biases * scales * (1 << in_bits)) / (scales * (1 << in_bits))
        return functional.conv1d(values, weights, biases, dilation=dilation, stride=stride)

    def _activated(self, values: Any) -> Any:
        if self.exact:
            values = self._rounded(values * (1 << ACTIVATION_BITS)) / (1 << ACTIVATION_BITS)
        return values.clamp(0.0, ACTIVATION_MAX / (1 << ACTIVATION_BITS))

    def _rounded(self, values: Any) -> Any:
        """To whole numbers, half up; the gradient does not see it."""
        return values + (self.torch.floor(values + 0.5) - values).detach()
