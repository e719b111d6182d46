"""Where the main thread of a simulated rank is while its job stands still, as the kernel sees it.

Frames are those that CPython's faulthandler writes of real ranks: what is written in C shows as the
line that called it, so a rank that waits in `loss.item()` looks like one that computes there. What
a rank does that is in no collective follows from what befell it; where that leaves it open (a
branch that one rank alone took), a draw decides, by the rank and the time. Pure.
"""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

import msgspec

from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.ranks import NEVER_NS

SECOND_NS: Final = 1_000_000_000
_OUTER: Final = ("train (/workspace/train.py:412)", "main (/workspace/train.py:538)",
                 "<module> (/workspace/train.py:551)")  # fmt: skip
_STEP: Final = "train_step (/workspace/train.py:{line})"
_TORCH: Final = "site-packages/torch"
_FUTEX: Final = "futex_wait_queue"
_POLL: Final = "do_poll.constprop.0"


class Stand(msgspec.Struct, frozen=True):
    """What a thread does."""

    frames: tuple[str, ...]
    """Innermost first, without those that all ranks share."""
    ran_per_mille: int = 0
    """Of the time, on a CPU."""
    waits_in: str = ""
    moves: bool = False
    """It is elsewhere a second later."""


_WAITING: Final = (
    Stand((_STEP.format(line=231),), 1_000),  # loss.item(), which spins
    Stand((f"synchronize ({_TORCH}/cuda/__init__.py:1083)", _STEP.format(line=229)), 0, _POLL),
    Stand((f"all_reduce ({_TORCH}/distributed/distributed_c10d.py:3032)",
           f"wrapper ({_TORCH}/distributed/c10d_logger.py:83)", _STEP.format(line=224)),
          0, _FUTEX),
)  # fmt: skip
"""In a collective, or for the GPU that is in one: each job has its own way."""
_ASTRAY: Final = (
    Stand(("wait (python3.11/threading.py:327)", "get (python3.11/queue.py:171)",
           _STEP.format(line=260)), 0, _FUTEX),
    Stand(("on_skipped (/workspace/hooks.py:57)", _STEP.format(line=262)), 0, _FUTEX),
    Stand(("on_skipped (/workspace/hooks.py:61)", _STEP.format(line=262)), 1, "hrtimer_nanosleep"),
    Stand(("on_skipped (/workspace/hooks.py:64)", _STEP.format(line=262)), 1_000),
)  # fmt: skip
"""After a branch that no other rank took: a queue that nobody fills, a lock, a sleep for something
that does not come, a loop without end."""
_TEARDOWN: Final = Stand(
    (f"destroy_process_group ({_TORCH}/distributed/distributed_c10d.py:2281)",
     "main (/workspace/train.py:546)"), 0, _FUTEX,
)  # fmt: skip
_COMPUTES: Final = Stand((f"linear ({_TORCH}/nn/functional.py:{{line}})", _STEP.format(line=219)),
                         1_000, moves=True)  # fmt: skip
BUSY: Final[Mapping[str, Stand]] = {
    "data": Stand(("wait (python3.11/multiprocessing/connection.py:948)",
                   f"_next_data ({_TORCH}/utils/data/dataloader.py:1479)", _OUTER[0]), 1, _POLL),
    "save": Stand((f"save ({_TORCH}/serialization.py:{{line}})",
                   "save_checkpoint (/workspace/checkpoint.py:44)", _OUTER[0]), 300,
                  "folio_wait_bit_common", moves=True),
    "evaluation": Stand((f"linear ({_TORCH}/nn/functional.py:125)",
                         "evaluate (/workspace/train.py:{line})", _OUTER[0]), 900, moves=True),
    "upload": Stand(("read (python3.11/ssl.py:1104)", "send (site-packages/urllib3/pool.py:790)",
                     "push_artifacts (/workspace/train.py:377)", _OUTER[0]), 40, "wait_woken"),
    "compile": Stand(("wait (python3.11/threading.py:327)",
                      "result (python3.11/concurrent/futures/_base.py:451)",
                      f"precompile ({_TORCH}/_inductor/async_compile.py:508)",
                      _STEP.format(line=217)), 0, _FUTEX),
    "index": Stand(("argsort (site-packages/numpy/core/fromnumeric.py:1133)",
                    "build_order (/workspace/corpus.py:88)", _OUTER[0]), 1_000),
    "program": Stand(("_try_wait (python3.11/subprocess.py:2007)",
                      "run (python3.11/subprocess.py:550)",
                      "sync_bucket (/workspace/train.py:391)", _OUTER[0]), 0, "do_wait"),
    "": Stand(("collect (/workspace/train.py:301)",), 1_000),
}  # fmt: skip
"""By what a rank does alone while the others wait for it; "": nobody knows."""


def stand_of(job: Job, rank: int, now_ns: int) -> Stand:
    """Where a rank that runs is."""
    table = job.table
    if table.blind_ns[rank] <= now_ns:
        return _TEARDOWN
    if table.strays.get(rank) == "absent" and table.halted_ns[rank] < NEVER_NS:
        return _ASTRAY[crc32(f"{job.name}/{rank}/{table.began_ns[rank]}".encode()) % len(_ASTRAY)]
    is_through = table.stopped_ns[rank] < NEVER_NS or table.ready_ns[rank] <= now_ns
    if not is_through and job.waiting_since_ns(rank, now_ns) is None:
        alone = table.does_alone(rank)
        return _COMPUTES if alone is None else BUSY[alone]
    return _WAITING[crc32(job.name.encode()) % len(_WAITING)]


def frames_of(stand: Stand, now_ns: int) -> tuple[str, ...]:
    """The whole stack at a time."""
    line = 100 + now_ns // SECOND_NS % 89 if stand.moves else 100
    return tuple(each.replace("{line}", str(line)) for each in (*stand.frames, *_OUTER))
