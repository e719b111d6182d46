"""The end of a rank's process becomes a `process` fact, a state that it is kept in `process_state`.

The kernel's letters are those of proc_pid_stat(5); what lasts for a moment is nothing to tell.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import ProcessExited, ProcessState, ProcessStateSeen
from nemesis.schemas.rank_ranges import format_ranks

_STATES: Final[Mapping[str, ProcessState]] = {
    "T": "stopped",
    "t": "traced",
    "D": "uninterruptible",
    "Z": "zombie",
}
LASTS_NS: Final[Mapping[ProcessState, int]] = {
    "running": 0,
    "stopped": 500_000_000,
    "traced": 500_000_000,
    "zombie": 500_000_000,
    "uninterruptible": 5_000_000_000,
}
"""How long a state lasts before it is told: a shell's job control and a profiler stop a process for
less; to read a large file may take seconds."""


class ProcessWatch:
    """The states of a job's ranks on one node, as the kernel has them; tells what lasts."""

    def __init__(self, origin: Origin, job: str, proc: Path = Path("/proc")) -> None:
        self._origin: Final = origin
        self._job: Final = job
        self._proc: Final = proc
        self._seen: dict[int, _Seen] = {}

    def look(
        self, pids: Mapping[int, int], epochs: Mapping[int, int], now_ns: int
    ) -> list[ProcessStateSeen]:
        """What is new; `pids`, `epochs`: of each rank that has not ended.

        All ranks that are in one state are told together, once the first has been for long enough.
        """
        before, self._seen = self._seen, {}
        for rank, pid in pids.items():
            state = state_of(pid, self._proc)
            known = before.get(rank)
            if known is None or known.pid != pid:
                known = _Seen(pid, "running", now_ns, told="running")
            if known.state != state:
                known = known._replace(state=state, since_ns=now_ns)
            self._seen[rank] = known
        due = {
            each.state
            for each in self._seen.values()
            if each.told != each.state and now_ns - each.since_ns >= LASTS_NS[each.state]
        }
        facts: list[ProcessStateSeen] = []
        for rank, seen in self._seen.items():
            if seen.state not in due or seen.told == seen.state:
                continue
            self._seen[rank] = seen._replace(told=seen.state)
            others = [each for each, other in self._seen.items() if other.state != seen.state]
            facts.append(
                ProcessStateSeen(
                    **self._origin.stamp("process_state", now_ns),
                    job=self._job,
                    rank=rank,
                    state=seen.state,
                    since_ns=seen.since_ns,
                    pid=seen.pid,
                    tracer_pid=_tracer_of(seen.pid, self._proc) if seen.state == "traced" else 0,
                    others=format_ranks(others),
                    epoch=epochs.get(rank, -1),
                )
            )
        return facts


class _Seen(NamedTuple):
    pid: int
    state: ProcessState
    since_ns: int
    told: ProcessState


def state_of(pid: int, proc: Path = Path("/proc")) -> ProcessState:
    """The state of a process, of its main thread; one that is gone is not told of here."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return "running"
    # the name in parentheses may hold anything
    letter = stat.rpartition(")")[2].split()[:1]
    return _STATES.get(letter[0], "running") if letter else "running"


def _tracer_of(pid: int, proc: Path) -> int:
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("TracerPid:"))
    return int(next(found, "0"))


def exit_of(
    origin: Origin,
    at_ns: int,
    *,
    job: str,
    rank: int,
    pid: int,
    returncode: int,
    fenced: bool,
    epoch: int = -1,
) -> ProcessExited:
    """The fact of an exit, `returncode` as subprocess gives it: negative for a signal.

    `epoch` is the membership that the process was in, -1 where its agent does not know.
    """
    return ProcessExited(
        **origin.stamp("process", at_ns),
        job=job,
        rank=rank,
        pid=pid,
        exit_code=max(returncode, 0),
        signal=max(-returncode, 0),
        fenced=fenced,
        epoch=epoch,
    )
