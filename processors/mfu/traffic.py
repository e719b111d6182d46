"""What the ranks of a job send each other in a step, and how long each of it takes.

With sequence parallelism a block gathers its input and scatters its output twice forward and twice
backward, and gathers once more for the gradient of a weight: ten half all-reduces a layer. Without,
four whole ones. Experts exchange tokens four times a layer, context parallelism keys and values, a
pipeline one activation a chunk and direction, data parallelism the gradients and, where the
optimizer or the parameters are sharded, the parameters.
"""

import msgspec

from nemesis.processors.mfu.fabric import Fabric, Span, Transfer
from nemesis.processors.mfu.layout import Layout, Software
from nemesis.processors.mfu.spans import Spans
from nemesis.processors.parallelism.model import ModelShape

HALVES: int = 10
HALVES_RECOMPUTED: int = 14
WHOLES: int = 4
WHOLES_RECOMPUTED: int = 6
EXCHANGES: int = 4
EXCHANGES_RECOMPUTED: int = 6


class Counted(msgspec.Struct, frozen=True):
    """One transfer, so many times."""

    transfer: Transfer
    times: int

    @property
    def s(self) -> float:
        return self.transfer.ns * self.times / 1e9


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """The transfers of a job."""

    shape: ModelShape
    layout: Layout
    software: Software
    fabric: Fabric
    spans: Spans

    @property
    def _activation_bytes(self) -> float:
        """Of a microbatch between two layers, before tensor parallelism, in BF16."""
        layout = self.layout
        return 2 * layout.micro_batch * layout.sequence / layout.cp * self.shape.hidden

    def tensor(self) -> Counted:
        """A layer and microbatch, forward and backward."""
        again = self.layout.recompute == "full"
        blocks = 2 if self.software.parallel_block else 1
        if self.software.sequence_parallel:
            times = (HALVES_RECOMPUTED if again else HALVES) // blocks
            return Counted(
                self.fabric.collective("all_gather", self._activation_bytes, self.spans.tp), times
            )
        times = (WHOLES_RECOMPUTED if again else WHOLES) // blocks
        return Counted(
            self.fabric.collective("all_reduce", self._activation_bytes, self.spans.tp), times
        )

    def context(self) -> Counted:
        """Likewise: every rank sees the keys and values of all, and returns their gradients."""
        layout, shape = self.layout, self.shape
        mine = layout.micro_batch * layout.sequence / layout.cp
        kv = 4 * mine * shape.kv_groups * shape.head_width / min(layout.tp, shape.kv_groups)
        whole = self.fabric.collective("all_gather", kv * layout.cp, self.spans.cp)
        return Counted(whole, 4 if layout.recompute == "full" else 3)

    def experts(self) -> Counted:
        """Likewise, of a layer with experts: tokens there and back."""
        layout = self.layout
        sent = self._activation_bytes * layout.etp / layout.tp * self.shape.top_k
        times = EXCHANGES_RECOMPUTED if layout.recompute == "full" else EXCHANGES
        return Counted(self.fabric.all_to_all(sent, self.spans.ep), times)

    def pipeline(self) -> Counted:
        """A microbatch: one activation a chunk, and its gradient."""
        layout = self.layout
        times = 2 * layout.chunks if layout.pp > 1 else 0
        return Counted(self.fabric.send(self._activation_bytes / layout.tp, self.spans.pp), times)

    def gradients(self) -> list[Counted]:
        """A step, where each rank keeps its parameters."""
        layout = self.layout
        groups = [(self.dense_weights(), self.spans.dp)]
        if self.shape.experts:
            groups.append((self.expert_weights(), self.spans.expert_dp))
        found: list[Counted] = []
        for weights, span in groups:
            size = layout.gradient_bytes * weights
            if self.software.sharded_optimizer:
                found.append(Counted(self.fabric.collective("reduce_scatter", size, span), 1))
                found.append(Counted(self.fabric.collective("all_gather", 2 * weights, span), 1))
            else:
                found.append(Counted(self.fabric.collective("all_reduce", size, span), 1))
        return found

    @property
    def _dense_layers(self) -> int:
        """Parameters of all layers that are in no expert."""
        shape = self.shape
        plain = (shape.layers - shape.moe_layers) * shape.dense_layer
        return plain + shape.moe_layers * shape.moe_rest

    def dense_weights(self) -> float:
        """Of a rank, an embedding with them: what is in no expert."""
        return (self._dense_layers / self.layout.cuts + self.shape.embedding) / self.layout.tp

    def expert_weights(self) -> float:
        """Of a rank."""
        layout, shape = self.layout, self.shape
        every = shape.moe_layers * shape.experts * shape.expert
        return every / (layout.ep * layout.etp * layout.cuts)

    def local_weights(self) -> float:
        """Of a rank in all."""
        return self.dense_weights() + self.expert_weights()

    def _shards(self) -> Span:
        """The ranks that hold all of a parameter between them."""
        whole, members = self.spans.dp, self.layout.shard
        if members >= whole.members:
            return whole
        return Span(members, max(1, whole.domains * members // whole.members), whole.taper_ppm)

    def mirrored(self) -> Counted:
        """FSDP over fewer ranks than replicas: gradients of a shard, between its copies, a step."""
        whole = self.spans.dp
        copies = max(1, whole.members // max(1, self.layout.shard))
        span = Span(copies, min(copies, whole.domains), whole.taper_ppm)
        size = self.layout.gradient_bytes * self.local_weights() / self.layout.shard
        return Counted(self.fabric.collective("all_reduce", size, span), 1)

    def gathered(self) -> tuple[Transfer, Transfer]:
        """FSDP, a layer: parameters gathered, gradients scattered."""
        layout, layers = self.layout, self.shape.layers
        weights = self._dense_layers / layers / layout.tp
        weights += self.expert_weights() * layout.cuts / layers
        span = self._shards()
        return (
            self.fabric.collective("all_gather", 2 * weights, span),
            self.fabric.collective("reduce_scatter", layout.gradient_bytes * weights, span),
        )
