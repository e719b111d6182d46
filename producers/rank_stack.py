"""Two looks at a rank that stands still become a `stack` fact: where its main thread was, and idle?

Stacks are what torch's worker server gives (recorder_tap.py); what a thread did in between the
kernel tells, and nothing is stopped or traced for it: proc_pid_schedstat, proc_pid_stat(5),
proc_pid_wchan(5), which one user may read of his own processes. A stack has at most 24 frames of
120 characters, so a fact is at most as large as a digest of a flight recorder.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import StackSeen

MAIN_THREAD: Final = "MainThread"
INNER_MAX: Final = 16
OUTER_MAX: Final = 8
"""The outermost say in which phase of a program it is."""
CHARS_MAX: Final = 120
TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ ")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)\Z')
_INSTALLED: Final = re.compile(r".*/((?:(?:site|dist)-packages|python3\.\d+)/)")
_WRAPPERS: Final = frozenset({"_call_impl", "_wrapped_call_impl"})
"""Of torch.nn.Module: two for each level of a model."""


class Look(msgspec.Struct, frozen=True):
    """A rank's main thread at one moment."""

    at_ns: int
    frames: tuple[str, ...]
    ran_ns: int
    """On a CPU, since it began; -1: not to be read."""
    process_ran_ns: int
    waits_in: str


def look_at(pid: int, stacks: bytes | None, now_ns: int, proc: Path = Path("/proc")) -> Look:
    """A process now; `stacks`: what its worker server said, None: nothing."""
    folder = proc / str(pid)
    main = folder / "task" / str(pid)
    ran = _text(main / "schedstat").split()[:1]
    times = _text(folder / "stat").rpartition(")")[2].split()[11:13]
    waits_in = _text(main / "wchan").strip()
    return Look(
        at_ns=now_ns,
        frames=main_frames((stacks or b"").decode(errors="replace")),
        ran_ns=int(ran[0]) if ran else -1,
        process_ran_ns=sum(map(int, times)) * TICK_NS if times else -1,
        waits_in="" if waits_in == "0" else waits_in[:64],
    )


def main_frames(text: str) -> tuple[str, ...]:
    """The main thread's frames in a dump of CPython's faulthandler, innermost first.

    It writes threads from the newest to the oldest, at most a hundred: the main one is the last.
    None where the dump broke off before it.
    """
    frames: list[str] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            frames = []
        elif line.startswith("..."):
            return ()
        elif match := _FRAME.match(line):
            path, number, function = match.groups()
            if function not in _WRAPPERS:
                frames.append(_frame(path, number, function))
    inner, outer = frames[:INNER_MAX], frames[INNER_MAX:]
    return (*inner, *outer[-OUTER_MAX:])


def stack_of(origin: Origin, *, job: str, rank: int, pid: int, looks: Sequence[Look]) -> StackSeen:
    """The fact of two looks, the second of which is last."""
    first, last = looks
    looked_ns = max(1, last.at_ns - first.at_ns)
    state = "moved" if first.frames != last.frames else "still" if last.frames else "silent"
    return StackSeen(
        **origin.stamp("stack", last.at_ns),
        job=job,
        rank=rank,
        pid=pid,
        thread=MAIN_THREAD,
        state=state,
        frames=last.frames,
        looked_ns=looked_ns,
        ran_ns=_between(first.ran_ns, last.ran_ns, looked_ns),
        process_ran_ns=_between(first.process_ran_ns, last.process_ran_ns, looked_ns),
        waits_in=last.waits_in if first.waits_in == last.waits_in else "",
    )


def _between(first_ns: int, last_ns: int, looked_ns: int) -> int:
    return last_ns - first_ns if 0 <= first_ns <= last_ns else looked_ns


def _frame(path: str, number: str, function: str) -> str:
    """Of what is installed, the path from its library on."""
    head = function[: CHARS_MAX // 2]
    room = CHARS_MAX - len(head) - len(number) - 4
    return f"{head} ({_INSTALLED.sub(_library, path)[-room:]}:{number})"


def _library(match: re.Match[str]) -> str:
    return match[1]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
