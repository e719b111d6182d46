"""Why a workload is slow, from what the kernel counted while somebody watched it.

Why: a slow rank may be innocent and its host busy, and each of the reasons has a number of its own
in the kernel. How: two readings some seconds apart; each reason is a share of the time that passed
or of the memory that is used, and is told from the share on at which it bears on how fast a program
is. Without one, that is said too: then it is the program, its GPU, or what it waits for elsewhere.
"""

import signal
from collections.abc import Iterator
from typing import Final

import msgspec

from nemesis.producers.node.host import Host
from nemesis.producers.node.rates import PPM, share_ppm
from nemesis.producers.node.root import Root
from nemesis.producers.node.workload import Counted, Workload, command_of, cpus_of
from nemesis.schemas.channels import ABSENT

WAIT_PPM_MIN: Final = 50_000  # of what it wanted to run; two healthy ranks on two CPUs wait for 2 %
WANTED_PPM_MIN: Final = 50_000  # who hardly wants to run is not slow for want of a CPU
BLOCKED_PPM_MIN: Final = 50_000  # of the time; any one thread
THROTTLED_PPM_MIN: Final = 20_000
STEAL_PPM_MIN: Final = 50_000  # as attribution has it
FAR_PPM_MIN: Final = 200_000  # as attribution has it
HUGE_KIB_MIN: Final = 1 << 20  # below a GiB small pages cost little
HUGE_PPM_MIN: Final = 100_000
FAULTS_PER_S_MIN: Final = 10
PRESSURE_PPM_MIN: Final = 100_000  # as attribution has it
RIVALS_MAX: Final = 3
RIVAL_PPM_MIN: Final = 100_000  # of one CPU
_SECOND_NS: Final = 1_000_000_000


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that makes it slow."""

    code: str
    share_ppm: int
    """How much: of the time, or of the memory, as `says` has it."""
    says: str


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a workload, the heaviest reason first."""

    pid: int
    command: str
    watched_ns: int
    threads_count: int
    ran_ns: int
    waited_ns: int
    host: dict[str, int]
    """Readings of the host by channel, as in samples."""
    ended: str
    """How it ended, as far as that is known; "" where it runs on."""
    reasons: tuple[Reason, ...]


class Explainer:
    """Watches a workload from now until it is asked."""

    def __init__(self, root: Root, pid: int, monotonic_ns: int) -> None:
        self._root: Final = root
        self.workload: Final = Workload(root, pid)
        self._command: Final = self.workload.name
        self._cpus: Final = self.workload.cpus
        self._began_ns: Final = monotonic_ns
        self._host: Final = Host(root)
        self._host.read(monotonic_ns)
        self._rivals: Final = self._cpu_ticks()
        self._memory = self.workload.memory()
        self._first: Final = self.workload.count()
        self._last = self._first
        self._has_ended = False

    def look(self) -> bool:
        """Count again, for as long as it is there; whether it still is."""
        now = self.workload.count()
        if not now.threads_count:
            self._has_ended = True
            return False
        self._last = now
        return True

    def explain(self, monotonic_ns: int, returncode: int | None = None) -> Explained:
        """What was seen since the beginning.

        `returncode`: how it ended, where its parent asks; negative: the signal that ended it.
        """
        elapsed_ns = max(1, monotonic_ns - self._began_ns)
        host = {k: v for k, v in self._host.read(monotonic_ns).items() if v != ABSENT}
        risen = _risen(self._first, self._last)
        ended = self._ended(returncode)
        reasons = [
            *(
                [Reason(code="ended", share_ppm=PPM, says=ended)]
                if self._is_dead(returncode)
                else []
            ),
            *self._cpu(risen, elapsed_ns, host),
            *self._storage(risen, elapsed_ns),
            *self._where_memory_lies(),
            *_host_reasons(host),
        ]
        reasons.sort(key=lambda each: (-each.share_ppm, each.code))
        return Explained(
            pid=self.workload.pid,
            command=self._command,
            watched_ns=elapsed_ns,
            threads_count=self._last.threads_count,
            ran_ns=risen.ran_ns,
            waited_ns=risen.waited_ns,
            host=host,
            ended=ended,
            reasons=tuple(reasons),
        )

    def _is_dead(self, returncode: int | None) -> bool:
        """Whether it did not run at all, or came to no good end."""
        return bool(returncode) or (returncode is None and not self._first.threads_count)

    def _ended(self, returncode: int | None) -> str:
        if returncode is not None:
            how = (
                f"by {_signal(-returncode)}" if returncode < 0 else f"with exit status {returncode}"
            )
            return f"it has ended, {how}"
        if not self._first.threads_count:
            return "it has ended: a zombie, whose parent has not asked how"
        return "it ended while it was watched" if self._has_ended else ""

    def _cpu(self, risen: Counted, elapsed_ns: int, host: dict[str, int]) -> Iterator[Reason]:
        wait_ppm = share_ppm(risen.waited_ns, risen.ran_ns + risen.waited_ns)
        wanted_ppm = (risen.ran_ns + risen.waited_ns) * PPM // elapsed_ns
        if wait_ppm >= WAIT_PPM_MIN and wanted_ppm >= WANTED_PPM_MIN:
            says = f"ready to run and not run {_percent(wait_ppm)} of the time that it wanted to"
            says += f" ({_seconds(risen.waited_ns)} waited, {_seconds(risen.ran_ns)} run)"
            if rivals := self._rivals_now(elapsed_ns):
                says += f"; on its CPUs ran {', '.join(rivals)}"
            yield Reason(code="run_queue", share_ppm=wait_ppm, says=says)
        throttled_ppm = share_ppm(risen.throttled_ns, elapsed_ns)
        if throttled_ppm >= THROTTLED_PPM_MIN:
            says = f"{_percent(throttled_ppm)} of the time its group had no CPU quota left"
            yield Reason(code="throttled", share_ppm=throttled_ppm, says=says)
        steal_ppm = host.get("cpu_steal_ppm", 0)
        if steal_ppm >= STEAL_PPM_MIN:
            says = f"the hypervisor took the CPUs away {_percent(steal_ppm)} of the time"
            yield Reason(code="steal", share_ppm=steal_ppm, says=says)
        if self._last.stopped_count:
            says = f"a signal or debugger stopped {self._last.stopped_count} of its processes"
            yield Reason(code="stopped", share_ppm=PPM, says=says)

    def _storage(self, risen: Counted, elapsed_ns: int) -> Iterator[Reason]:
        blocked_ppm = share_ppm(risen.blocked_ns, elapsed_ns) if risen.blocked_ns >= 0 else ABSENT
        if blocked_ppm >= BLOCKED_PPM_MIN:
            says = f"its threads waited {_seconds(risen.blocked_ns)} for storage"
            yield Reason(code="storage", share_ppm=blocked_ppm, says=says)
        faults_per_s = risen.major_faults_count * _SECOND_NS // elapsed_ns
        if faults_per_s >= FAULTS_PER_S_MIN:
            says = f"{faults_per_s} pages a second came from the disk"
            swapped = self._memory.swapped_kib
            if swapped > 0:
                says += f"; {swapped >> 10} MiB of it are swapped out"
            yield Reason(code="major_faults", share_ppm=min(PPM, faults_per_s * 100), says=says)

    def _where_memory_lies(self) -> Iterator[Reason]:
        memory = self._memory
        far_ppm = share_ppm(memory.far_pages, memory.near_pages + memory.far_pages)
        if memory.far_pages != ABSENT and far_ppm >= FAR_PPM_MIN:
            says = f"{_percent(far_ppm)} of its memory lie on another NUMA node than its CPU"
            yield Reason(code="numa", share_ppm=far_ppm, says=says)
        huge_ppm = share_ppm(memory.huge_kib, memory.anonymous_kib)
        if memory.anonymous_kib >= HUGE_KIB_MIN and 0 <= huge_ppm < HUGE_PPM_MIN:
            says = f"{_percent(huge_ppm)} of {memory.anonymous_kib >> 10} MiB lie in huge pages"
            yield Reason(code="small_pages", share_ppm=HUGE_PPM_MIN - huge_ppm, says=says)

    def _cpu_ticks(self) -> dict[int, int]:
        """Nanoseconds that each other process ran so far."""
        own = set(self.workload.pids())
        pids = [int(name) for name in self._root.names("proc") if name.isdecimal()]
        return {
            pid: int(words[0])
            for pid in pids
            if pid not in own
            and (words := self._root.words(f"proc/{pid}/schedstat"))
            and words[0].isdecimal()
        }

    def _rivals_now(self, elapsed_ns: int) -> list[str]:
        now = self._cpu_ticks()
        ran = {pid: ns - self._rivals.get(pid, ns) for pid, ns in now.items()}
        found: list[str] = []
        for pid in sorted(ran, key=lambda pid: -ran[pid]):
            if len(found) == RIVALS_MAX or ran[pid] * PPM // elapsed_ns < RIVAL_PPM_MIN:
                break
            if not self._cpus.isdisjoint(cpus_of(self._root, pid)):
                share = ran[pid] * 100 // elapsed_ns
                found.append(f"{pid} {command_of(self._root, pid)[:40]} ({share} % of a CPU)")
        return found


def _host_reasons(host: dict[str, int]) -> Iterator[Reason]:
    for what, says in (("memory", "for memory"), ("io", "for storage")):
        ppm = host.get(f"{what}_pressure_ppm", 0)
        if ppm >= PRESSURE_PPM_MIN:
            said = f"some task of this host waited {says} {_percent(ppm)} of the time"
            yield Reason(code=f"{what}_pressure", share_ppm=ppm, says=said)


def _risen(first: Counted, last: Counted) -> Counted:
    """The difference; a thread that ended took its counts with it, and nothing goes below 0."""
    both = zip(first, last, strict=True)
    return Counted(*(ABSENT if ABSENT in (a, b) else max(0, b - a) for a, b in both))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _percent(ppm: int) -> str:
    return f"{ppm // 10_000} %"


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.2f} s"
