"""What the host refused a program or ended of it: memory, shared memory, space in a file system.

Why: what the operating system takes or does not give reaches a program as a signal or an error
number, and the program is not to blame. How: a worker that was killed points to the host's memory,
the more where that is spent; a bus error to shared memory that is full; one that crashed to code
that reads data. An error number of a file system says what was refused, and not whose fault it is.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    CONFIGURED,
    OUT_OF_MEMORY,
    STORAGE_SILENT,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.log_message import UNSAID
from nemesis.processors.attribution.program_findings import is_of_nccl
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Set, Told

_LEFT_SHARE: Final = 50  # a host with less than a fiftieth of its memory left is out of it
FULL_PERCENT: Final = 90  # `df` is taken before or after the moment at which it was full


def judge_host_ends(told: Told) -> list[Finding]:
    """What the host refused or ended."""
    found = [
        _killed_worker(told),
        _crashed_worker(told),
        _shared_memory(told) or _file_system(told),
    ]
    return [each for each in found if each is not None]


def _killed_worker(told: Told) -> Finding | None:
    killed = [e for e in told.of("worker_killed") if e.message.what in ("Killed", "exited")]
    killed += told.of("killed")
    spent = [each for each in told.settings if _is_spent(each)]
    if not killed or not (spent or any(e.message.what == "Killed" for e in killed)):
        return _killed_alone(told, killed)
    return Finding(
        verdict="class-only",
        fault_class="host.oom",
        reason="a process was killed"
        + (f" on a host with {spent[0].value} memory left" if spent else "")
        + "; what took the memory is not said",
        confidence_ppm=850_000 if spent else 550_000,
        level=OUT_OF_MEMORY,
        proofs=proofs_of(
            [(each, "killed by somebody, as the kernel does for memory") for each in killed]
            + [(each, "the host's memory is spent") for each in spent]
        ),
        jobs=(told.job,),
        missing=(wanted.MEMORY_LEFT,),
    )


def _killed_alone(told: Told, killed: Sequence[Said]) -> Finding | None:
    out = [each for each in killed if each.message.kind == "killed"]
    if not killed:
        return None
    return Finding(
        verdict="class-only" if out else "insufficient",
        fault_class="host.oom" if out else "unknown",
        reason=f"a process of {told.job} was ended"
        + (" for the memory it took" if out else ", and nothing says by whom"),
        confidence_ppm=700_000 if out else 0,
        level=OUT_OF_MEMORY if out else UNEXPLAINED,
        proofs=proofs(out or killed, "it was ended from outside"),
        jobs=(told.job,),
        missing=(wanted.MEMORY_LEFT,),
    )


def _crashed_worker(told: Told) -> Finding | None:
    """A worker that an error of its own ended: the data that it read, or the code that reads it."""
    struck = [
        each
        for each in told.of("worker_killed")
        if each.message.what not in ("Killed", "exited", "Bus", "Terminated", "Interrupt")
    ]
    if not struck:
        return None
    signals = shown(sorted({each.message.what for each in struck}))
    return Finding(
        verdict="class-only",
        fault_class="dataloader",
        reason=f"a worker of {told.job} that reads its data was ended by {signals}",
        confidence_ppm=500_000,
        level=UNEXPLAINED + 1,
        proofs=proofs(struck, "what ended the worker"),
        jobs=(told.job,),
        missing=("where it happens: the same with num_workers=0 and python -X faulthandler",),
    )


def _is_spent(setting: Set) -> bool:
    if setting.name != "memory.available":
        return False
    left, _, total = setting.value.partition(" of ")
    numbers = [_bytes(left), _bytes(total)]
    return numbers[1] > 0 and numbers[0] * _LEFT_SHARE < numbers[1]


def _bytes(text: str) -> int:
    """What `free` prints, with or without a unit; only the ratio of two is used."""
    digits = text.strip().rstrip("iBb")
    scale = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}.get(digits[-1:], 0)
    try:
        return int(float(digits.rstrip("KMGTP")) * 1024**scale * 1000)
    except ValueError:
        return 0


def _shared_memory(told: Told) -> Finding | None:
    """A page that /dev/shm has no room for ends a process with SIGBUS (tmpfs(5))."""
    refused = told.of("shm_full")
    if any(map(is_of_nccl, told.of("cuda_error"))):  # then it was CUDA that refused it
        refused = [each for each in refused if each.message.what != UNSAID]
    struck = [each for each in told.of("worker_killed") if each.message.what == "Bus"]
    full = [each for each in told.settings if _is_full(each)]
    named = refused or (struck if full else [])
    if not refused and not struck:
        return None
    names = sorted({f"config/{each.node}/shm" for each in named})
    return Finding(
        verdict="attributed" if named else "class-only",
        fault_class="host.config",
        reason=f"shared memory of {shown(sorted({e.node for e in refused or struck}))} is too"
        " small or closed to it",
        confidence_ppm=850_000 if named else 600_000,
        level=CONFIGURED,
        culprits=tuple(names),
        proofs=proofs_of(
            [(each, "no shared memory was given") for each in refused]
            + [(each, "a page of memory could not be given") for each in struck]
            + [(each, "it is full") for each in full]
        ),
        jobs=(told.job,),
        missing=("how large it is and whose: df -h /dev/shm, ls -ld /dev/shm",),
    )


def _is_full(setting: Set) -> bool:
    digits = setting.value[:3]
    shared = setting.component.endswith("/shm") and setting.name == "used_percent"
    return shared and digits.isdecimal() and int(digits) >= FULL_PERCENT


def _file_system(told: Told) -> Finding | None:
    space = told.of("no_space")
    if not space:
        return None
    what = shown(sorted({each.message.what for each in space}), 2)
    return Finding(
        verdict="class-only",
        fault_class="storage",
        reason=f"a file system refused {told.job}: {what}",
        confidence_ppm=800_000,
        level=STORAGE_SILENT,
        proofs=proofs(space, "what the file system answered"),
        jobs=(told.job,),
        missing=("which one, and how full it is: df -h, df -i, mount",),
    )
