"""Which rank's process is stopped, and whether that holds its job up.

Why: a process that is stopped ends nothing and closes nothing. No peer sees it, and collectives
wait for it until they time out, minutes later. How: the kernel says so itself, so nothing is
waited for where ranks beside it run on: without it the job has no step. Where all ranks of a node
are stopped, others are heard of first: a scheduler that suspends a job stops all of it, and no
part is at fault. Who sent the signal no counter tells, so nobody is blamed for that.
Slurm suspends by SIGSTOP to all processes of a job (slurm.schedmd.com, scontrol suspend).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import RANK_HALTED, UNEXPLAINED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.schemas import components
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import ProcessState, ProcessStateSeen
from nemesis.schemas.rank_ranges import parse_ranks

GATHER_NS: Final = 2_000_000_000  # what stops all of a job reaches all its nodes within seconds
TRACED_NS: Final = 10_000_000_000  # a profiler holds a process for milliseconds, a person for more
PROOFS_MAX: Final = 12
_SAYS: Final = {
    "stopped": "was stopped by a signal",
    "zombie": "has lost its main thread, and others of it run on",
    "traced": "is held by a process that traces it",
}


class Halt(msgspec.Struct, array_like=True):
    """A rank whose process does not run."""

    node: str
    state: ProcessState
    since_ns: int
    """By the clock of its node."""
    known_ns: int
    """Log time at which it was told."""
    alone: bool
    """Others of its job on its node run on."""
    tracer_pid: int
    proof: Proof
    ended: bool = False
    """Its process was ended since, by whomever."""


class Halts(msgspec.Struct):
    """Ranks that do not run, by job."""

    jobs: dict[str, dict[int, Halt]] = {}

    def take(self, fact: Fact, inventory: Inventory) -> bool:
        """Take up a state; whether it is to be answered at once."""
        data: ProcessStateSeen = fact.data
        ranks = self.jobs.get(data.job, {})
        known = ranks.pop(data.rank, None)
        if data.job not in inventory.jobs or inventory.is_gone(data.job, data.rank):
            return False
        if data.state not in _SAYS or fact.late:
            return known is not None
        others = set(_ranks(data.others)) - ranks.keys()
        halt = Halt(
            node=fact.key,
            state=data.state,
            since_ns=data.since_ns,
            known_ns=fact.log_time_ns,
            alone=bool(others),
            tracer_pid=data.tracer_pid,
            proof=Proof(fact.id, fact.seq, f"rank {data.rank} {_SAYS[data.state]}"),
        )
        self.jobs.setdefault(data.job, ranks)[data.rank] = halt
        return halt.alone and halt.state != "traced"

    def end(self, job: str, rank: int) -> None:
        """The process of a rank ended."""
        halt = self.jobs.get(job, {}).get(rank)
        if halt is not None:
            halt.ended = True

    def regroup(self, job: str) -> None:
        """A job goes on in another membership: without its ranks that ended, or with new ones."""
        ranks = self.jobs.pop(job, {})
        going = {rank: halt for rank, halt in ranks.items() if not halt.ended}
        if going:
            self.jobs[job] = going

    def forget(self, job: str) -> None:
        """The job is over, or begins anew."""
        self.jobs.pop(job, None)

    def judge(self, now_ns: int, inventory: Inventory) -> list[tuple[str, list[str], Finding]]:
        """(job, nodes, what holds it up) of jobs with ranks that do not run."""
        found: list[tuple[str, list[str], Finding]] = []
        for job, ranks in sorted(self.jobs.items()):
            places = inventory.jobs.get(job)
            here = {r: h for r, h in sorted(ranks.items()) if not inventory.is_gone(job, r)}
            due = {rank: halt for rank, halt in here.items() if _is_due(halt, now_ns)}
            if places is None or not due:
                continue
            members = places.world - len(places.gone)
            finding = _suspended(job, due) if len(here) >= members else _halted(job, due)
            found.append((job, sorted({halt.node for halt in due.values()}), finding))
        return found


def _is_due(halt: Halt, now_ns: int) -> bool:
    if halt.state == "traced":
        return now_ns >= halt.known_ns + TRACED_NS
    return halt.alone or now_ns >= halt.known_ns + GATHER_NS


def _halted(job: str, halts: dict[int, Halt]) -> Finding:
    """Ranks that hold up the others; those that are only traced where no other is halted."""
    stopped = {rank: halt for rank, halt in halts.items() if halt.state != "traced"}
    blamed = stopped or halts
    names = ", ".join(str(rank) for rank in list(blamed)[:8])
    says = " and ".join(sorted({_SAYS[halt.state] for halt in blamed.values()}))
    tracers = sorted({halt.tracer_pid for halt in blamed.values() if halt.tracer_pid})
    by_whom = f" (process {tracers[0]})" if tracers else ""
    return Finding(
        verdict="attributed",
        fault_class="app.stall",
        signature="process_stopped" if stopped else "process_traced",
        reason=f"rank {names} of {job} {says}{by_whom}, and the others wait; the kernel does not"
        " say who did it"
        if stopped
        else f"rank {names} of {job} {says}{by_whom}, and the others wait",
        confidence_ppm=900_000,
        level=RANK_HALTED,
        culprits=tuple(sorted(components.rank(job, rank) for rank in blamed)),
        proofs=_proofs(blamed),
        missing=(wanted.WHO_STOPPED,),
        jobs=(job,),
    )


def _suspended(job: str, halts: dict[int, Halt]) -> Finding:
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"all ranks of {job} are stopped, as by a scheduler that suspends the job",
        confidence_ppm=0,
        level=UNEXPLAINED + 1,
        proofs=_proofs(halts),
        missing=(wanted.WHO_SUSPENDED,),
        jobs=(job,),
    )


def _proofs(halts: dict[int, Halt]) -> tuple[Proof, ...]:
    return tuple(halt.proof for halt in list(halts.values())[:PROOFS_MAX])


def _ranks(text: str) -> Sequence[int]:
    """The ranks of a spelling; one that is none names nobody."""
    try:
        return parse_ranks(text)
    except BadNameError:
        return ()
