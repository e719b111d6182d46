"""The fitted constants of the MFU model, in ppm: `python -m tests.mfu_table --fit` writes them.

Each is a property of a GPU architecture or of a kind of software, none of a source of figures;
docs/mfu.md says what each means, where its prior comes from and how far the fit moved it.
"""

from functools import cache
from importlib.resources import files

import msgspec


class Constants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares and factors, in ppm."""

    gemm_ampere: int
    gemm_hopper: int
    gemm_blackwell: int
    """Of the peak, a large matrix product in a training step."""
    gemm_ultra: int
    """Of those of the first generation, the second generation of an architecture."""
    gemm_fp8: int
    """Of the share that BF16 reaches of its own peak."""
    gemm_edge: int
    """Reads and writes of operands that the product does not hide, as a share of their time."""
    attention: int
    """Of what its architecture reaches in isolation: scores of a training step."""
    attention_ampere: int
    attention_hopper: int
    attention_blackwell: int
    """Of the peak, FlashAttention 2 in isolation, counted over the whole square."""
    attention_early: int
    """Of that, the first FlashAttention and its Triton forms."""
    attention_fused: int
    """Of that, the vendor's kernel or FlashAttention 3."""
    elementwise: int
    """Bytes that norms, residuals and activations really move, of those that they must."""
    elementwise_eager: int
    """Of that, where each operation is a kernel of its own."""
    fp8_casts: int
    """Likewise, of the conversions to FP8."""
    tp_exposed: int
    """Of the traffic of tensor parallelism, what overlapping leaves to wait for."""
    dp_exposed: int
    """Likewise, of the gradients."""
    fsdp_exposed: int
    """Likewise, of gathered parameters and scattered gradients."""
    recompute: int
    """Time of a forward pass that is run again, of a third of forward and backward."""
    expert_load: int
    """Time of the products of experts on the busiest rank, of that of an even load."""
    young: int
    """What kernels lack on the day an architecture comes out; gone after TUNED_MONTHS."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nine in ten rows of sources that were left out of the fit lay within so much, in ppm.

    `python -m tests.mfu_table --write` writes them.
    """

    dense: int
    dense_fp8: int
    experts: int


@cache
def doubt() -> Doubt:
    """Of this release."""
    file = files("nemesis.processors.mfu").joinpath("doubt.json")
    return msgspec.json.decode(file.read_bytes(), type=Doubt)


@cache
def constants() -> Constants:
    """Those of this release."""
    file = files("nemesis.processors.mfu").joinpath("constants.json")
    return msgspec.json.decode(file.read_bytes(), type=Constants)
