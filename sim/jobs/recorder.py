"""The flight recorder of a simulated rank: a dump in the form that torch writes, made when asked.

Made as a dump and not as a digest, so that the digest is made by the same code as for a real one.
Versions 2.9 and 2.10 of the format differ in the name of the library's version (pytorch/pytorch,
torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp); fields, sequence
numbers and names are as in the dumps of NVIDIA/nvidia-resiliency-ext, tests/attribution/unit.
"""

from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from nemesis.producers.flight_recorder import read_dump
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import CollectiveRecorded
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import KIND_INDEX, KINDS, Kind, Layout
from nemesis.sim.jobs.program import Message, Operation
from nemesis.sim.jobs.ranks import NEVER_NS
from nemesis.sim.jobs.stall import Standing

Version = Literal["2.9", "2.10"]
CAPACITY: Final = 2_000  # entries; TORCH_FR_BUFFER_SIZE's default
DIGEST_STEPS: Final = 1
DIGEST_ENTRIES: Final = 64
"""Of the past, enough for a digest's last arrivals where a step has many operations."""
TIMEOUT_MS: Final = 600_000  # torch.distributed's default for NCCL
LIBRARY_VERSION: Final = "2.27.3"
THREAD: Final = "23456244340032"


class Recorder(msgspec.Struct, frozen=True, kw_only=True):
    """How the flight recorders of a job are set."""

    version: Version = "2.9"
    capacity: int = CAPACITY
    is_timed: bool = True
    """TORCH_NCCL_ENABLE_TIMING: without it nothing is ever seen to have started."""
    past_steps_max: int = DIGEST_STEPS
    timeout_ms: int = TIMEOUT_MS
    only_active: bool = False
    """TORCH_INCLUDE_ONLY_ACTIVE: without what has completed."""

    def dump(self, job: Job, rank: int, now_ns: int) -> dict[str, Any]:
        """What a rank's recorder holds: its last operations, and those that it waits for."""
        return self._content(_Ring(self, job, rank, now_ns))

    def told(self, job: Job, rank: int, now_ns: int) -> tuple[dict[str, Any], dict[str, str]]:
        """The same without the ranks of groups, and those apart, in rank_ranges form.

        In a large job every rank names all others: too much to write down and read for each.
        """
        ring = _Ring(self, job, rank, now_ns)
        config = {name: {**each, "ranks": "[]"} for name, each in ring.groups().items()}
        return self._content(ring) | {"pg_config": config}, ring.ranges()

    def _content(self, ring: "_Ring") -> dict[str, Any]:
        library = "comm_lib_version" if self.version == "2.10" else "nccl_version"
        return {
            "version": self.version,
            "pg_config": ring.groups(),
            library: LIBRARY_VERSION,
            "pg_status": ring.status(),
            "entries": [each for each in ring.entries[-self.capacity :] if self._takes(each)],
        }

    def _takes(self, entry: dict[str, Any]) -> bool:
        return not (self.only_active and entry["state"] == "completed")


def recorded(origin: Origin, job: Job, rank: int, now_ns: int) -> CollectiveRecorded:
    """The digest of a live rank's dump."""
    settings = Recorder(capacity=DIGEST_ENTRIES)
    if job.layout.is_plain:
        settings = Recorder(past_steps_max=len(job.recent))
    content, ranges = settings.told(job, rank, now_ns)
    dump = read_dump(content)
    groups = (replace(group, ranks=ranges.get(group.name, "")) for group in dump.groups)
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns),
        job=job.name,
        rank=rank,
        trace_version=dump.version,
        comm_lib_version=dump.comm_lib_version,
        entry_count=dump.entry_count,
        groups=tuple(groups),
    )


def missing(origin: Origin, job: Job, rank: int, now_ns: int) -> CollectiveRecorded:
    """The node's word that a rank has no dump while its peers have one."""
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns), job=job.name, rank=rank, dump_missing=True
    )


class _Ring:
    """One rank's entries, oldest first, and how far each of its groups is."""

    def __init__(self, settings: Recorder, job: Job, rank: int, now_ns: int) -> None:
        self.entries: list[dict[str, Any]] = []
        self._settings = settings
        self._job = job
        self._rank = rank
        self._now_ns = now_ns
        self._seen_ns = min(now_ns, int(job.table.blind_ns[rank]))
        self._stage = int(job.layout.stages[rank])
        self._program = job.programs.programs[self._stage]
        used: set[Kind] = {each.kind for each in self._program}
        self._used: Final[list[Kind]] = [kind for kind in KINDS if kind in used]
        groups = [job.layout.group_of(rank, kind) for kind in self._used]
        self._names: Final[dict[Kind, tuple[str, str]]] = {
            each.kind: (each.name, each.description) for each in groups
        }
        steps_count = job.ranks[rank].completed_count
        operations_count = sum(len(each.messages) or 1 for each in self._program)
        past = [each for each in job.recent if job.took_part(rank, each)]
        fitting = -(-settings.capacity // operations_count)
        kept = min(len(past), settings.past_steps_max, fitting, job.standings.kept_count)
        past = past[len(past) - kept :]
        first = steps_count - len(past)
        self._records_count = first * operations_count
        self._last: dict[Kind, list[int]] = {kind: self._counts(kind, first) for kind in used}
        for back, times in enumerate(past):
            self._take(first + back, job.standings.of(times), len(self._program) - 1)
        if job.ranks[rank].stage in ("running", "held"):
            standing = job.standings.now()
            self._take(steps_count, standing, job.standings.enqueued_last(rank, standing, now_ns))

    def groups(self) -> dict[str, Any]:
        """`pg_config`: the groups that have a communicator, because something ran in them."""
        return {
            name: {"name": name, "desc": desc, "ranks": self._ranks_in(kind)[0]}
            for kind, (name, desc) in self._names.items()
        }

    def ranges(self) -> dict[str, str]:
        """The ranks of each group by its name, in rank_ranges form."""
        return {name: self._ranks_in(kind)[1] for kind, (name, _) in self._names.items()}

    def _ranks_in(self, kind: Kind) -> tuple[str, str]:
        job = self._job
        row = int(job.layout.group_index[KIND_INDEX[kind], self._rank])
        return _ranks_of(job.layout, kind, row, job.ranks[self._rank].members)

    def status(self) -> dict[str, Any]:
        """`pg_status`, by the order in which the process made its groups."""
        return {
            str(KIND_INDEX[kind]): {
                "last_enqueued_collective": self._last[kind][0],
                "last_started_collective": self._last[kind][1],
                "last_completed_collective": self._last[kind][2],
            }
            for kind in self._used
        }

    def _counts(self, kind: Kind, steps_count: int) -> list[int]:
        """Sequence numbers that were enqueued, started and completed after so many whole steps."""
        last = self._program[-1 - [each.kind for each in self._program[::-1]].index(kind)]
        table = self._job.programs.peers_count if last.messages else self._job.programs.collectives
        seq = steps_count * int(table[KIND_INDEX[kind], self._stage, -1])
        return [seq, seq if self._settings.is_timed else -1, seq]

    def _take(self, step: int, standing: Standing, last: int) -> None:
        """Record a step's operations up to a position."""
        table, stage = self._job.programs, self._stage
        arrived_ns = standing.arrived_ns[:, self._rank]
        done_ns = standing.done_ns[:, self._rank]
        stood_ns = 0
        for at, operation in enumerate(self._program[: last + 1]):
            kind = KIND_INDEX[operation.kind]
            collectives, peers = (
                step * int(each[kind, stage, -1]) + int(each[kind, stage, at])
                for each in (table.collectives, table.peers_count)
            )
            came_ns, left_ns = int(arrived_ns[at]), int(done_ns[at])
            # enqueued ahead of the GPU: at the latest when it came to where it stands
            stood_ns = came_ns if came_ns < NEVER_NS else stood_ns or self._now_ns
            times = _Times(
                stood_ns,
                came_ns if came_ns <= self._now_ns and self._settings.is_timed else None,
                left_ns if left_ns <= self._seen_ns else None,
            )
            strays = ""
            if standing.strays[self._rank] and came_ns < NEVER_NS and left_ns == NEVER_NS:
                strays = self._job.table.strays.get(self._rank, "")
            if not operation.messages:
                called = strayed(operation, strays)
                name = f"nccl:{called.name}"
                self._record(called, name, (collectives + 1, peers), times)
            for number, message in enumerate(operation.messages, 1):
                name = self._peer_name(operation.kind, message)
                self._record(operation, name, (collectives, peers + number), times)

    def _peer_name(self, kind: Kind, message: Message) -> str:
        """Sends and receives are named by ranks in the group."""
        ranks = self._job.layout.group_of(self._rank, kind).ranks
        here = ranks.index(self._rank)
        there = (here + (1 if message.endswith("next") else -1)) % len(ranks)
        way = f"send {here}->" if message.startswith("send") else f"recv {here}<-"
        return f"nccl:{way}{there}"

    def _record(
        self, operation: Operation, name: str, seqs: tuple[int, int], times: "_Times"
    ) -> None:
        kind, is_p2p = operation.kind, bool(operation.messages)
        self._note(kind, seqs[int(is_p2p)], times)
        state = "started" if times.started_ns is not None else "scheduled"
        self.entries.append(
            {
                "record_id": self._records_count,
                "pg_id": KIND_INDEX[kind],
                "process_group": self._names[kind],
                "thread_name": "python3",
                "thread_id": THREAD,
                "collective_seq_id": seqs[0],
                "p2p_seq_id": seqs[1] if is_p2p else 0,
                "op_id": sum(seqs),
                "profiling_name": name,
                "time_created_ns": times.created_ns,
                "input_sizes": [list(operation.sizes_in)],
                "input_dtypes": [operation.dtype],
                "output_sizes": [list(operation.sizes_out)],
                "output_dtypes": [operation.dtype],
                "state": "completed" if times.completed_ns is not None else state,
                "time_discovered_started_ns": times.started_ns,
                "time_discovered_completed_ns": times.completed_ns,
                "retired": times.completed_ns is not None,
                "timeout_ms": self._settings.timeout_ms,
                "is_p2p": is_p2p,
            }
        )
        self._records_count += 1

    def _note(self, kind: Kind, seq: int, times: "_Times") -> None:
        last = self._last[kind]
        last[0] = seq
        if times.started_ns is not None:
            last[1] = seq
        if times.completed_ns is not None:
            last[2] = seq


@lru_cache(maxsize=50_000)
def _ranks_of(layout: Layout, kind: Kind, row: int, members: frozenset[int]) -> tuple[str, str]:
    """A group's ranks that are members, as torch writes them and in rank_ranges form."""
    ranks = [rank for rank in layout.members[kind][row].tolist() if rank in members]
    return str(ranks), format_ranks(ranks)


class _Times(msgspec.Struct, frozen=True):
    created_ns: int
    started_ns: int | None
    completed_ns: int | None


def strayed(operation: Operation, differs_in: str) -> Operation:
    """What a program that went astray calls in place of an operation."""
    match differs_in:
        case "operation":
            # torch, ProcessGroupNCCL::_allgather_base
            other = "all_reduce" if operation.name == "_all_gather_base" else "_all_gather_base"
            return replace(operation, name=other)
        case "order":
            # torch, ProcessGroupNCCL::_reduce_scatter_base
            after = "all_to_all" if operation.name == "_reduce_scatter_base" else None
            return replace(operation, name=after or "_reduce_scatter_base")
        case "size":
            # half of it: the last bucket of a model with one layer less
            sizes = (
                (each[0] // 2, *each[1:]) for each in (operation.sizes_in, operation.sizes_out)
            )
            return replace(operation, sizes_in=next(sizes), sizes_out=next(sizes))
        case "dtype":
            return replace(operation, dtype="Float" if operation.dtype != "Float" else "BFloat16")
        case _:
            return operation
