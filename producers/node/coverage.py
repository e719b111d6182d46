"""What is watched and what is not, and what the watching costs: the `coverage` fact.

Why: a GPU that nobody can read looks as quiet as a healthy one. How: every probe is in it with its
state, also what this machine does not have; it is told each minute, and at once when a state
changes. Costs are the process's own, by the kernel's count (getrusage(2), /proc/self/statm).
"""

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nemesis.producers.node.rates import PPM
from nemesis.producers.origin import Origin
from nemesis.schemas.watched import CoverageReported, ProbeSeen, ProbeState

PERIOD_NS: Final = 60_000_000_000
CLOCK_STEP_NS_MIN: Final = 100_000_000  # less is a clock that is slewed, and how long a look takes


class Seen(NamedTuple):
    """One thing that should be watched, as it is now."""

    component: str
    source: str
    state: ProbeState
    says: str = ""


class Backlog(NamedTuple):
    """What of the facts has not reached the log."""

    waiting_count: int = 0
    dropped_count: int = 0
    missed_lines_count: int = 0


NO_BACKLOG: Final = Backlog()


class Coverage:
    """Remembers what was told, and since when things are as they are."""

    def __init__(self, origin: Origin, period_ns: int) -> None:
        self.late_ns = 0
        """How much later than due a poll came at most; whoever polls raises it."""
        self.period_ns = period_ns
        self._origin: Final = origin
        self._since_ns: dict[tuple[str, str, ProbeState], int] = {}
        self._told: tuple[Seen, ...] | None = None
        self._told_ns = 0
        self._cpu_ns = 0
        self._wall_less_monotonic_ns: int | None = None

    def report(
        self, seen: Sequence[Seen], now_ns: int, monotonic_ns: int, backlog: Backlog
    ) -> list[CoverageReported]:
        """The fact, where it is time for it or something changed."""
        told = tuple(seen)
        if told == self._told and monotonic_ns - self._told_ns < PERIOD_NS:
            return []
        return [self._report(told, now_ns, monotonic_ns, backlog)]

    def last(self, now_ns: int, monotonic_ns: int, backlog: Backlog) -> CoverageReported:
        """The fact that says that nobody watches from here on."""
        last = self._report(self._told or (), now_ns, monotonic_ns, backlog)
        return msgspec.structs.replace(last, ends=True)

    def _report(
        self, told: tuple[Seen, ...], now_ns: int, monotonic_ns: int, backlog: Backlog
    ) -> CoverageReported:
        keys: list[tuple[str, str, ProbeState]] = [each[:3] for each in told]
        self._since_ns = {key: self._since_ns.get(key, now_ns) for key in keys}
        elapsed_ns = monotonic_ns - self._told_ns if self._told is not None else 0
        self._told, self._told_ns = told, monotonic_ns
        late_ns, self.late_ns = self.late_ns, 0
        return CoverageReported(
            **self._origin.stamp("coverage", now_ns),
            probes=tuple(
                ProbeSeen(*each, self._since_ns[key]) for each, key in zip(told, keys, strict=True)
            ),
            period_ns=self.period_ns,
            cpu_ppm=self._cpu_ppm(elapsed_ns),
            rss_mib=_rss_mib(),
            late_ns=late_ns,
            waiting_count=backlog.waiting_count,
            dropped_count=backlog.dropped_count,
            missed_lines_count=backlog.missed_lines_count,
            clock_step_ns=self._clock_step_ns(now_ns, monotonic_ns),
        )

    def _cpu_ppm(self, elapsed_ns: int) -> int:
        before_ns, self._cpu_ns = self._cpu_ns, time.process_time_ns()
        return (self._cpu_ns - before_ns) * PPM // elapsed_ns if elapsed_ns > 0 else 0

    def _clock_step_ns(self, now_ns: int, monotonic_ns: int) -> int:
        before_ns = self._wall_less_monotonic_ns
        self._wall_less_monotonic_ns = now_ns - monotonic_ns
        if before_ns is None:
            return 0
        step_ns = self._wall_less_monotonic_ns - before_ns
        return step_ns if abs(step_ns) >= CLOCK_STEP_NS_MIN else 0


def _rss_mib() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
