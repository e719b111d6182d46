"""Where ranks stand that are not in the collective of the others, and who of them is stuck there.

Why: a rank that never called a collective may save, evaluate or compile, which takes minutes, and
is not to be blamed before it must be over; its stack tells that from a rank that waits for nothing
that will come. How: agents look twice, some seconds apart, at ranks that stand still. Who is in one
place both times, in a debugger or in the teardown of its groups, or asleep in a lock or a sleep of
its own code while its whole process does next to nothing, is stuck. Who runs, moves, saves, loads,
compiles, evaluates, waits for another program or a connection, or is in a library, is not: a loop
in somebody's code may be a computation. Not here: who is waited for (collectives.py).
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.recorder_findings import PROOFS_MAX
from nemesis.processors.attribution.stack_places import Place, place_of
from nemesis.processors.attribution.steps import Steps
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import StackSeen

LOOKED_NS_MIN: Final = 4_000_000_000
IDLE_SHARE: Final = 100  # a thread that polls ran a hundredth of the time at most
PROCESS_SHARE: Final = 10  # threads of NCCL and of loggers look around; one that uploads does more
# kernel/futex, kernel/time/hrtimer.c, kernel/signal.c: what a lock, a sleep and a pause wait in
_SLEEPS: Final = re.compile(r"futex|nanosleep|nsleep|sigsuspend|sigtimedwait|\bpause")
_DEAD_ENDS: Final[frozenset[Place]] = frozenset({"debugger", "teardown"})
_STILL: Final[frozenset[Place]] = frozenset({"lock", "own code"})
SAYS: Final[Mapping[Place | None, str]] = {
    "debugger": "stands in a debugger",
    "teardown": "ends its process groups",
    "lock": "waits for a lock or a queue",
    "own code": "is in its own code",
    "library": "is in a library",
    "saving": "saves",
    "loading": "loads or prepares something",
    "evaluating": "evaluates",
    "compiling": "compiles",
    "transferring": "waits for a connection",
    "another program": "waits for another program",
    None: "shows no stack: some thread of it keeps Python's lock",
}


class Stood(msgspec.Struct, frozen=True, array_like=True):
    """A rank that is in no collective."""

    since_ns: int
    """First look, by the clock of its node."""
    known_ns: int
    """Log time."""
    is_stuck: bool
    says: str
    proof: Proof


class RankStacks(msgspec.Struct):
    """Ranks that stand, by job."""

    jobs: dict[str, dict[int, Stood]] = {}

    def take(self, fact: Fact, inventory: Inventory) -> None:
        """Take up two looks at a rank; who is in a collective is not remembered."""
        data: StackSeen = fact.data
        ranks = self.jobs.get(data.job, {})
        ranks.pop(data.rank, None)
        place = place_of(data.frames)
        if place == "collective" or fact.late or data.job not in inventory.jobs:
            return
        is_stuck = is_stuck_in(data, place)
        asleep = ", asleep" if is_stuck and place in _STILL else ""
        where = f" at {data.frames[0]}" if data.frames else ""
        both = f" for {data.looked_ns // 1_000_000_000} s" if data.state == "still" else ""
        says = f"{SAYS[place]}{where}{both}{asleep}"
        self.jobs.setdefault(data.job, ranks)[data.rank] = Stood(
            since_ns=max(0, fact.at_ns - data.looked_ns - data.clock_error_ns),
            known_ns=fact.log_time_ns,
            is_stuck=is_stuck,
            says=says,
            proof=Proof(fact.id, fact.seq, f"rank {data.rank} {says}"),
        )

    def since(self, job: str, steps: Steps) -> dict[int, Stood]:
        """Ranks of a job that has not got on since they were looked at."""
        return {
            rank: each
            for rank, each in sorted(self.jobs.get(job, {}).items())
            if not steps.has_got_on_since(job, each.since_ns)
        }

    def forget(self, job: str) -> None:
        """The job is over, or goes on."""
        self.jobs.pop(job, None)


def is_stuck_in(data: StackSeen, place: Place | None) -> bool:
    """Whether two looks show a thread that does nothing and waits for nothing that will come."""
    if data.state != "still" or data.looked_ns < LOOKED_NS_MIN:
        return False
    is_idle = (
        data.ran_ns * IDLE_SHARE <= data.looked_ns
        and data.process_ran_ns * PROCESS_SHARE <= data.looked_ns
        and _SLEEPS.search(data.waits_in) is not None
    )
    return place in _DEAD_ENDS or (place in _STILL and is_idle)


def with_stacks(finding: Finding, stood: Mapping[int, Stood]) -> Finding:
    """A finding about ranks that did not call, with what their stacks show."""
    shown = {rank: stood[rank] for rank in _blamed(finding) if rank in stood}
    if not shown:
        return finding
    words = "; ".join(f"rank {rank} {each.says}" for rank, each in list(shown.items())[:2])
    proofs = (*(each.proof for each in shown.values()), *finding.proofs)
    return replace(
        finding,
        reason=f"{finding.reason}: {words}",
        proofs=proofs[:PROOFS_MAX],
        missing=tuple(each for each in finding.missing if each != wanted.PYTHON_STACK),
    )


def is_shown(finding: Finding, stood: Mapping[int, Stood]) -> bool:
    """Whether all whom it blames, and for nothing but that they did not call, are stuck."""
    blamed = _blamed(finding)
    return bool(blamed) and all(rank in stood and stood[rank].is_stuck for rank in blamed)


def _blamed(finding: Finding) -> list[int]:
    if finding.fault_class != "app.stall":
        return []
    return [int(name.rpartition("/")[2]) for name in finding.culprits]
