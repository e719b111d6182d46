"""Makes flight-recorder dumps for tests, in the form that torch 2.13 writes."""

import pickle
from typing import Any

WORLD = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}


def entry(seq: int, *, done: bool = True, at_ns: int = 0, **fields: Any) -> dict[str, Any]:
    """A collective of the world group, on NCCL."""
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": at_ns or 1_786_418_062_000_000_000 + seq * 1_000_000,
        "input_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1024]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | fields


def dump(entries: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A dump of one rank of a world of four."""
    enqueued = [each["collective_seq_id"] for each in entries]
    completed = [e["collective_seq_id"] for e in entries if e["state"] == "completed"]
    status = {
        "last_enqueued_collective": max(enqueued, default=0),
        "last_started_collective": -1,
        "last_completed_collective": max(completed, default=0),
    }
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.3",
        "pg_config": {"0": WORLD},
        "pg_status": {"0": status},
        "entries": entries,
    } | fields


def pickled(content: object) -> bytes:
    """As torch pickles: protocol 2."""
    return pickle.dumps(content, protocol=2)
