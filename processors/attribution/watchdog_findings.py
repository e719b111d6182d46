"""What watchdogs, fingerprints and NCCL's RAS print of ranks that wait for each other.

Why: a rank that prints a timeout is a witness, not a suspect. How: of ranks that time out in the
same call, the few that called it with another size or called something else are out of step; of
ranks that tell how far they came, the one that enqueued less than all others never called; a rank
that was busy with a stage for longer than the limit of those that gave up, and did not give up
itself, kept them waiting. Timeouts alone name nobody.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    CALLS_DIFFER,
    RANK_STUCK,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Told
from nemesis.processors.attribution.stage_findings import judge_stages
from nemesis.schemas import components

FEW_SHARE: Final = 4  # more than a quarter of the ranks out of step: nobody knows which side is
RANKS_MIN: Final = 3  # of two that differ nobody knows which one is wrong
# each rank may bring another size to these
_UNEVEN: Final = frozenset(
    {"alltoall", "alltoall_base", "all_to_all", "send", "recv", "gather", "scatter", "coalesced"}
)


def judge_watchdogs(told: Told) -> list[Finding]:
    """What timeouts, fingerprints and positions prove."""
    found = [_differing(told), _analysed(told), *_behind(told), *judge_stages(told)]
    known = [each for each in found if each is not None]
    if not known:
        alone = _timed_out(told) or _stuck_in_host(told)
        return [alone] if alone else []
    return known


def _latest(said: Sequence[Said]) -> dict[int, Said]:
    return {each.rank: each for each in said if each.rank >= 0}


def _differing(told: Told) -> Finding | None:
    if fingerprints := told.of("call_differs"):
        return Finding(
            verdict="class-only",
            fault_class="desync",
            reason=f"ranks of {told.job} called collectives that do not match:"
            f" {fingerprints[0].message.what}",
            confidence_ppm=850_000,
            level=CALLS_DIFFER,
            proofs=proofs(fingerprints, "the calls of two ranks differ"),
            jobs=(told.job,),
            missing=(wanted.PYTHON_STACK,),
        )
    timed = _latest(told.of("timeout"))
    for seq in sorted({each.message.seq for each in timed.values()}):
        same = [each for each in timed.values() if each.message.seq == seq]
        calls = Counter(_call(each) for each in same)
        if len(calls) > 1:
            return _out_of_step(told.job, same, calls)
    return None


def _call(said: Said) -> tuple[str, str]:
    message = said.message
    return message.op, "" if message.op.strip("_") in _UNEVEN else message.size


def _out_of_step(job: str, same: Sequence[Said], calls: Counter[tuple[str, str]]) -> Finding:
    usual, usual_count = calls.most_common(1)[0]
    odd = [each for each in same if _call(each) != usual]
    # the lines name no group: two that call alike may be one of their own, as the first and the
    # last stage of a pipeline are; one alone waits for nobody but those it differs from
    few = len(same) >= RANKS_MIN and len(odd) * FEW_SHARE <= len(same)
    certain = few and len(odd) == 1 and usual_count > 1
    ranks = sorted(each.rank for each in odd)
    reason = f"rank {shown(ranks)} of {job} called another operation or size than the others"
    if not certain:
        reason = f"ranks of {job} gave up in calls that do not match"
    others = [each for each in same if each not in odd]
    return Finding(
        verdict="attributed" if certain else "class-only",
        fault_class="desync",
        reason=reason,
        confidence_ppm=850_000 if certain else 650_000,
        level=CALLS_DIFFER,
        culprits=tuple(sorted(components.rank(job, rank) for rank in ranks)) if certain else (),
        victims=tuple(sorted(components.rank(job, e.rank) for e in others)) if certain else (),
        provisional=certain,  # watchdogs of one hang fire apart, and the next may call alike
        proofs=proofs_of(
            [(e, f"rank {e.rank} called {_words(e)}") for e in odd]
            + [(e, f"rank {e.rank} called {_words(e)}, like most") for e in others[:2]]
        ),
        jobs=(job,),
        missing=(wanted.PYTHON_STACK,),
    )


def _words(said: Said) -> str:
    message = said.message
    return f"{message.op} number {message.seq} with {message.size or 'unknown'} elements"


def _behind(told: Told) -> list[Finding | None]:
    """Who enqueued less than all others of the same group."""
    groups: dict[str, dict[int, Said]] = {}
    communicator, differs = "", bool(told.of("timeout"))
    for each in told.of("communicator", "launched", "group_state"):
        message = each.message
        if message.kind == "communicator":
            # ranks of a healthy job differ by an operation at any moment: RAS says if it is more
            communicator, differs = message.device, differs or bool(message.what)
        else:
            groups.setdefault(message.device or communicator, {})[each.rank] = each
    found = [
        _least(told, positions)
        for positions in groups.values()
        if differs or any(each.message.kind == "group_state" for each in positions.values())
    ]
    return [*found, _never_called(told)]


def _least(told: Told, positions: dict[int, Said]) -> Finding | None:
    known = {rank: e for rank, e in positions.items() if e.message.seq >= 0 and rank >= 0}
    crowds = [e for e in told.of("launched") if e.message.rank < 0]
    if crowds:
        return _least_of_crowds(told, known, crowds)
    if len(known) < 2:
        return None
    least = min(each.message.seq for each in known.values())
    behind = sorted(rank for rank, each in known.items() if each.message.seq == least)
    finished = [e.message.number for r, e in known.items() if r not in behind]
    if len(behind) == len(known) or (min(finished) >= 0 and least > max(finished)):
        # all have called what they wait in; that some ran ahead says nothing
        return _unfinished(told, known)
    if len(behind) > 1 and len(behind) * FEW_SHARE > len(known):
        return None
    return _stalled(
        told.job,
        behind,
        [(known[r], f"rank {r} enqueued {least} operations at most") for r in behind]
        + [
            (each, f"rank {rank} came to {each.message.seq}")
            for rank, each in sorted(known.items())
            if rank not in behind
        ],
    )


def _least_of_crowds(told: Told, known: dict[int, Said], crowds: list[Said]) -> Finding | None:
    """RAS counts the ranks that came equally far, and names those of a small crowd."""
    least = min(each.message.seq for each in crowds)
    behind = sorted(rank for rank, each in known.items() if each.message.seq == least)
    of_least = sum(each.message.number for each in crowds if each.message.seq == least)
    total = sum(each.message.number for each in crowds)
    few = 0 < len(behind) == of_least and len(behind) * FEW_SHARE <= total
    if few and all(each.message.seq > least for each in crowds if each.message.number > of_least):
        return _stalled(
            told.job,
            behind,
            [(known[rank], f"rank {rank} enqueued {least} operations at most") for rank in behind]
            + [(each, f"{each.message.number} ranks came as far") for each in crowds],
        )
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"ranks of {told.job} launched different numbers of operations, and most are behind:"
        " who keeps them is not said",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(crowds, "how far a crowd of ranks came"),
        jobs=(told.job,),
        missing=(wanted.ALL_DUMPS, wanted.PYTHON_STACK),
    )


def _unfinished(told: Told, known: dict[int, Said]) -> Finding | None:
    """All enqueued alike, and one finished less than the others: its GPU or its path."""
    done = {rank: each.message.number for rank, each in known.items() if each.message.number >= 0}
    least = min(done.values(), default=-1)
    behind = [rank for rank, number in done.items() if number == least]
    if len(done) < RANKS_MIN or len(behind) != 1:
        return None
    rank = behind[0]
    return Finding(
        verdict="attributed",
        fault_class="gpu.stall",
        reason=f"rank {rank} of {told.job} finished {least} operations, the others of its group"
        " more, and all had enqueued alike",
        confidence_ppm=600_000,
        level=RANK_STUCK,
        culprits=(components.rank(told.job, rank),),
        victims=tuple(sorted(components.rank(told.job, each) for each in done if each != rank)),
        proofs=proofs_of(
            [(known[rank], f"it finished {least}")]
            + [(known[each], f"it finished {number}") for each, number in done.items()]
        ),
        missing=(wanted.ALL_DUMPS, wanted.GPU_STATE),
    )


def _never_called(told: Told) -> Finding | None:
    missing, never = told.of("missing_rank"), told.of("never_created")
    sets = [{int(w) for w in e.message.what.split(",") if w.isdecimal()} for e in missing]
    sets += [{each.rank} for each in never if each.rank >= 0]
    if not sets:
        return None
    # who is missing in one group keeps others from joining the next: the first are in all
    ranks = set.intersection(*sets)
    said = [(each, "this rank never made the call that the others wait in") for each in missing]
    said += [(each, "it made no such call") for each in never]
    if ranks and len(ranks) <= RANKS_MIN:
        return _stalled(told.job, sorted(ranks), said)
    return Finding(
        verdict="class-only",
        fault_class="desync",
        reason=f"ranks of {told.job} wait for each other in different groups",
        confidence_ppm=600_000,
        level=RANK_STUCK,
        proofs=proofs_of(said),
        jobs=(told.job,),
        missing=(wanted.ALL_DUMPS, wanted.PYTHON_STACK),
    )


def _analysed(told: Told) -> Finding | None:
    """Whom an analyser of flight recorders names for another size or type."""
    named = told.of("culprit_rank")
    ranks = sorted({each.message.rank for each in named})
    if not ranks or len(ranks) > RANKS_MIN:
        return None
    return Finding(
        verdict="attributed",
        fault_class="desync",
        reason=f"rank {shown(ranks)} of {told.job} called with another size or type than the"
        " others",
        confidence_ppm=750_000,
        level=CALLS_DIFFER,
        culprits=tuple(sorted(components.rank(told.job, rank) for rank in ranks)),
        proofs=proofs(named, "an analyser of the dumps names this rank"),
        missing=(wanted.PYTHON_STACK,),
    )


def _stalled(job: str, ranks: Sequence[int], said: list[tuple[Said, str]]) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class="app.stall",
        reason=f"rank {shown(ranks)} of {job} never made the call that the others wait in",
        confidence_ppm=800_000,
        level=RANK_STUCK,
        culprits=tuple(sorted(components.rank(job, rank) for rank in ranks)),
        proofs=proofs_of(said),
        missing=(wanted.PYTHON_STACK,),
    )


def _timed_out(told: Told) -> Finding | None:
    timed = told.of("timeout")
    if not timed:
        return None
    ranks = sorted({each.rank for each in timed if each.rank >= 0})
    seqs = sorted({each.message.seq for each in timed})
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"rank {shown(ranks)} of {told.job} gave up in collective {shown(seqs)}: who kept"
        " them waiting is not said",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(timed, "a witness: it gave up waiting"),
        jobs=(told.job,),
        missing=(wanted.ALL_DUMPS, wanted.RANKS_OUTPUT, wanted.KERNEL_LOGS),
    )


def _stuck_in_host(told: Told) -> Finding | None:
    stuck = told.of("stuck_in_host")
    if not stuck:
        return None
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"a process of {told.job} hung in a call of its own, outside of any collective",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(stuck, "its watchdog made no progress"),
        jobs=(told.job,),
        missing=(wanted.PYTHON_STACK, wanted.KERNEL_LOGS),
    )
