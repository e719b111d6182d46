"""Which rank died first, and which only followed.

Why: when one rank is gone, the watchdogs and launchers of the others end them too, within seconds
and by the thousand; only the first is a symptom of the fault. How: a process that was killed or
crashed dies of its own; one that aborted, was asked to stop or left with an error may have followed
another, so of those only one that was certainly first is blamed.
"""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    PROGRAM_FAULT,
    RANK_EXITED,
    UNEXPLAINED,
    Finding,
    Proof,
)
from nemesis.processors.attribution.incidents import Exit
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.steps import Steps
from nemesis.schemas import components

SIGABRT: Final = 6  # torch's watchdog ends a process so: "exit -6" (ProcessGroupNCCL.cpp)
ABORTS_NS: Final = 10_000_000_000  # watchdogs of one hang end within seconds of each other
SIGBUS: Final = 7
SIGTERM: Final = 15  # what a launcher sends to the rest
# crash or kill of this very process: SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV
OWN_DEATH_SIGNALS: Final = frozenset({4, 7, 8, 9, 11})
SHARED_SHARE_PPM: Final = 500_000  # more of a job than this dying at once share a cause
# simulated: of ranks that left alone and of which nothing else was told, fewer than half were at
# fault themselves; below the others a GPU or a memory module had failed (tests/calibrate.py)
ALONE_PPM: Final = 400_000
ACQUITTED_PPM: Final = 600_000  # the node's devices were read since, and show nothing
PROOFS_MAX: Final = 12
CLOCK_ERROR_NS: Final = 10_000_000  # NTP within a site, where a producer states no error


def signal_of(exit_code: int, signal: int) -> int:
    """The signal that ended a process, as its producer or a shell tells it."""
    if signal:
        return signal
    if exit_code < 0:
        return -exit_code
    return exit_code - 128 if 128 < exit_code < 160 else 0


def is_own_death(exited: Exit) -> bool:
    """Whether this process died of its own, not because another one did."""
    return exited.signal in OWN_DEATH_SIGNALS


def judge_exits(
    exits: Sequence[Exit], inventory: Inventory, steps: Steps, acquitted: Collection[str] = ()
) -> Finding | None:
    """What the ends of a job's ranks prove; `acquitted`: nodes whose devices are well."""
    if not exits:
        return None
    job = exits[0].job
    own = [each for each in exits if is_own_death(each)]
    places = inventory.jobs.get(job)
    world = places.world - len(places.gone) if places else 0
    if own and not (world and len(own) > 1 and len(own) * 1_000_000 > world * SHARED_SHARE_PPM):
        # SIGBUS is also how Linux tells a process of bad memory (mm/memory-failure.c)
        others = any(each.signal != SIGBUS for each in own)
        return _blamed(job, own, exits, 900_000 if others else _alone_ppm(own, acquitted))
    followed = [each for each in exits if steps.stood_still_before(job, each.at_ns, each.error_ns)]
    if len(followed) == len(exits):
        reason = f"{_count(exits)} of {job} gave up when it had stood still already"
        return replace(_abstained(reason, job, exits), provisional=True)
    if len(exits) == 1:
        return _blamed(job, list(exits), exits, _alone_ppm(exits, acquitted))
    codes = {(each.code, each.signal) for each in exits}
    first = _certainly_first(exits)
    if first is not None:
        return _blamed(job, [first], exits, 500_000)
    if world and len(exits) >= world and len(codes) == 1 and exits[0].code > 0:
        return Finding(
            verdict="class-only",
            fault_class="app.program",
            reason=f"all ranks of {job} left with the same error code {exits[0].code}",
            confidence_ppm=600_000,
            level=PROGRAM_FAULT,
            proofs=_proofs(exits, set()),
            jobs=(job,),
            missing=(wanted.RANKS_OUTPUT,),
        )
    return _abstained(
        f"{len(exits)} ranks of {job} died together, and none certainly first", job, exits
    )


def _alone_ppm(exits: Sequence[Exit], acquitted: Collection[str]) -> int:
    """An abort is what the watchdog of a rank does that waits for another: that the node is well
    says nothing about who that is."""
    well = all(each.node in acquitted and each.signal != SIGABRT for each in exits)
    return ACQUITTED_PPM if well else ALONE_PPM


def _count(exits: Sequence[Exit]) -> str:
    return f"rank {exits[0].rank}" if len(exits) == 1 else f"{len(exits)} ranks"


def _abstained(reason: str, job: str, exits: Sequence[Exit]) -> Finding:
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=reason,
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=_proofs(exits, set()),
        jobs=(job,),
        missing=(wanted.RANKS_OUTPUT, wanted.ALL_DUMPS, wanted.KERNEL_LOGS),
    )


def _certainly_first(exits: Sequence[Exit]) -> Exit | None:
    """The one whose death lies before all others, whatever the clocks' errors are.

    Not one that aborted shortly before: the watchdog that is first to give up is not that of the
    rank at fault.
    """
    first = min(exits, key=lambda each: (each.at_ns + _error_ns(each), each.rank))
    others_ns = [each.at_ns for each in exits if each.rank != first.rank]
    if first.signal == SIGABRT and min(others_ns) - first.at_ns < ABORTS_NS:
        return None
    for each in exits:
        if each.rank == first.rank:
            continue
        if each.node == first.node and each.at_ns > first.at_ns:
            continue  # one clock
        if each.at_ns - _error_ns(each) <= first.at_ns + _error_ns(first):
            return None
    return first


def _error_ns(exited: Exit) -> int:
    return max(exited.error_ns, CLOCK_ERROR_NS)


def _blamed(
    job: str, guilty: Sequence[Exit], exits: Sequence[Exit], confidence_ppm: int
) -> Finding:
    ranks = {each.rank for each in guilty}
    names = tuple(sorted(components.rank(job, rank) for rank in ranks))
    others = sorted(each.rank for each in exits if each.rank not in ranks)
    how = " and ".join(sorted({_how(each) for each in guilty}))
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:8])
    return Finding(
        verdict="attributed",
        fault_class="unknown",
        reason=f"rank {shown} of {job} {how}",
        confidence_ppm=confidence_ppm,
        level=RANK_EXITED,
        culprits=names,
        victims=tuple(components.rank(job, rank) for rank in others[:64]),
        provisional=not all(is_own_death(each) for each in guilty),
        proofs=_proofs(exits, ranks),
        missing=(wanted.RANK_ENDED, wanted.KERNEL_LOG),
    )


def _how(exited: Exit) -> str:
    if exited.signal:
        return f"was ended by signal {exited.signal}"
    return f"left with exit code {exited.code}"


def _proofs(exits: Sequence[Exit], guilty: set[int]) -> tuple[Proof, ...]:
    ordered = sorted(exits, key=lambda each: (each.rank not in guilty, each.rank))
    return tuple(
        Proof(
            each.proof.fact,
            each.proof.seq,
            f"rank {each.rank} {_how(each)}"
            + ("" if each.rank in guilty or not guilty else ", after the others"),
        )
        for each in ordered[:PROOFS_MAX]
    )
