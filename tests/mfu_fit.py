"""Fits the constants of the MFU model: few of them, each with a prior from elsewhere.

Least squares on the logarithm of predicted over measured throughput, Huber's weights for outliers,
each source counting little more for many rows than for few, and a normal prior on the logarithm of
each constant. Rows with experts fit what is of experts and nothing else, after the others.
Gauss-Newton by finite differences: some hundred evaluations of the table.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from nemesis.processors.mfu.constants import Constants
from nemesis.processors.mfu.fabric import MILLION
from tests.mfu_rows import Row

PRIORS: dict[str, tuple[float, float, str]] = {
    "gemm_ampere": (0.82, 0.1, "256.5 of 312 TFLOP/s, 16384 cubed, Azure ND_A100_v4"),
    "gemm_hopper": (0.70, 0.1, "1377 of 1979 FP8 TFLOP/s, 16384 cubed, Azure ND_H100_v5"),
    "gemm_blackwell": (0.70, 0.1, "as Hopper"),
    "gemm_ultra": (1.05, 0.1, "cube root of 1400 over 1200 W"),
    "gemm_fp8": (0.95, 0.1, "FP8 and BF16 reach much the same share"),
    "gemm_edge": (0.50, 0.3, "1024 to 16384 cubed on A100 and H100, Azure"),
    "attention": (1.20, 0.2, "causal kernels skip half the square, at lower rates, and backward"),
    "attention_ampere": (0.73, 0.12, "FlashAttention 2, arXiv 2307.08691"),
    "attention_hopper": (
        0.35,
        0.12,
        "FlashAttention 2, arXiv 2407.08608; 328 of 989, Azure",
    ),
    "attention_blackwell": (0.35, 0.12, "as Hopper"),
    "attention_early": (0.70, 0.15, "FlashAttention 2 is 1.3 to 2 times as fast, arXiv 2307.08691"),
    "attention_fused": (1.50, 0.2, "FlashAttention 3 is 1.5 to 2 times as fast, arXiv 2407.08608"),
    "elementwise": (1.20, 0.3, "bytes that must move, and a fifth"),
    "elementwise_eager": (2.00, 0.3, "one kernel an operation"),
    "fp8_casts": (1.00, 0.3, "bytes that must move"),
    "tp_exposed": (0.50, 0.3, "half"),
    "dp_exposed": (0.20, 0.4, "a fifth"),
    "fsdp_exposed": (0.80, 0.25, "most: gathers and products share memory and multiprocessors"),
    "recompute": (0.80, 0.1, "a forward pass is leaner than half a backward pass"),
    "expert_load": (1.50, 0.3, "the busiest rank of a routed layer has half as much again"),
    "young": (0.12, 0.4, "an eighth"),
}
"""Value, standard deviation of its logarithm, where from."""
NOISE = 0.06
"""Standard deviation of the logarithm of a throughput that the model cannot explain."""
HUBER = 0.08
CROWD = 0.7
"""Rows of a source and GPU count as the power 1 - CROWD of their number."""
STEP = 0.02
ROUNDS = 5


OF_EXPERTS = ("expert_load",)


def prior() -> Constants:
    """Before any row was read."""
    return msgspec.convert(
        {name: round(MILLION * v) for name, (v, _, _) in PRIORS.items()}, Constants
    )


def errors(rows: Sequence[Row], fitted: Constants) -> list[float]:
    """Logarithm of predicted over measured, row by row."""
    found: list[float] = []
    for row in rows:
        step = row.predicted(fitted)
        rate = step.tokens / step.gpus * 1e9 / step.step_ns
        found.append(math.log(rate / row.measured))
    return found


def fit(rows: Sequence[Row]) -> Constants:
    """The constants that explain the rows best without leaving their priors far behind."""
    dense = [row for row in rows if not row.shape.experts]
    routed = [row for row in rows if row.shape.experts]
    others = [name for name in PRIORS if name not in OF_EXPERTS]
    fitted = _fit(dense, others, prior())
    return _fit(routed, OF_EXPERTS, fitted) if routed else fitted


def _fit(rows: Sequence[Row], names: Sequence[str], start: Constants) -> Constants:
    def moved(logs: Iterable[float]) -> Constants:
        changed = {name: round(MILLION * math.exp(x)) for name, x in zip(names, logs, strict=True)}
        return replace(start, **changed)

    center = np.array([math.log(PRIORS[name][0]) for name in names])
    stiffness = np.array([1 / PRIORS[name][1] ** 2 for name in names])
    crowd = Counter((row.source, row.gpu_name) for row in rows)
    share = np.array([crowd[row.source, row.gpu_name] ** -CROWD for row in rows]) / NOISE**2
    at = center.copy()
    for _ in range(ROUNDS):
        now = np.asarray(errors(rows, moved(at)), dtype=float)
        slopes = np.empty((len(rows), len(at)))
        for column in range(len(at)):
            aside = at.copy()
            aside[column] += STEP
            there = np.asarray(errors(rows, moved(aside)), dtype=float)
            slopes[:, column] = (there - now) / STEP
        weight = share * np.minimum(1, HUBER / np.maximum(np.abs(now), 1e-9))
        normal = slopes.T @ (weight[:, None] * slopes) + np.diag(stiffness)
        pull = -slopes.T @ (weight * now) - stiffness * (at - center)
        at = at + np.clip(np.linalg.solve(normal, pull), -0.3, 0.3)
    return moved(at)
