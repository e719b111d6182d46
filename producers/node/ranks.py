"""Which processes of this node are ranks of which job, and how long they wait for a CPU.

Why: a host is only a straggler's cause if the ranks themselves wait. How: launchers tell each rank
who it is by its environment (torchrun and others: RANK; Slurm: SLURM_PROCID; Open MPI:
OMPI_COMM_WORLD_RANK); where the environment is somebody else's and may not be read, the control
group still names Slurm's job. The kernel counts for each thread the time that it was ready and did
not run (Linux Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from nemesis.producers.node.rates import Rates, share_ppm
from nemesis.producers.node.root import Root, number_of
from nemesis.schemas.channels import ABSENT

JOB_NAMES: Final = ("NEMESIS_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
"""The first that is set names the job."""
RANK_NAMES: Final = ("NEMESIS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""The first that is set numbers the rank."""
LOOK_AGAIN_POLLS: Final = 12  # a number may come back as another process: look at all once a minute
RUNS_NS_MIN: Final = 100_000_000  # a thread that hardly wants to run says little about waiting
RANKS_MAX: Final = 1024  # of one node; more are no training job
_SLURM: Final = re.compile(r"/slurm[^\n]*/job_(\d+)(?:/|$)", re.MULTILINE)


class RankProcess(NamedTuple):
    """A process that is a rank."""

    job: str
    rank: int
    pid: int


class Ranks:
    """Finds ranks and reads their threads' waiting times."""

    def __init__(self, root: Root) -> None:
        self._root: Final = root
        self._rates: Final = Rates()
        self._known: dict[int, Mapping[str, str]] = {}
        self._looks_count = 0
        self.denied_count = 0
        """Processes whose environment may not be read."""

    @property
    def processes_count(self) -> int:
        """How many processes there are."""
        return len(self._known)

    def read(self) -> tuple[list[RankProcess], int]:
        """The ranks that run, and the waiting share of the one that waits most, in ppm."""
        ranks = self.find()
        waits = [share for each in ranks if (share := self._waits(each.pid)) != ABSENT]
        return ranks, max(waits, default=ABSENT)

    def find(self) -> list[RankProcess]:
        """One process a rank: of several with its number the oldest, the others are its workers."""
        pids = {int(name) for name in self._root.names("proc") if name.isdecimal()}
        before, again = self._known, self._looks_count % LOOK_AGAIN_POLLS == 0
        self._looks_count += 1
        if again:
            self.denied_count = 0
        self._known = {
            pid: self._environment(pid) if again or pid not in before else before[pid]
            for pid in pids
        }
        for pid in before.keys() - pids:
            self._rates.forget(f"{pid} ran")
            self._rates.forget(f"{pid} waited")
        found: dict[tuple[str, int], int] = {}
        for pid, said in sorted(self._known.items()):
            rank = number_of(first_of(said, RANK_NAMES))
            job = first_of(said, JOB_NAMES)
            # a launcher below srun has SLURM_PROCID, and is no rank where its children are
            if rank >= 0 and (job, rank) not in found and not self._launches(said):
                found[job, rank] = pid
        return [RankProcess(job, rank, pid) for (job, rank), pid in sorted(found.items())][
            :RANKS_MAX
        ]

    def _launches(self, said: Mapping[str, str]) -> bool:
        if any(name in said for name in RANK_NAMES[:-1]):
            return False
        step = said.get("SLURM_JOB_ID")
        return any(
            "RANK" in other and other.get("SLURM_JOB_ID") == step for other in self._known.values()
        )

    def _environment(self, pid: int) -> Mapping[str, str]:
        """What of a process's environment says who it is; its control group where that is shut."""
        try:
            text = self._root.text(f"proc/{pid}/environ")
        except PermissionError:
            self.denied_count += 1
            return self._by_group(pid)
        except OSError:
            return {}
        wanted = {*JOB_NAMES, *RANK_NAMES}
        pairs = (entry.partition("=") for entry in text.split("\0"))
        return {name: value[:200] for name, _, value in pairs if name in wanted}

    def _by_group(self, pid: int) -> Mapping[str, str]:
        match = _SLURM.search(self._root.line(f"proc/{pid}/cgroup"))
        return {"SLURM_JOB_ID": match[1]} if match else {}

    def _waits(self, pid: int) -> int:
        """The share of the time that its threads wanted to run in which they did not."""
        ran_ns = waited_ns = 0
        for thread in self._root.names(f"proc/{pid}/task"):
            words = self._root.words(f"proc/{pid}/task/{thread}/schedstat")[:2]
            if len(words) == 2 and all(word.isdecimal() for word in words):
                ran_ns += int(words[0])
                waited_ns += int(words[1])
        ran = self._rates.rise(f"{pid} ran", ran_ns)
        waited = self._rates.rise(f"{pid} waited", waited_ns)
        if ABSENT in (ran, waited) or ran + waited < RUNS_NS_MIN:
            return ABSENT
        return share_ppm(waited, ran + waited)


def job_of(ranks: Iterable[RankProcess]) -> str:
    """The job that most of these ranks are of; "" for none."""
    counts: dict[str, int] = {}
    for each in ranks:
        counts[each.job] = counts.get(each.job, 0) + 1
    return max(sorted(counts), key=lambda job: counts[job], default="")


def first_of(said: Mapping[str, str], names: Iterable[str]) -> str:
    """The first of these that is set, else ""."""
    return next((said[name] for name in names if said.get(name)), "")
