"""What one step leaves in a rank's flight recorder, its times left out: entry by entry.

Pure. A collective is one entry and takes the next number of its group; so is a send or receive that
is called by itself. A batch of them takes one number (`p2p_seq_id`) for all: each call leaves an
entry that is never seen to start or to end, for no work belongs to it alone, and an entry
`nccl:coalesced` without sizes closes the batch and has its times (pytorch/pytorch,
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, pointToPoint and endCoalescing; the promises of
test/distributed/test_c10d_nccl.py, test_batched_send_recv). `op_id` counts calls.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from nemesis.sim.jobs.inversions import inverted
from nemesis.sim.jobs.layout import KIND_INDEX, KINDS, Kind, Layout
from nemesis.sim.jobs.pipelines import Message
from nemesis.sim.jobs.program import Operation, Program

Role = Literal["alone", "batched", "closing"]
CLOSING: Final = "coalesced"
_ODD: Final[tuple[Message, ...]] = ("recv_prev", "send_next", "recv_next", "send_prev")


class StepEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry; its numbers count from the beginning of the step."""

    position: int
    """Of its operation in the program."""
    kind: Kind
    name: str
    """Without the backend: `all_reduce`, `send 0->1`, `coalesced`."""
    role: Role
    is_p2p: bool
    collective_seq: int
    p2p_seq: int
    op_id: int
    sizes_in: list[list[int]]
    sizes_out: list[list[int]]
    dtypes: list[str]

    @property
    def seq(self) -> int:
        """The number of its work, as `pg_status` counts."""
        return self.p2p_seq if self.is_p2p else self.collective_seq


class StepEntries:
    """The entries of one step of all ranks that do the same at the same places of their groups."""

    def __init__(self, program: Program, places: Mapping[Kind, tuple[int, int]]) -> None:
        """`places`: a rank's place in its group, and how many there are, of groups it sends in."""
        self.entries: Final[list[StepEntry]] = []
        self.ends: Final[list[int]] = [0]
        """How many entries the first n operations leave."""
        self.kinds: Final[frozenset[Kind]] = frozenset(each.kind for each in program)
        self._places: Final = places
        self._counts: Final[dict[Kind, list[int]]] = {kind: [0, 0, 0] for kind in self.kinds}
        self._newest: Final[dict[Kind, list[int]]] = {kind: [-1] for kind in self.kinds}
        for position, operation in enumerate(program):
            self._take(position, operation)
            for kind, newest in self._newest.items():
                is_own = kind == operation.kind
                newest.append(len(self.entries) - 1 if is_own else newest[-1])
            self.ends.append(len(self.entries))

    def counts(self, kind: Kind) -> tuple[int, int, int]:
        """Collectives, numbers of sends and receives, and calls of a whole step."""
        collectives, p2p, calls = self._counts[kind]
        return collectives, p2p, calls

    def newest(self, kind: Kind, operations_count: int) -> StepEntry | None:
        """The last work of a kind of group among the first operations."""
        at = self._newest[kind][operations_count]
        return self.entries[at] if at >= 0 else None

    def _take(self, position: int, operation: Operation) -> None:
        kind = operation.kind
        counts = self._counts[kind]
        if not operation.messages:
            counts[0] += 1
            counts[2] += 1
            self._add(position, operation, operation.name, "alone")
            return
        counts[1] += operation.is_batched
        for message in self._in_order(operation):
            counts[1] += not operation.is_batched
            counts[2] += 1
            role: Role = "batched" if operation.is_batched else "alone"
            self._add(position, operation, self._named(kind, message), role)
        if operation.is_batched:
            self._add(position, operation, CLOSING, "closing")

    def _in_order(self, operation: Operation) -> tuple[Message, ...]:
        """Around a ring, and where a pipeline calls one by one, those at odd places receive first
        (NVIDIA/TransformerEngine, flash_attn_p2p_communicate; NVIDIA/Megatron-LM,
        p2p_communication.py, _p2p_ops)."""
        is_odd = self._places[operation.kind][0] % 2 == 1
        if is_odd and (operation.kind == "cp" or not operation.is_batched):
            return tuple(each for each in _ODD if each in operation.messages)
        return operation.messages

    def _named(self, kind: Kind, message: Message) -> str:
        """Sends and receives are named by ranks in the group."""
        here, size = self._places[kind]
        there = (here + (1 if message.endswith("next") else -1)) % size
        return f"send {here}->{there}" if message.startswith("send") else f"recv {here}<-{there}"

    def _add(self, position: int, operation: Operation, name: str, role: Role) -> None:
        collectives, p2p, calls = self._counts[operation.kind]
        has_sizes = role != "closing"
        self.entries.append(
            StepEntry(
                position=position,
                kind=operation.kind,
                name=name,
                role=role,
                is_p2p=bool(operation.messages),
                collective_seq=collectives,
                p2p_seq=p2p,
                op_id=calls,
                sizes_in=[list(operation.sizes_in)] if has_sizes else [],
                sizes_out=[list(operation.sizes_out)] if has_sizes else [],
                dtypes=[operation.dtype] if has_sizes else [],
            )
        )


class EntriesOfRanks:
    """The entries of a step of every rank, written down once for all that have the same."""

    def __init__(self, layout: Layout, programs: tuple[Program, ...]) -> None:
        self._layout: Final = layout
        self._programs: Final = programs
        self._made: Final[dict[tuple[int, ...], StepEntries]] = {}
        sending = {each.kind for program in programs for each in program if each.messages}
        self._sending: Final[list[Kind]] = [kind for kind in KINDS if kind in sending]

    def of(self, rank: int, inverted_at: int = -1) -> StepEntries:
        """The entries of a rank's step; `inverted_at`: where it calls the next operation first."""
        stage = int(self._layout.stages[rank])
        places: dict[Kind, tuple[int, int]] = {
            kind: self._place(kind, rank) for kind in self._sending
        }
        key = (stage, inverted_at, *(place for place, _ in places.values()))
        if key not in self._made:
            program = self._programs[stage]
            if inverted_at >= 0:
                program = inverted(program, inverted_at)
            self._made[key] = StepEntries(program, places)
        return self._made[key]

    def _place(self, kind: Kind, rank: int) -> tuple[int, int]:
        row = self._layout.members[kind][self._layout.group_index[KIND_INDEX[kind], rank]]
        return int((row == rank).argmax()), len(row)
