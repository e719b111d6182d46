"""How long one rank computes on one microbatch: matrix products, attention, and all the rest.

A product takes its FLOPs at the architecture's rate, and a part of the time that its operands take
through memory, which is what makes small ones slow. Attention has a rate of its own: with one for
both, long sequences come out too fast. What is elementwise takes its bytes through memory.
"""

from typing import Final

import msgspec

from nemesis.processors.mfu.constants import Constants
from nemesis.processors.mfu.fabric import MILLION
from nemesis.processors.mfu.gpus import TUNED_MONTHS, Gpu, clock_share
from nemesis.processors.mfu.layout import Layout, Software
from nemesis.processors.parallelism.model import ModelShape

NORM_BYTES: Final = 60
"""A token, a layer and an element of the hidden size, forward and backward, in BF16: two norms and
two residuals read and written, the rotary embedding, and their gradients."""
ACTIVATION_BYTES: Final = {False: 10, True: 16}
"""Likewise an element of the feed-forward width, without and with a gate."""
SCORE_BYTES: Final = 30
SCORE_FORWARD_BYTES: Final = 13
"""A score, forward and backward: written by the product, masked and normalised, dropped, read."""
LOSS_BYTES: Final = 30
"""A token and an element of the vocabulary: logits in BF16, softmax in FP32, its gradient."""
PERMUTE_BYTES: Final = 16
"""A routed token and an element of the hidden size: to the experts' order and back, both ways."""
CAST_BYTES: Final = 4
"""An operand: read in BF16, written in FP8 and transposed."""
RECOMPUTED_ELEMENTWISE: Final = 0.4
RECOMPUTED_SCORES: Final = 0.35
RECOMPUTED_FLASH: Final = 0.3125
"""Of forward and backward, the forward share (FlashAttention: two products of seven)."""


class Work(msgspec.Struct, frozen=True):
    """Seconds of a rank on one microbatch."""

    products_s: float = 0.0
    attention_s: float = 0.0
    elementwise_s: float = 0.0
    recomputed_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.products_s + self.attention_s + self.elementwise_s + self.recomputed_s


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of GPU with one kind of software, on one layout."""

    gpu: Gpu
    software: Software
    layout: Layout
    shape: ModelShape
    fitted: Constants

    @property
    def tokens(self) -> float:
        """Of a microbatch and rank, before tensor parallelism."""
        return self.layout.micro_batch * self.layout.sequence / self.layout.cp

    @property
    def _keys(self) -> int:
        """That a token looks at."""
        sequence, window = self.layout.sequence, self.software.window
        return min(sequence, window) if window else sequence

    @property
    def memory(self) -> float:
        """Bytes a second."""
        return self.gpu.memory_gbps * 1e9

    @property
    def _fp8(self) -> bool:
        return self.layout.precision == "fp8" and self.gpu.peak_fp8_tflops > 0

    def _rate(self, fp8: bool) -> float:
        """FLOPs a second of a large product."""
        by_architecture = {
            "volta": self.fitted.gemm_ampere,
            "ampere": self.fitted.gemm_ampere,
            "hopper": self.fitted.gemm_hopper,
            "blackwell": self.fitted.gemm_blackwell,
        }
        share = by_architecture[self.gpu.architecture] / MILLION
        missing = max(0, TUNED_MONTHS - max(0, self.software.age_months)) / TUNED_MONTHS
        share = share * clock_share(self.gpu) * (1 - missing * self.fitted.young / MILLION)
        if self.gpu.ultra:
            share = share * self.fitted.gemm_ultra / MILLION
        if fp8:
            return share * self.fitted.gemm_fp8 / MILLION * self.gpu.peak_fp8_tflops * 1e12
        return share * self.gpu.peak_tflops * 1e12

    def product(
        self, rows: float, inner: float, columns: float, fp8: bool, copies: float = 1.0
    ) -> float:
        """Seconds of one pass; `copies` of the weights share the rows (experts)."""
        operand_bytes = 1 if fp8 else 2
        operands = operand_bytes * (rows * inner + copies * inner * columns) + 2 * rows * columns
        edge = self.fitted.gemm_edge / MILLION * operands / self.memory
        return 2 * rows * inner * columns / self._rate(fp8) + edge

    def _attention(self) -> tuple[float, float]:
        """Seconds forward and backward, and of the part that recomputing repeats."""
        layout, shape = self.layout, self.shape
        keys = self._keys
        flops = 3 * 4 * self.tokens * keys * shape.heads * shape.head_width / layout.tp
        if self.software.attention == "unfused":
            scores = self.tokens * keys * shape.heads / layout.tp
            whole = flops / self._rate(fp8=False) + SCORE_BYTES * scores / self.memory
            return whole, whole * RECOMPUTED_SCORES
        alone = {
            "volta": self.fitted.attention_ampere,
            "ampere": self.fitted.attention_ampere,
            "hopper": self.fitted.attention_hopper,
            "blackwell": self.fitted.attention_blackwell,
        }[self.gpu.architecture]
        share = alone / MILLION * self.fitted.attention / MILLION * clock_share(self.gpu)
        if self.software.attention == "early":
            share = share * self.fitted.attention_early / MILLION
        elif self.software.attention == "fused":
            share = share * self.fitted.attention_fused / MILLION
        whole = flops / (share * self.gpu.peak_tflops * 1e12)
        return whole, whole * RECOMPUTED_FLASH

    def _moved(self) -> float:
        """Bytes really moved for each that an elementwise operation must move."""
        share = self.fitted.elementwise / MILLION
        return share * self.fitted.elementwise_eager / MILLION if self.software.eager else share

    def layer(self, experts: bool) -> Work:
        """One layer, forward and backward."""
        layout, shape, rows = self.layout, self.shape, self.tokens
        fp8, tp = self._fp8, layout.tp
        split = tp if self.software.sequence_parallel else 1
        width = shape.heads * shape.head_width
        into = shape.attention / shape.hidden - width
        once = self.product(rows, shape.hidden, into / tp, fp8)
        once += self.product(rows, width / tp, shape.hidden, fp8)
        moved = NORM_BYTES * rows * shape.hidden / split
        operands = into + 2 * shape.hidden
        if not experts:
            once += self._feed_forward(rows, shape.ffn / tp, fp8)
            moved += ACTIVATION_BYTES[shape.gated] * rows * shape.ffn / tp
            operands += 2 * shape.ffn / tp
        else:
            routed = rows * layout.etp / tp * shape.top_k
            inner = shape.expert_ffn / layout.etp
            busiest = self.fitted.expert_load / MILLION
            once += busiest * self._feed_forward(routed, inner, fp8, shape.experts / layout.ep)
            once += self._feed_forward(rows, shape.shared_ffn / tp, fp8)
            moved += ACTIVATION_BYTES[shape.gated] * routed * inner
            moved += ACTIVATION_BYTES[shape.gated] * rows * shape.shared_ffn / tp
            moved += PERMUTE_BYTES * routed * shape.hidden
        elementwise = self._moved() * moved / self.memory
        if fp8:
            casts = self.fitted.fp8_casts / MILLION * CAST_BYTES * rows * operands
            elementwise += casts / self.memory
        attention, again = self._attention()
        return Work(
            products_s=3 * once,
            attention_s=attention,
            elementwise_s=elementwise,
            recomputed_s=self._recomputed(once, again, attention, elementwise),
        )

    def _feed_forward(self, rows: float, width: float, fp8: bool, copies: float = 1.0) -> float:
        if not width:
            return 0.0
        into = width * (2 if self.shape.gated else 1)
        return self.product(rows, self.shape.hidden, into, fp8, copies) + self.product(
            rows, width, self.shape.hidden, fp8, copies
        )

    def _recomputed(self, once: float, again: float, attention: float, moved: float) -> float:
        """Seconds of the forward pass that backward runs again."""
        share = self.fitted.recompute / MILLION
        match self.layout.recompute:
            case "full":
                return share * (once + again + RECOMPUTED_ELEMENTWISE * moved)
            case "op":
                return share * (once / 2 + RECOMPUTED_ELEMENTWISE * moved)
            case "core" if self.software.attention == "unfused":
                rows, tp = self.tokens, self.layout.tp
                scores = rows * self._keys * self.shape.heads / tp
                read = SCORE_FORWARD_BYTES * scores / self.memory
                return (attention - SCORE_BYTES * scores / self.memory) / 3 + read
            case _:
                return 0.0

    def head(self) -> Work:
        """Logits and loss, on the last stage."""
        columns = self.shape.vocab / self.layout.tp
        return Work(
            products_s=3 * self.product(self.tokens, self.shape.hidden, columns, fp8=False),
            elementwise_s=self._moved() * LOSS_BYTES * self.tokens * columns / self.memory,
        )
