"""What ranks print when a watchdog fires, line by line as torch prints it.

Every process group has a watchdog that looks at its unfinished work. The clock of a piece of work
runs from when it was enqueued; who times out first tells all others to write their flight
recorders, and takes its process down (pytorch/pytorch, ProcessGroupNCCL.cpp in
torch/csrc/distributed/c10d: WorkNCCL::checkTimeout, Watchdog::runLoop, HeartbeatMonitor::runLoop,
WorkNCCL::handleException; file and line numbers as in release 2.9).
"""

from datetime import UTC, datetime
from math import prod
from typing import Final

import msgspec

from nemesis.producers.recorder_digest import Counters, Entry
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import KIND_INDEX, KINDS, Kind
from nemesis.sim.jobs.recorder import Recorder, Ring

MS: Final = 1_000_000
WATCHDOG_POLL_NS: Final = 100 * MS  # kWatchdogThreadSleepMillis
STORE_POLL_NS: Final = 1_000 * MS  # TORCH_NCCL_COORD_CHECK_MILSEC
DUMP_WAIT_NS: Final = 60_000 * MS  # four times TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC
OP_TYPES: Final = {
    "all_reduce": "ALLREDUCE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL_BASE",
    "send": "SEND",
    "recv": "RECV",
    "coalesced": "COALESCED",
}
"""opTypeToString, torch/csrc/distributed/c10d/Work.cpp."""
INCORRECT_USAGE: Final = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across "
    "ranks, the order of collectives is not same for all ranks or the scheduled collective, for "
    "some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons "
    "such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)
CORRUPTED: Final = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
    "kernels, subsequent GPU operations might run on corrupted/incomplete data."
)
TERMINATED: Final = "terminate called after throwing an instance of 'c10::DistBackendError'"
TIMED_OUT: Final = "Watchdog caught collective operation timeout"
TAKEN_DOWN: Final = "To avoid data inconsistency, we are taking the entire process down."


class Line(msgspec.Struct, frozen=True, order=True):
    """One line of a rank's standard error."""

    at_ns: int
    text: str


class TimedOut(msgspec.Struct, frozen=True):
    """Work of a rank that its watchdog gave up on."""

    at_ns: int
    kind: Kind
    entry: Entry
    counters: Counters


def last_words(job: Job, now_ns: int, *, timeout_ms: int) -> dict[int, list[Line]]:
    """What each rank that lives has printed by now because of the step that does not complete.

    Ranks that have nothing to say are not there.
    """
    settings = Recorder(timeout_ms=timeout_ms, past_steps_max=0)
    rings = {
        rank: Ring(settings, job, rank, now_ns)
        for rank, each in job.ranks.items()
        if each.stage in ("running", "held")
    }
    timed_out = {
        rank: found
        for rank, ring in rings.items()
        if (found := _timed_out(rank, ring, timeout_ms)) is not None and found.at_ns <= now_ns
    }
    if not timed_out:
        return {}
    first = min(timed_out, key=lambda rank: (timed_out[rank].at_ns, rank))
    signal_ns = timed_out[first].at_ns
    words: dict[int, list[Line]] = {}
    for rank, ring in rings.items():
        found = timed_out.get(rank)
        heard_ns = signal_ns + (rank * 7919 % 1000 + 1) * STORE_POLL_NS // 1000
        lines: list[Line] = []
        if found is not None:
            lines += _gives_up(job, rank, found, timeout_ms)
        if found is None or found.at_ns > heard_ns:
            lines += _hears(rank, ring, first, heard_ns)
        elif rank == first:
            lines += _dumps(rank, ring, "this local rank", found.at_ns + MS)
        words[rank] = sorted(line for line in lines if line.at_ns <= now_ns)
    return {rank: lines for rank, lines in words.items() if lines}


def _timed_out(rank: int, ring: Ring, timeout_ms: int) -> TimedOut | None:
    """The first piece of work that a watchdog gives up on, whenever that is."""
    oldest = min(ring.open_work(), key=lambda each: each.time_created_ns, default=None)
    if oldest is None:
        return None
    looks_ns = (rank * 37 + oldest.pg_id * 11) % 100 * WATCHDOG_POLL_NS // 100
    kind = KINDS[oldest.pg_id]
    at_ns = oldest.time_created_ns + timeout_ms * MS + looks_ns
    return TimedOut(at_ns, kind, oldest, ring.counters[kind])


def _gives_up(job: Job, rank: int, found: TimedOut, timeout_ms: int) -> list[Line]:
    entry, at_ns = found.entry, found.at_ns
    group = job.layout.group_of(rank, found.kind)
    members = [each for each in group.ranks if each in job.ranks[rank].members]
    place = members.index(rank)
    name = entry.profiling_name.removeprefix("nccl:").split(" ")[0]
    ran_ms = (at_ns - entry.time_created_ns) // MS
    caught = (
        f"[Rank {place}] {TIMED_OUT}: WorkNCCL(SeqNum={entry.seq}, "
        f"OpType={OP_TYPES[name]}, NumelIn={_numel(entry.input_sizes)}, "
        f"NumelOut={_numel(entry.output_sizes)}, Timeout(ms)={timeout_ms}) ran for {ran_ms} "
        "milliseconds before timing out."
    )
    prefix = f"[PG ID {KIND_INDEX[found.kind]} PG GUID {group.name}({group.description}) Rank "
    status = (
        f"{prefix}{place}]  failure detected by watchdog at work sequence id: {entry.seq} "
        f"PG status: last enqueued work: {found.counters.last_enqueued_collective}, "
        f"last completed work: {found.counters.last_completed_collective}"
    )
    ends = f"{prefix}{place}] Process group watchdog thread terminated with exception: {caught}"
    down_ns = at_ns + DUMP_WAIT_NS
    return [
        _line(rank, at_ns, 683, caught),
        _line(rank, at_ns + 1_000, 2241, status),
        _line(rank, down_ns, 744, f"[Rank {place}] {CORRUPTED}"),
        _line(rank, down_ns + 1_000, 758, f"[Rank {place}] {TAKEN_DOWN}"),
        _line(rank, down_ns + 2_000, 2057, ends),
        Line(
            down_ns + 3_000,
            "terminate called after throwing an instance of 'c10::DistBackendError'",
        ),
        Line(down_ns + 4_000, f"  what():  {ends}"),
    ]


def _numel(sizes: list[list[int]]) -> int:
    """Of what closes a batch none is known."""
    return sum(map(prod, sizes))


def _hears(rank: int, ring: Ring, first: int, at_ns: int) -> list[Line]:
    observed = (
        f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Observed flight recorder dump signal from "
        "another rank via TCPStore."
    )
    return [
        _line(rank, at_ns, 1794, observed),
        *_dumps(rank, ring, f" rank {first}", at_ns + 100_000),
    ]


def _dumps(rank: int, ring: Ring, source: str, at_ns: int) -> list[Line]:
    prefix = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    status = ring.counters.get("world", Counters())
    received = (
        f"{prefix}Received a dump signal due to a collective timeout from {source} and we will try "
        f"our best to dump the debug info. Last enqueued NCCL work: "
        f"{status.last_enqueued_collective}, last completed NCCL work: "
        f"{status.last_completed_collective}.{INCORRECT_USAGE}"
    )
    preparing = f"{prefix}ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1"
    return [
        _line(rank, at_ns, 1858, received),
        _line(rank, at_ns + 200_000, 1575, preparing),
    ]


def _line(rank: int, at_ns: int, source_line: int, text: str) -> Line:
    """With the prefixes of torchrun's processes and of glog: month without a zero, then day."""
    seconds, rest_ns = divmod(at_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    stamp = f"E{moment.month}{moment.day:02d} {moment:%H:%M:%S}.{rest_ns:09d}"
    return Line(at_ns, f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:{source_line}] {text}")
