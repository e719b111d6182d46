"""What the kernel counts of one process, its threads and all that it started.

The numbers are the kernel's own: time run and time ready but not run (schedstat), time blocked on
storage (delay accounting), faults, where its memory lies, how its control group was throttled.
Sources: proc_pid_stat(5), proc_pid_numa_maps(5), proc_pid_smaps(5), Linux
Documentation/scheduler/sched-stats.rst and admin-guide/cgroup-v2.rst.
"""

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from nemesis.producers.node.root import Root, number_of
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.errors import NemesisError

TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PROCESSES_MAX: Final = 4096
_NUMA_PAGES: Final = re.compile(r" N(\d+)=(\d+)")
_CPU_NODE: Final = re.compile(r"node(\d+)\Z")


class NoProcessError(NemesisError):
    """There is nothing to watch."""

    exit_code = 3


class Counted(NamedTuple):
    """Sums over all threads at one moment."""

    threads_count: int = 0
    ran_ns: int = 0
    waited_ns: int = 0
    """Ready to run, and another ran."""
    blocked_ns: int = 0
    """Waiting for a block device; ABSENT where the kernel does not account for it."""
    major_faults_count: int = 0
    throttled_ns: int = 0
    """Its control group had used up its quota; ABSENT where it has none."""
    stopped_count: int = 0
    """Processes that a signal or a debugger stopped."""


class Memory(NamedTuple):
    """Where its memory lies; ABSENT where the kernel does not tell."""

    near_pages: int
    far_pages: int
    """On other NUMA nodes than the CPU that it ran on last."""
    anonymous_kib: int
    huge_kib: int
    """Of the anonymous memory, what lies in huge pages."""
    swapped_kib: int


class Workload:
    """A process and its descendants."""

    def __init__(self, root: Root, pid: int) -> None:
        self.pid: Final = pid
        self._root: Final = root
        accounts = root.number("proc/sys/kernel/task_delayacct")
        self._accounts: Final = accounts == 1

    @property
    def is_there(self) -> bool:
        """Whether the process has not ended."""
        return bool(self._root.line(f"proc/{self.pid}/stat"))

    @property
    def name(self) -> str:
        """Its command line, in one line."""
        return command_of(self._root, self.pid)

    @property
    def cpus(self) -> set[int]:
        """The CPUs that it may run on."""
        return cpus_of(self._root, self.pid)

    def pids(self) -> list[int]:
        """The process and all that it started, as far as they are there."""
        found, left = [self.pid], [self.pid]
        while left and len(found) < PROCESSES_MAX:
            pid = left.pop()
            for thread in self._root.names(f"proc/{pid}/task"):
                children = self._root.words(f"proc/{pid}/task/{thread}/children")
                new = [int(each) for each in children if each.isdecimal()]
                found += new
                left += new
        return found

    def count(self) -> Counted:
        """Its sums now."""
        total = Counted(throttled_ns=self._throttled_ns())
        for pid in self.pids():
            for one in self._of(pid):
                total = Counted(*map(sum, zip(total, one, strict=True)))
        return total if self._accounts else total._replace(blocked_ns=ABSENT)

    def _of(self, pid: int) -> Iterator[Counted]:
        for thread in self._root.names(f"proc/{pid}/task"):
            place = f"proc/{pid}/task/{thread}"
            scheduled = self._root.words(f"{place}/schedstat")
            # the name in parentheses may hold anything; after it fields are numbered from 3
            fields = self._root.line(f"{place}/stat").rpartition(")")[2].split()
            if len(scheduled) < 2 or len(fields) < 40 or fields[0] in "ZX":
                continue  # what has ended may stay in the table until its parent asks how
            yield Counted(
                threads_count=1,
                ran_ns=max(0, number_of(scheduled[0])),
                waited_ns=max(0, number_of(scheduled[1])),
                blocked_ns=max(0, number_of(fields[42 - 3])) * TICK_NS,
                major_faults_count=max(0, number_of(fields[12 - 3])),
                stopped_count=int(fields[0] in "Tt" and int(thread) == pid),
            )

    def _throttled_ns(self) -> int:
        for line in self._root.line(f"proc/{self.pid}/cgroup").splitlines():
            if line.startswith("0::"):
                stat = self._root.rows(f"sys/fs/cgroup{line[3:]}/cpu.stat")
                throttled = stat.get("throttled_usec", ABSENT)
                return throttled * 1000 if throttled >= 0 else 0
        return 0

    def memory(self) -> Memory:
        """Where its memory lies now; reading this stops the process for a moment."""
        rollup = self._root.rows(f"proc/{self.pid}/smaps_rollup")
        near = far = 0
        own = self._numa_node()
        for node, pages in _NUMA_PAGES.findall(self._root.line(f"proc/{self.pid}/numa_maps")):
            if int(node) == own:
                near += int(pages)
            else:
                far += int(pages)
        known = own != ABSENT and near + far > 0
        return Memory(
            near_pages=near if known else ABSENT,
            far_pages=far if known else ABSENT,
            anonymous_kib=rollup.get("Anonymous", ABSENT),
            huge_kib=rollup.get("AnonHugePages", ABSENT),
            swapped_kib=rollup.get("Swap", ABSENT),
        )

    def _numa_node(self) -> int:
        fields = self._root.line(f"proc/{self.pid}/stat").rpartition(")")[2].split()
        if len(fields) < 40:
            return ABSENT
        names = self._root.names(f"sys/devices/system/cpu/cpu{fields[39 - 3]}")
        return next((int(m[1]) for name in names if (m := _CPU_NODE.match(name))), ABSENT)


def cpus_of(root: Root, pid: int) -> set[int]:
    """The CPUs that a process may run on."""
    try:
        lines = root.text(f"proc/{pid}/status").splitlines()
    except OSError:
        return set()
    said = next((line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")), "")
    cpus: set[int] = set()
    for part in said.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def command_of(root: Root, pid: int) -> str:
    """A process's command line, at most 80 characters; its name where it has none."""
    words = root.line(f"proc/{pid}/cmdline").replace("\0", " ").strip()
    return (words or root.line(f"proc/{pid}/comm"))[:80]
