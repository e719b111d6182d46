"""The flight recorder of a simulated rank: a dump in the form that torch writes, made when asked.

Versions 2.9 and 2.10 of the format differ in the name of the library's version (pytorch/pytorch,
torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp); fields, sequence
numbers and names are as in the dumps of NVIDIA/nvidia-resiliency-ext, tests/attribution/unit, and
batches of sends and receives as sim/jobs/entries.py says. A digest is made by the code that makes
those of real dumps, from the entries themselves: no dump is written and read again for it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from nemesis.producers.origin import Origin
from nemesis.producers.recorder_digest import Counters, Entry, Membership, digests
from nemesis.schemas.observed import CollectiveRecorded
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.jobs.entries import StepEntries, StepEntry
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import DESCRIPTIONS, KIND_INDEX, KINDS, Kind, Layout
from nemesis.sim.jobs.program import Operation
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
        ring = Ring(self, job, rank, now_ns)
        library = "comm_lib_version" if self.version == "2.10" else "nccl_version"
        entries = (self._written(each) for each in ring.entries())
        return {
            "version": self.version,
            "pg_config": ring.config(),
            library: LIBRARY_VERSION,
            "pg_status": {
                str(KIND_INDEX[kind]): msgspec.structs.asdict(counters)
                for kind, counters in ring.counters.items()
            },
            "entries": [
                each for each in entries if not (self.only_active and each["state"] == "completed")
            ],
        }

    def _written(self, entry: Entry) -> dict[str, Any]:
        """As torch writes it, in torch's order."""
        return {
            "record_id": entry.record_id,
            "pg_id": entry.pg_id,
            "process_group": entry.process_group,
            "thread_name": "python3",
            "thread_id": THREAD,
            "collective_seq_id": entry.collective_seq_id,
            "p2p_seq_id": entry.p2p_seq_id,
            "op_id": entry.op_id,
            "profiling_name": entry.profiling_name,
            "time_created_ns": entry.time_created_ns,
            "input_sizes": entry.input_sizes,
            "input_dtypes": entry.input_dtypes,
            "output_sizes": entry.output_sizes,
            "output_dtypes": entry.input_dtypes,
            "state": entry.state,
            "time_discovered_started_ns": entry.time_discovered_started_ns,
            "time_discovered_completed_ns": entry.time_discovered_completed_ns,
            "retired": entry.retired,
            "timeout_ms": self.timeout_ms,
            "is_p2p": entry.is_p2p,
        }


def recorded(origin: Origin, job: Job, rank: int, now_ns: int) -> CollectiveRecorded:
    """The digest of what a live rank's recorder holds."""
    settings = Recorder(capacity=DIGEST_ENTRIES)
    if job.layout.is_plain:
        settings = Recorder(past_steps_max=len(job.recent))
    ring = Ring(settings, job, rank, now_ns)
    entries = list(ring.entries())
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns),
        job=job.name,
        rank=rank,
        trace_version=settings.version,
        comm_lib_version=LIBRARY_VERSION,
        entry_count=len(entries),
        groups=digests(ring.described(), ring.counters_by_name(), entries),
    )


def missing(origin: Origin, job: Job, rank: int, now_ns: int) -> CollectiveRecorded:
    """The node's word that a rank has no dump while its peers have one."""
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns), job=job.name, rank=rank, dump_missing=True
    )


class _Part(NamedTuple):
    """A rank's way through one step."""

    step: int
    planned: StepEntries
    operations_count: int
    """Enqueued; of these its GPU came to, and saw the end of, the first so many."""
    came_count: int
    done_count: int
    came_ns: list[int]
    """By position."""
    done_ns: list[int]
    stood_ns: int
    """When it came to where it stands: what lies behind was enqueued by then."""
    strays: str
    """In what the operation that it stands at is not what the others call."""


class Ring:
    """One rank's entries, oldest first, and how far each of its groups is."""

    def __init__(self, settings: Recorder, job: Job, rank: int, now_ns: int) -> None:
        self._settings = settings
        self._job = job
        self._rank = rank
        self._now_ns = now_ns
        self._seen_ns = min(now_ns, int(job.table.blind_ns[rank]))
        self._step = job.entries.of(rank)
        self._program = job.programs.programs[int(job.layout.stages[rank])]
        self._kinds: Final[list[Kind]] = [each for each in KINDS if each in self._step.kinds]
        self._names: Final[dict[Kind, tuple[str, str]]] = {
            kind: (job.layout.name_of(rank, kind), DESCRIPTIONS[kind]) for kind in self._kinds
        }
        steps_count = job.ranks[rank].completed_count
        past = [each for each in job.recent if job.took_part(rank, each)]
        fitting = -(-settings.capacity // len(self._step.entries))
        kept = min(len(past), settings.past_steps_max, fitting, job.standings.kept_count)
        self._first: Final = steps_count - kept
        whole = len(self._program)
        self._parts: Final = [
            self._part(self._first + back, job.standings.of(times), whole)
            for back, times in enumerate(past[len(past) - kept :])
        ]
        if job.ranks[rank].stage in ("running", "held"):
            standing = job.standings.now()
            last = job.standings.enqueued_last(rank, standing, now_ns)
            self._parts.append(self._part(steps_count, standing, last + 1))
        self.counters: Final[dict[Kind, Counters]] = {
            kind: self._counters(kind) for kind in self._kinds
        }
        """`pg_status`, in the order in which the process made its groups."""

    def entries(self) -> Iterator[Entry]:
        """The newest, as many as there is room for."""
        return (self._entry(*each) for each in self._kept())

    def open_work(self) -> Iterator[Entry]:
        """Those of what its watchdogs wait for; a call in a batch is no work of its own."""
        return (
            self._entry(part, planned, record_id)
            for part, planned, record_id in self._kept()
            if planned.role != "batched" and planned.position >= part.done_count
        )

    def _kept(self) -> Iterator[tuple[_Part, StepEntry, int]]:
        counts = [part.planned.ends[part.operations_count] for part in self._parts]
        left = max(0, sum(counts) - self._settings.capacity)
        for part, count in zip(self._parts, counts, strict=True):
            for at, planned in enumerate(islice(part.planned.entries, left, count), left):
                yield part, planned, part.step * len(part.planned.entries) + at
            left = max(0, left - count)

    def config(self) -> dict[str, Any]:
        """`pg_config`: the groups that have a communicator, because something ran in them."""
        return {
            name: {"name": name, "desc": desc, "ranks": self._ranks_in(kind)[0]}
            for kind, (name, desc) in self._names.items()
        }

    def described(self) -> dict[str, Membership]:
        """Who belongs to each group, by its name."""
        return {
            name: Membership(desc, *self._ranks_in(kind)[1:])
            for kind, (name, desc) in self._names.items()
        }

    def counters_by_name(self) -> dict[str, Counters]:
        """How far each group is, by its name."""
        return {self._names[kind][0]: each for kind, each in self.counters.items()}

    def _ranks_in(self, kind: Kind) -> tuple[str, str, list[int]]:
        job = self._job
        row = int(job.layout.group_index[KIND_INDEX[kind], self._rank])
        return _ranks_of(job.layout, kind, row, job.ranks[self._rank].members)

    def _part(self, step: int, standing: Standing, operations_count: int) -> _Part:
        came_ns = standing.arrived_ns[:, self._rank].tolist()
        done_ns = standing.done_ns[:, self._rank].tolist()
        came_count = bisect_right(came_ns, self._now_ns)
        stands = came_count and done_ns[came_count - 1] == NEVER_NS
        inverted_at = self._job.standings.inverted_at(self._rank, standing)
        strays = standing.strays[self._rank] and stands and inverted_at < 0
        return _Part(
            step,
            self._job.entries.of(self._rank, inverted_at),
            operations_count,
            came_count,
            bisect_right(done_ns, self._seen_ns),
            came_ns,
            done_ns,
            came_ns[came_count - 1] if came_count else self._now_ns,
            self._job.table.strays.get(self._rank, "") if strays else "",
        )

    def _counters(self, kind: Kind) -> Counters:
        """The last work of a group that was enqueued, started and completed."""
        newest = self._step.newest(kind, len(self._program))
        assert newest is not None, f"nothing runs in {kind}"
        before = self._seq(newest, self._first - 1) if self._first else 0
        enqueued = started = completed = before
        for part in self._parts:
            count = part.operations_count
            enqueued = self._seq_after(kind, part, count, enqueued)
            started = self._seq_after(kind, part, min(count, part.came_count), started)
            completed = self._seq_after(kind, part, min(count, part.done_count), completed)
        return Counters(enqueued, started if self._settings.is_timed else -1, completed)

    def _seq_after(self, kind: Kind, part: _Part, operations_count: int, before: int) -> int:
        newest = part.planned.newest(kind, operations_count)
        return before if newest is None else self._seq(newest, part.step)

    def _seq(self, entry: StepEntry, step: int) -> int:
        return step * self._step.counts(entry.kind)[int(entry.is_p2p)] + entry.seq

    def _entry(self, part: _Part, planned: StepEntry, record_id: int) -> Entry:
        at = planned.position
        has_work = planned.role != "batched"
        came = at < part.came_count
        started_ns = part.came_ns[at] if came and has_work and self._settings.is_timed else None
        completed_ns = part.done_ns[at] if at < part.done_count and has_work else None
        state = "started" if started_ns is not None else "scheduled"
        collectives, p2p, calls = part.planned.counts(planned.kind)
        # what is enqueued ahead comes one after the other, however quickly
        ahead_ns = min(part.stood_ns + at + 1 - part.came_count, self._now_ns)
        created_ns = part.came_ns[at] if came else ahead_ns
        entry = Entry(
            record_id=record_id,
            pg_id=KIND_INDEX[planned.kind],
            process_group=self._names[planned.kind],
            collective_seq_id=part.step * collectives + planned.collective_seq,
            p2p_seq_id=part.step * p2p + planned.p2p_seq,
            op_id=part.step * calls + planned.op_id,
            profiling_name=f"nccl:{planned.name}",
            input_sizes=planned.sizes_in,
            output_sizes=planned.sizes_out,
            input_dtypes=planned.dtypes,
            time_created_ns=created_ns,
            time_discovered_started_ns=started_ns,
            time_discovered_completed_ns=completed_ns,
            state="completed" if completed_ns is not None else state,
            retired=completed_ns is not None,
            is_p2p=planned.is_p2p,
        )
        if part.strays and at == part.came_count - 1:
            return _strayed(entry, strayed(self._program[at], part.strays))
        return entry


def _strayed(entry: Entry, called: Operation) -> Entry:
    return replace(
        entry,
        profiling_name=f"nccl:{called.name}",
        input_sizes=[list(called.sizes_in)],
        output_sizes=[list(called.sizes_out)],
        input_dtypes=[called.dtype],
    )


@lru_cache(maxsize=50_000)
def _ranks_of(
    layout: Layout, kind: Kind, row: int, members: frozenset[int]
) -> tuple[str, str, list[int]]:
    """A group's ranks that are members, as torch writes them, in rank_ranges form, and in order.

    In a large job every rank names all others: too much to write down for each anew.
    """
    ranks = [rank for rank in layout.members[kind][row].tolist() if rank in members]
    return str(ranks), format_ranks(ranks), ranks


def strayed(operation: Operation, differs_in: str) -> Operation:
    """What a program that went astray calls in place of an operation."""
    match differs_in:
        case "operation":
            # torch, ProcessGroupNCCL::_allgather_base
            other = "all_reduce" if operation.name == "_all_gather_base" else "_all_gather_base"
            return replace(operation, name=other)
        case "order":
            # of a job of one group. torch, ProcessGroupNCCL::_reduce_scatter_base
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
