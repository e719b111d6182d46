"""What each rank does in a step: compute, then a collective or a message, again and again.

Pure. All ranks of a pipeline stage run the same list. It follows Megatron-LM's schedules
(pipelines.py), with the layers of a stage, or of a chunk of it, drawn together into a few. Kernels
are enqueued ahead: the host goes on until an operation whose result it must read (`host_waits`), so
what is enqueued runs ahead of what has completed, as in real dumps.

Compute before each operation is a share of the rank's compute of the step: `share_ppm` counts what
it does itself. The bubble of the pipeline is waiting and comes out of the schedule.
"""

from typing import Final, Literal

import msgspec

from nemesis.sim.jobs.layout import BadLayoutError, Kind, Layout
from nemesis.sim.jobs.pipelines import Message, in_turn, interleaved

Name = Literal["all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_to_all", "exchange"]
"""torch's names of collectives; an exchange is one or more sends and receives at once."""

SEQUENCE: Final = 4096
HIDDEN: Final = 5120  # both as in the dumps of NVIDIA/nvidia-resiliency-ext, tests/attribution
GRADIENT_BUCKET: Final = 13_107_200  # 25 MiB of bfloat16: DistributedDataParallel's bucket
BUCKET_OPTIMIZER: Final = 40_000_000  # elements, Megatron's ddp_bucket_size
LAYERS_COUNT: Final = 2
"""Of a stage or a chunk; each stands for some of the real ones."""
PPM: Final = 1_000_000


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or exchange, and the compute before it."""

    kind: Kind
    name: Name
    share_ppm: int = 0
    """Of the rank's own compute of the step, done before this operation."""
    sizes_in: tuple[int, ...]
    sizes_out: tuple[int, ...]
    dtype: str = "BFloat16"
    host_waits: bool = False
    """The host enqueues nothing more until this operation has completed."""
    messages: tuple[Message, ...] = ()
    """Of an exchange."""
    is_batched: bool = True
    """The messages are called as one batch; else one by one."""


Program = tuple[Operation, ...]


def programs_of(layout: Layout, microbatches: int, chunks: int = 1) -> tuple[Program, ...]:
    """The step of each pipeline stage, which holds so many chunks of the model.

    Raises:
        BadLayoutError: chunks without a pipeline, or microbatches that its stages do not divide.
    """
    if chunks > 1 and (layout.pp == 1 or microbatches % layout.pp):
        raise BadLayoutError(
            f"job: {chunks} chunks a stage need pp above 1 and microbatches that it divides, "
            f"not pp {layout.pp} and {microbatches}"
        )
    if layout.is_plain:
        return (_PLAIN,)
    stages = range(layout.pp)
    return tuple(_Writer(layout, microbatches, chunks, stage).step() for stage in stages)


_PLAIN: Final[Program] = (
    Operation(
        kind="world",
        name="all_reduce",
        share_ppm=PPM,
        sizes_in=(GRADIENT_BUCKET,),
        sizes_out=(GRADIENT_BUCKET,),
        host_waits=True,
    ),
)


class _Writer:
    """Writes down one stage's step."""

    def __init__(self, layout: Layout, microbatches: int, chunks: int, stage: int) -> None:
        self._layout = layout
        self._microbatches = microbatches
        self._chunks = chunks
        self._stage = stage
        self._operations: list[Operation] = []
        self._share_ppm = 0
        # forward is one part, backward two: the usual count of floating-point operations
        self._part_ppm = PPM // (3 * microbatches * chunks * LAYERS_COUNT)

    def step(self) -> Program:
        """Microbatches through the pipeline, then gradients, norm and parameters."""
        stages, chunks = self._layout.pp, self._chunks
        moves = (
            in_turn(stages, self._stage, self._microbatches)
            if chunks == 1
            else interleaved(stages, self._stage, self._microbatches, chunks)
        )
        for move in moves:
            match move:
                case "forward":
                    self._forward()
                case "backward":
                    self._backward()
                case _:
                    self._exchange(move)
        self._optimize()
        return tuple(self._operations)

    def _compute(self, parts: int) -> None:
        self._share_ppm += parts * self._part_ppm

    def _add(self, operation: Operation) -> None:
        if self._layout.size(operation.kind) > 1:
            share_ppm, self._share_ppm = self._share_ppm, 0
            self._operations.append(msgspec.structs.replace(operation, share_ppm=share_ppm))

    def _collective(
        self,
        kind: Kind,
        name: Name,
        sizes_in: tuple[int, ...],
        sizes_out: tuple[int, ...],
        *,
        dtype: str = "BFloat16",
        host_waits: bool = False,
    ) -> None:
        self._add(
            Operation(
                kind=kind,
                name=name,
                sizes_in=sizes_in,
                sizes_out=sizes_out,
                dtype=dtype,
                host_waits=host_waits,
            )
        )

    def _exchange(self, messages: tuple[Message, ...]) -> None:
        if messages:
            # Megatron's batch_p2p_sync, which overlapped schedules turn off; one by one nothing
            # waits, but hosts get no further ahead than a launch queue holds: 15 to 27 records were
            # open in the dumps of data/nvrx_fr_traces
            waits = self._layout.ep == 1
            self._send("pp", messages, host_waits=waits, is_batched=self._chunks == 1)

    def _send(
        self,
        kind: Kind,
        messages: tuple[Message, ...],
        *,
        host_waits: bool = False,
        is_batched: bool = True,
    ) -> None:
        sizes = (SEQUENCE // (self._layout.tp * self._layout.cp), 1, HIDDEN)
        self._add(
            Operation(
                kind=kind,
                name="exchange",
                sizes_in=sizes,
                sizes_out=sizes,
                host_waits=host_waits,
                messages=messages,
                is_batched=is_batched,
            )
        )

    def _forward(self) -> None:
        for _ in range(LAYERS_COUNT):
            self._gather()
            self._ring()
            self._compute(1)
            self._scatter()
            self._experts()

    def _backward(self) -> None:
        for _ in range(LAYERS_COUNT):
            self._experts()
            self._gather()
            self._ring()
            self._compute(2)
            self._scatter()

    def _gather(self) -> None:
        whole = SEQUENCE // self._layout.cp
        part = (whole // self._layout.tp, 1, HIDDEN)
        self._collective("tp", "_all_gather_base", part, (whole, 1, HIDDEN))

    def _scatter(self) -> None:
        whole = SEQUENCE // self._layout.cp
        part = (whole // self._layout.tp, 1, HIDDEN)
        self._collective("tp", "_reduce_scatter_base", (whole, 1, HIDDEN), part)

    def _ring(self) -> None:
        """Ring attention: keys and values go once around (arXiv 2310.01889).

        Batched between two ranks only, where both messages have one peer (NVIDIA/TransformerEngine,
        context_parallel.py, batch_p2p_comm, for devices before compute capability 10).
        """
        for _ in range(self._layout.cp - 1):
            self._send("cp", ("send_next", "recv_prev"), is_batched=self._layout.cp == 2)

    def _experts(self) -> None:
        """How many tokens go where, which the host must know, then there and back."""
        ep = self._layout.ep
        tokens = (SEQUENCE // (self._layout.tp * self._layout.cp), HIDDEN)
        self._collective("ep", "_all_gather_base", (ep,), (ep * ep,), dtype="Long", host_waits=True)
        self._collective("ep", "all_to_all", tokens, tokens)
        self._collective("ep", "all_to_all", tokens, tokens)

    def _optimize(self) -> None:
        """Distributed optimizer: scatter gradients, agree on their norm, gather parameters."""
        for kind in ("dp_cp", "edp"):
            if kind == "edp" and self._layout.ep == 1:
                continue
            whole = (BUCKET_OPTIMIZER,)
            part = (BUCKET_OPTIMIZER // self._layout.size(kind),)
            self._collective(kind, "_reduce_scatter_base", whole, part)
        self._collective("mp", "all_reduce", (1,), (1,), dtype="Float")
        self._collective("world", "all_reduce", (1,), (1,), dtype="Float", host_waits=True)
        part = (BUCKET_OPTIMIZER // self._layout.size("dp_cp"),)
        self._collective("dp_cp", "_all_gather_base", part, (BUCKET_OPTIMIZER,))
