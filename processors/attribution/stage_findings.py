"""Ranks that were busy with a stage of their own while the others waited for them.

Why: an index that one rank builds, a table that it tokenizes or a checkpoint that it writes stops
no rank; the others' patience ends. How: a stage took longer than the limit of those that gave up,
on a rank that did not give up; or all ranks but one gave up in the same collective, and that one's
last words before were of a stage; or ranks waited in vain for one to begin their communicator. What
is printed without a rank is rank 0's (Megatron, DeepSpeed and tqdm's users print there alone).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import RANK_LATE, STAGE_SLOW, Finding
from nemesis.processors.attribution.report_rules import proofs_of, shown
from nemesis.processors.attribution.reports import Said, Told
from nemesis.schemas import components

RANKS_MIN: Final = 3  # of fewer that gave up, one more may only have printed nothing
LIMITS_BEFORE: Final = 2  # a stage so many limits before the others gave up is another one
SECOND_NS: Final = 1_000_000_000
LONG_NS: Final = 60 * SECOND_NS
EARLY_SEQ: Final = 64
"""Where lines have no clock, a stage before a late collective may be of the job's first minute."""


def judge_stages(told: Told) -> list[Finding]:
    """Who was busy while others waited."""
    timed = {each.rank: each for each in told.of("timeout") if each.rank >= 0}
    found = (_busy(told, timed) or _last_words(told, timed)) if timed else None
    found = found or _awaited(told)
    return [found] if found else []


def _busy(told: Told, timed: Mapping[int, Said]) -> Finding | None:
    """A rank that was busy for longer than the others' limit, and gave up nothing."""
    limit_ns = min(each.message.value_ns for each in timed.values())
    # what was over before they gave up did not keep them waiting
    first_ns = min(each.at_ns for each in told.of("timeout"))
    silent = _silent(timed)
    stages = [
        each
        for each in told.of("activity")
        if _rank(each, silent) >= 0
        and _rank(each, silent) not in timed
        and each.message.value_ns > limit_ns > 0
        and each.at_ns >= first_ns
    ]
    ranks = sorted({_rank(each, silent) for each in stages})
    if len(ranks) != 1:
        return None
    begun = [e for e in told.of("activity") if _rank(e, silent) == ranks[0] and e not in stages]
    seconds = max(each.message.value_ns for each in stages) // SECOND_NS
    return Finding(
        verdict="attributed",
        fault_class="app.timeout",
        reason=f"rank {ranks[0]} of {told.job} was busy for {seconds} s, the others gave up waiting"
        f" after {limit_ns // SECOND_NS} s",
        confidence_ppm=850_000,
        level=STAGE_SLOW,
        culprits=(components.rank(told.job, ranks[0]),),
        victims=tuple(sorted(components.rank(told.job, rank) for rank in timed)),
        proofs=proofs_of(
            [(each, "longer than the others' limit") for each in stages]
            + [(each, "what it was busy with") for each in begun[:2]]
            + [(each, "gave up waiting") for each in timed.values()]
        ),
    )


def _silent(timed: Mapping[int, Said]) -> int:
    """The one rank that did not give up in the collective in which all others did, else -1."""
    seqs = {each.message.seq for each in timed.values()}
    missing = sorted(set(range(max(timed) + 1)) - set(timed))
    alone = len(missing) == 1 and len(seqs) == 1 and len(timed) >= RANKS_MIN
    return missing[0] if alone else -1


def _rank(said: Said, silent: int) -> int:
    return 0 if said.rank < 0 and silent == 0 else said.rank


def _last_words(told: Told, timed: Mapping[int, Said]) -> Finding | None:
    silent = _silent(timed)
    first_ns = min(each.at_ns for each in timed.values())
    limit_ns = max(each.message.value_ns for each in timed.values())
    stages = [
        each
        for each in told.of("activity")
        if silent >= 0
        and _rank(each, silent) == silent
        and first_ns - LIMITS_BEFORE * limit_ns <= each.at_ns <= first_ns
    ]
    later = [
        each
        for each in told.said
        if _rank(each, silent) == silent and each.message.kind != "activity"
    ]
    if not stages or any(each.at_ns > stages[-1].at_ns for each in later):
        return None
    is_clocked = first_ns - stages[-1].at_ns >= SECOND_NS
    if not is_clocked and min(each.message.seq for each in timed.values()) > EARLY_SEQ:
        return None
    return _of_stage(
        told,
        silent,
        stages[-2:],
        [(each, "gave up waiting") for each in timed.values()],
        f"all ranks of {told.job} but {silent} gave up in one collective; rank {silent} spoke last"
        " of a stage of its own",
    )


def _awaited(told: Told) -> Finding | None:
    """The id of a communicator is the first thing that its lowest rank does in it."""
    waits = told.of("store_wait")
    waiting = {each.message.rank for each in waits}
    ranks = sorted({each.message.number for each in waits} - waiting)
    if len(ranks) != 1:
        return None
    rank = ranks[0]
    long = [e for e in told.of("activity") if e.message.value_ns >= LONG_NS]
    stages = [e for e in long if e.rank == rank or (e.rank < 0 and rank == 0)]
    reason = (
        f"rank {shown(sorted(waiting))} of {told.job} waited for rank {rank}, which did not come to"
        " their first collective"
    )
    said = [(each, f"it waited for rank {rank}") for each in waits]
    if stages:
        return _of_stage(told, rank, stages[-2:], said, reason)
    return Finding(
        verdict="class-only",
        fault_class="app.stall",
        reason=reason,
        confidence_ppm=600_000,
        level=RANK_LATE,
        proofs=proofs_of(said),
        jobs=(told.job,),
        missing=(wanted.RANKS_OUTPUT, wanted.PYTHON_STACK),
    )


def _of_stage(
    told: Told,
    rank: int,
    stages: Sequence[Said],
    others: Sequence[tuple[Said, str]],
    reason: str,
) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class="app.timeout",
        reason=reason,
        confidence_ppm=700_000,
        level=STAGE_SLOW if stages[-1].rank >= 0 else RANK_LATE,
        culprits=(components.rank(told.job, rank),),
        proofs=proofs_of([*[(each, "what it was busy with") for each in stages], *others]),
        missing=(wanted.PYTHON_STACK,),
    )
