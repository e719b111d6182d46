"""What the type checker looks at, and what it finds."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

import msgspec

from nemesis.processors.parallelism.layout import (
    DATA,
    Layout,
    infers,
    layout_of,
    order_of,
    stated,
)
from nemesis.processors.parallelism.model import COUNT_MAX, ModelShape
from nemesis.processors.parallelism.spec import Dim, Spec, Term
from nemesis.processors.topology.gpu_class import GPU_CLASSES, GpuClass
from nemesis.processors.topology.pool import Pool

Severity = Literal["error", "warning"]
Recompute = Literal["", "none", "selective", "full"]
"""What of the activations is computed again in the backward pass; "": not said.

selective: the matrices of attention scores, as Megatron-LM means it; flash attention keeps none."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job sets beside its degrees; the defaults are what most frameworks do."""

    seq: int = 0
    """Tokens of a sequence; 0: the model's."""
    recompute: Recompute = ""
    distributed_optimizer: bool = True
    """The optimizer's state is sharded over the replicas (ZeRO-1)."""
    adapters: bool = False
    """Only adapters are trained (LoRA): the weights have neither gradients nor optimizer."""
    weight_bytes: int = 2
    """Of one weight as it is kept: 2 in BF16, 1 where FP8 weights are gathered as such."""
    gradient_bytes: int = 0
    """Of one gradient, 2 or 4; 0: not said."""
    stages: tuple[int, ...] = ()
    """Layers of each stage, or of each chunk in the order of layers; (): equal ones."""
    microbatch_group: int = 0
    """Microbatches that an interleaved pipeline sends through a chunk in a row; 0: PP."""
    sharp: tuple[Dim, ...] = ()
    """Dims whose reductions are to run in the switches."""


RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "seq": (1, COUNT_MAX),
    "weight_bytes": (1, 4),
    "gradient_bytes": (2, 4),
    "stages": (0, COUNT_MAX),
    "microbatch_group": (1, COUNT_MAX),
}
"""From and to of each number of the settings, where it is said; a stage may hold the loss alone."""


class Case(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job to be checked, with as much as is known around it."""

    spec: Spec
    gpu_count: int = 0
    """That the job is to have; 0: what its degrees say, or what the pool has free."""
    model: ModelShape | None = None
    pool: Pool | None = None
    gpu_class: GpuClass | None = None
    """Of its GPUs, where there is no pool to say."""
    settings: Settings = Settings()

    @cached_property
    def layout(self) -> Layout:
        """Degrees and order; call it only after W4 and W1 have passed."""
        return layout_of(self.spec, max(1, self.world // stated(self.spec)))

    @property
    def world(self) -> int:
        """How many GPUs the job is to have."""
        if self.gpu_count:
            return self.gpu_count
        product = stated(self.spec)
        if not infers(self.spec) or self.pool is None:
            return product
        held = sum(self.pool.whole_free[: self.spec.spares])
        return max(1, (self.pool.free_count - held) // product) * product

    @property
    def classes(self) -> tuple[GpuClass, ...]:
        """The known classes of GPUs that it may get, each once."""
        if self.pool is None:
            return (self.gpu_class,) if self.gpu_class else ()
        names = dict.fromkeys(self.pool.gpu_classes)
        return tuple(GPU_CLASSES[name] for name in names if name in GPU_CLASSES)

    @property
    def seq(self) -> int:
        """Tokens of a sequence, 0 where it is not known."""
        return self.settings.seq or (self.model.seq if self.model else 0)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage, with all its chunks, where they are listed."""
        listed, stages = self.settings.stages, self.layout.degree("PP")
        if len(listed) == stages * self.layout.chunks:
            return tuple(sum(listed[at::stages]) for at in range(stages))
        return listed

    @property
    def micro_batch(self) -> int:
        """Sequences that a replica takes at a time."""
        return self.spec.micro_batch or 1

    @property
    def microbatches(self) -> int:
        """Of a replica in a step, rounded down; 0 where the global batch is not said."""
        return self.spec.global_batch // (self.layout.replicas * self.micro_batch)

    def part(self, dim: Dim) -> str:
        """Where a dim is spoken of: `0` for the first term, "" where nowhere."""
        same = DATA if dim in DATA else (dim,)
        places = [str(at) for at, term in enumerate(self.spec.terms) if term.dim in same]
        return places[0] if places else ""

    def wishes(self) -> list[tuple[str, Term]]:
        """The terms that ask for a fabric, innermost first, each with its part."""
        places = {term: f"{at}.fabric" for at, term in reversed([*enumerate(self.spec.terms)])}
        by_order = {dim: at for at, dim in enumerate(order_of(self.spec))}
        asking = [term for term in dict.fromkeys(self.spec.terms) if term.fabric]
        asking.sort(key=lambda term: by_order.get(term.dim, 0))
        return [(places[term], term) for term in asking]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule has to say."""

    code: str
    text: str
    """What is wrong, with values."""
    part: str = ""
    """Of the description, as `parsing.Spans` names it; "": all of it."""
    legal: str = ""
    """The nearest that would do, as `TP 8 -> 4 or 16`."""
    severity: Severity = "error"
    waits: bool = False
    """Only what other jobs have is in the way."""
