"""How a training job is cut over GPUs, and what its software does."""

from typing import Literal

import msgspec

Recompute = Literal["none", "core", "op", "full"]
"""Nothing; the scores of attention where no fused kernel keeps them out of memory; every second
matrix product (torch's selective checkpointing by operation); whole layers."""
Precision = Literal["bf16", "fp16", "fp8"]
Attention = Literal["unfused", "early", "flash", "fused"]
"""Scores written to memory; the first FlashAttention and its Triton forms; FlashAttention 2; the
vendor's kernel or FlashAttention 3."""


class Layout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Degrees, batch and sequence of a job. GPUs: tp x cp x pp x dp; experts take theirs of dp."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    chunks: int = 1
    """Of a pipeline stage (virtual stages)."""
    stages: tuple[int, ...] = ()
    """Layers of each; (): as even as they come."""
    dp: int = 1
    ep: int = 1
    etp: int = 1
    shard: int = 0
    """Ranks that FSDP shards parameters over; 0: each keeps its own."""
    reshard: bool = True
    """FSDP gathers again for backward and for each microbatch."""
    micro_batch: int = 1
    global_batch: int
    """Sequences."""
    sequence: int
    """Tokens."""
    recompute: Recompute = "none"
    precision: Precision = "bf16"
    gradient_bytes: int = 2
    """Of a gradient on the wire."""

    @property
    def gpus(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def cuts(self) -> float:
        """How often the fullest stage goes into the model: pp where stages are even."""
        return sum(self.stages) / max(self.stages) if self.stages else self.pp

    @property
    def microbatches(self) -> int:
        """Of a step and replica."""
        return max(1, self.global_batch // (self.dp * self.micro_batch))

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.global_batch * self.sequence


class Software(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is fused, what runs beside what, what of the model is other than usual.

    Defaults are those of a current stack.
    """

    attention: Attention = "fused"
    eager: bool = False
    """Elementwise operations run one by one."""
    sequence_parallel: bool = True
    tp_overlap: bool = True
    pp_overlap: bool = True
    dp_overlap: bool = True
    sharded_optimizer: bool = True
    age_months: int = 36
    """Of the kernels: from the launch of the GPU's architecture to the run."""
    parallel_block: bool = False
    """The model's blocks read one input, attention beside feed-forward: half the TP traffic."""
    window: int = 0
    """Tokens that the model's attention looks back; 0: all."""
