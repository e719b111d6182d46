"""How long one training step takes, term by term, and what that is of the peak (MFU).

A stage works through its microbatches one after the other; the pipeline fills and drains around
them (the bubble); then gradients are reduced and the optimizer runs. What communication hides under
computation, and how much of it, is fitted (docs/mfu.md). Nothing is random and nothing is measured
here: the same layout, links and constants give the same nanoseconds everywhere.
"""

from typing import Final

import msgspec

from nemesis.processors.mfu.constants import Constants, doubt
from nemesis.processors.mfu.curves import How, worse
from nemesis.processors.mfu.fabric import MILLION, Fabric, Transfer
from nemesis.processors.mfu.gpus import Gpu
from nemesis.processors.mfu.kernels import Kernels
from nemesis.processors.mfu.layout import Layout, Software
from nemesis.processors.mfu.shape import flops_per_token
from nemesis.processors.mfu.spans import Spans
from nemesis.processors.mfu.traffic import Traffic
from nemesis.processors.parallelism.model import ModelShape

OPTIMIZER_BYTES: Final = 38
"""A parameter: Adam's moments and the FP32 copy read and written, gradients read for the norm and
for the update, the BF16 copy written."""
ACCUMULATE_BYTES: Final = 8
"""A parameter and microbatch: the FP32 gradient read and written."""
HIDDEN_SENDS: Final = 0.2
"""Of the sends of a pipeline, what is waited for where they overlap (1 where they do not)."""
PARTS: Final[tuple[str, ...]] = (
    "products",
    "attention",
    "elementwise",
    "recomputed",
    "head",
    "tensor",
    "context",
    "experts",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    step_ns: int
    parts_ns: dict[str, int]
    """By PARTS; they sum to the step."""
    tokens: int
    gpus: int
    flops_per_token: int
    mfu_ppm: int
    """Model FLOPs, attention over the whole square, recomputation not counted."""
    tokens_per_gpu_ps: int
    """Tokens a second and GPU, rounded."""
    transfers: dict[str, Transfer]
    """By part: the operation that it mostly consists of."""
    how: How
    """The least certain of them."""
    doubt_ppm: int
    """Nine in ten published rows like it, of sources that no constant had seen, were that close."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that a prediction depends on."""

    shape: ModelShape
    layout: Layout
    software: Software
    gpu: Gpu
    rail_gbps: float
    spans: Spans
    fitted: Constants


def predict(job: Job) -> Prediction:
    """The step of a job on its links."""
    step = _Step(job)
    parts = step.parts()
    rounded = {name: round(1e9 * parts[name]) for name in PARTS}
    step_ns = sum(rounded.values())
    layout = job.layout
    flops = flops_per_token(job.shape, layout.sequence)
    rate = layout.tokens / layout.gpus * 1e9 / step_ns
    fp8 = layout.precision == "fp8" and job.gpu.peak_fp8_tflops > 0
    peak = 1e12 * (job.gpu.peak_fp8_tflops if fp8 else job.gpu.peak_tflops)
    transfers = step.transfers()
    how: How = "none"
    for transfer in transfers.values():
        how = worse(how, transfer.how)
    return Prediction(
        step_ns=step_ns,
        parts_ns=rounded,
        tokens=layout.tokens,
        gpus=layout.gpus,
        flops_per_token=flops,
        mfu_ppm=round(MILLION * rate * flops / peak),
        tokens_per_gpu_ps=round(rate),
        transfers=transfers,
        how=how,
        doubt_ppm=_doubt(job.shape, fp8),
    )


def _doubt(shape: ModelShape, fp8: bool) -> int:
    known = doubt()
    if shape.experts:
        return known.experts
    return known.dense_fp8 if fp8 else known.dense


class _Step:
    """The terms of one step, in seconds of the slowest rank."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.layout = job.layout
        self.kernels = Kernels(
            gpu=job.gpu,
            software=job.software,
            layout=job.layout,
            shape=job.shape,
            fitted=job.fitted,
        )
        self.traffic = Traffic(
            shape=job.shape,
            layout=job.layout,
            software=job.software,
            fabric=Fabric(gpu=job.gpu, rail_gbps=job.rail_gbps),
            spans=job.spans,
        )

    def transfers(self) -> dict[str, Transfer]:
        found = {
            "tensor": self.traffic.tensor().transfer,
            "context": self.traffic.context().transfer,
            "pipeline": self.traffic.pipeline().transfer,
        }
        if self.job.shape.experts:
            found["experts"] = self.traffic.experts().transfer
        if self.layout.shard > 1:
            found["data"] = self.traffic.gathered()[0]
        else:
            found["data"] = max(self.traffic.gradients(), key=lambda each: each.s).transfer
        return {name: each for name, each in found.items() if each.span.members > 1}

    def _layer(self) -> dict[str, float]:
        """A layer and microbatch, mean of those with and without experts."""
        shape, fitted = self.job.shape, self.job.fitted
        share = shape.moe_layers / shape.layers
        plain, experts = self.kernels.layer(False), self.kernels.layer(True)
        exposed = fitted.tp_exposed / MILLION if self.job.software.tp_overlap else 1.0
        found = {
            "products": (1 - share) * plain.products_s + share * experts.products_s,
            "attention": plain.attention_s,
            "elementwise": (1 - share) * plain.elementwise_s + share * experts.elementwise_s,
            "recomputed": (1 - share) * plain.recomputed_s + share * experts.recomputed_s,
            "tensor": self.traffic.tensor().s * exposed,
            "context": self.traffic.context().s * fitted.tp_exposed / MILLION,
            "experts": share * self.traffic.experts().s if share else 0.0,
        }
        return found

    def _slowest(self, each: float) -> tuple[int, float]:
        """(layers, seconds of the head) of the slowest stage: the fullest, or the last."""
        layout, layers = self.layout, self.job.shape.layers
        most = max(layout.stages, default=-(-layers // layout.pp))
        last = layout.stages[-1] if layout.stages else most - (layers % layout.pp > 0)
        head = self.kernels.head().total_s
        return (most, 0.0) if most * each > last * each + head else (last, head)

    def _stage(self, layer: dict[str, float]) -> dict[str, float]:
        """A microbatch on the slowest stage."""
        layout = self.layout
        layers, head = self._slowest(sum(layer.values()))
        stage = {name: layers * s for name, s in layer.items()}
        stage["head"] = head
        if layout.shard <= 1 or not layout.reshard:
            weights = self.traffic.local_weights()
            stage["elementwise"] += ACCUMULATE_BYTES * weights / self.kernels.memory
        return stage

    def parts(self) -> dict[str, float]:
        """Seconds by PARTS."""
        layout, software = self.layout, self.job.software
        layer = self._layer()
        stage = self._stage(layer)
        sends = self.traffic.pipeline().s * (HIDDEN_SENDS if software.pp_overlap else 1.0)
        mean = self._others(sum(layer.values())) + sends
        microbatches = layout.microbatches
        found: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        for name, s in stage.items():
            found[name] += s * microbatches
        found["pipeline"] = sends * microbatches
        found["bubble"] = (layout.pp - 1) / layout.chunks * mean
        busy = sum(stage.values())
        found["data"] = self._sharded(busy) if layout.shard > 1 else self._replicated(busy)
        found["optimizer"] = self._optimizer()
        return found

    def _others(self, each: float) -> float:
        """What a microbatch takes on a stage beside the slowest, on average."""
        layout, layers = self.layout, self.job.shape.layers
        if layout.stages and layout.pp > 1:
            return each * (layers - self._slowest(each)[0]) / (layout.pp - 1)
        return each * layers / layout.pp

    def _sharded(self, busy: float) -> float:
        """FSDP: what gathering and scattering adds."""
        layout, fitted = self.layout, self.job.fitted
        gathered, scattered = (each.ns / 1e9 for each in self.traffic.gathered())
        layers = self.job.shape.layers / layout.cuts
        exposed = fitted.fsdp_exposed / MILLION
        copies = self.traffic.mirrored().s
        if layout.reshard:
            each = layers * (2 * gathered + scattered)
            waited = max(each - busy, 0.0) + exposed * min(each, busy)
            return layout.microbatches * (waited + gathered + scattered) + copies
        once = layers * (gathered + scattered)
        return max(gathered + scattered, once - busy, exposed * once) + copies

    def _replicated(self, busy: float) -> float:
        """Gradients, once a step: behind the last backward pass, or beside it."""
        whole = sum(each.s for each in self.traffic.gradients())
        if not self.job.software.dp_overlap:
            return whole
        last = whole / max(1.0, self.job.shape.layers / self.layout.cuts)
        beside = self.job.fitted.dp_exposed / MILLION * min(whole, busy)
        return max(last, whole - busy) + beside

    def _optimizer(self) -> float:
        layout = self.layout
        ranks = 1
        if layout.shard > 1:
            ranks = layout.shard
        elif self.job.software.sharded_optimizer:
            ranks = layout.dp * layout.cp
        weights = self.traffic.local_weights() / ranks
        return OPTIMIZER_BYTES * weights / self.kernels.memory
