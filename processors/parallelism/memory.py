"""What a job keeps in a GPU's memory: a lower estimate, of the fullest stage, in bytes.

Weights of 1 or 2 bytes a parameter, gradients of 2 or 4, 12 of Adam and its copy of the weights,
which a distributed optimizer shares out over the replicas (Megatron-LM docs);
under FSDP all of it is. Activations: Korthikanti et al., arXiv 2205.05198, table 2, with attention
that keeps no matrix of scores.
"""

from math import ceil
from typing import Final

import msgspec

from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.model import ModelShape

GRADIENT_BYTES: Final = (2, 4)
OPTIMIZER_BYTES: Final = 12
GATHERED_LAYERS: Final = 2
"""Whole layers that FSDP holds at a time: the one in use and the next."""


class Memory(msgspec.Struct, frozen=True):
    """Of the fullest GPU; where a setting is not said, as it needs least and as it needs most."""

    state_bytes: int
    state_bytes_most: int
    activation_bytes: int
    activation_bytes_most: int


def memory_of(case: Case) -> Memory:
    """The estimate; the case has a model, and passes the rules on its shape."""
    assert case.model is not None
    said = case.settings.gradient_bytes
    low, high = (_state(case, case.model, said or each) for each in GRADIENT_BYTES)
    lean = case.settings.recompute in ("", "full")
    rich = case.settings.recompute != "full"
    return Memory(
        low,
        high,
        _activations(case, case.model, full=lean),
        _activations(case, case.model, full=not rich),
    )


def _stage_layers(case: Case, model: ModelShape) -> int:
    """Layers of the fullest stage."""
    return max(case.stage_layers, default=ceil(model.layers / case.layout.degree("PP")))


def _state(case: Case, model: ModelShape, gradient_bytes: int) -> int:
    layout = case.layout
    tp, stages = layout.degree("TP"), layout.degree("PP")
    layers = _stage_layers(case, model)
    moe = min(layers, model.moe_layers)
    embeddings = 2 if stages == 1 and not model.tied else 1
    dense = (layers - moe) * model.dense_layer + moe * model.moe_rest + embeddings * model.embedding
    experts = moe * (model.experts // layout.expert_parallel) * model.expert
    own, copies = dense / tp, layout.degree("DP") * layout.degree("CP")
    held, spread = experts / layout.expert_tensor, max(1, layout.expert_replicas)
    weight_bytes = case.settings.weight_bytes
    if case.settings.adapters:
        copies = copies if layout.sharded else 1
        return int(weight_bytes * (own / copies + held / (spread if layout.sharded else 1)))
    kept = weight_bytes + gradient_bytes
    if layout.sharded:
        gathered = GATHERED_LAYERS * weight_bytes * (model.moe_rest if moe else model.dense_layer)
        return int((kept + OPTIMIZER_BYTES) * (own / copies + held / spread) + gathered / tp)
    if not case.settings.distributed_optimizer:
        return int((kept + OPTIMIZER_BYTES) * (own + held))
    return int(kept * (own + held) + OPTIMIZER_BYTES * (own / copies + held / spread))


def _activations(case: Case, model: ModelShape, *, full: bool) -> int:
    layout = case.layout
    tp, stages, chunks = layout.degree("TP"), layout.degree("PP"), layout.chunks
    tokens = case.seq * case.micro_batch / layout.degree("CP") * model.hidden
    ffn = model.ffn
    if model.moe_layers:
        ffn = model.top_k * model.expert_ffn + model.shared_ffn
    width = 4 * ffn / model.hidden
    split = tp if case.spec.sequence_parallel else 1
    layer = tokens * (10 / split + (8 + width) / tp)
    flight = float(stages)
    if chunks > 1:
        flight = stages * (1 + (stages - 1) / (stages * chunks))
    if case.spec.global_batch:
        flight = min(flight, max(1, case.microbatches))
    layers = _stage_layers(case, model) * flight
    return int(layers * 2 * tokens / split + layer if full else layers * layer)
