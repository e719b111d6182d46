"""The flight recorder of a simulated rank: a dump in the form that torch writes.

Made as a dump and not as a digest, so that the digest is made by the same code as for a real one.
Version 2.9 of the format (pytorch/pytorch, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp).
"""

from typing import Any, Final

from nemesis.producers.flight_recorder import read_dump
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import CollectiveRecorded
from nemesis.sim.jobs.job import Rank

STRAY_SIZE: Final = 6_553_600  # half a bucket: the last one of a model with one layer less
GRADIENT_BUCKET: Final = 13_107_200  # 25 MiB of bfloat16: DistributedDataParallel's bucket
TIMEOUT_MS: Final = 600_000  # torch.distributed's default for NCCL


def dump_of(rank: Rank, now_ns: int) -> dict[str, Any]:
    """What the rank's recorder holds: its last collectives, and the one that it waits in."""
    entries = [_entry(number, created_ns, True) for number, created_ns in rank.arrivals]
    enqueued = rank.completed_count
    if rank.stage in ("running", "held") and rank.ready_ns <= now_ns:
        enqueued += 1
        entries.append(_entry(enqueued, rank.ready_ns, False, strays=rank.strays))
    return {
        "version": "2.9",
        "nccl_version": "2.27.3",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": str(sorted(rank.members))},
        },
        "pg_status": {
            "0": {
                "last_enqueued_collective": enqueued,
                "last_started_collective": enqueued,
                "last_completed_collective": rank.completed_count,
            }
        },
        "entries": entries,
    }


def recorded(origin: Origin, job: str, rank: Rank, now_ns: int) -> CollectiveRecorded:
    """The digest of a live rank's dump."""
    dump = read_dump(dump_of(rank, now_ns))
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns),
        job=job,
        rank=rank.number,
        trace_version=dump.version,
        comm_lib_version=dump.comm_lib_version,
        entry_count=dump.entry_count,
        groups=dump.groups,
    )


def missing(origin: Origin, job: str, rank: int, now_ns: int) -> CollectiveRecorded:
    """The node's word that a rank has no dump while its peers have one."""
    return CollectiveRecorded(
        **origin.stamp("collective", now_ns), job=job, rank=rank, dump_missing=True
    )


def _entry(number: int, created_ns: int, completed: bool, *, strays: str = "") -> dict[str, Any]:
    # torch, ProcessGroupNCCL::_allgather_base, _reduce_scatter_base
    other = {"operation": "nccl:_all_gather_base", "order": "nccl:_reduce_scatter_base"}
    size = STRAY_SIZE if strays == "size" else GRADIENT_BUCKET
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": other.get(strays, "nccl:all_reduce"),
        "time_created_ns": created_ns,
        "input_sizes": [[size]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[size]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if completed else "started",
        "time_discovered_started_ns": created_ns,
        "time_discovered_completed_ns": created_ns if completed else None,
        "retired": completed,
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": False,
    }
