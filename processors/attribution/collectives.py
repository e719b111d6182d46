"""What the flight recorders of a job prove together: who holds it up, and how.

Why: all ranks report the same timeout, and most analysers name a victim. How: an operation that
ranks call differently is a fault of the program; else the ranks that are waited for and wait for
nobody are the cause, all of them at once, so that a second culprit does not hide behind the first;
ranks that wait for each other called their groups in another order. Where nothing hangs, a rank
that arrives last time after time is a straggler. Not here: who waits for whom (wait_graph.py), and
who of a cycle broke the order (crossed_calls.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import networkx as nx
from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.arrivals import late_rank, not_started
from nemesis.processors.attribution.calls import differing_call
from nemesis.processors.attribution.crossed_calls import crossed_calls, in_cycles
from nemesis.processors.attribution.findings import RANK_LATE, RANK_STUCK, UNEXPLAINED, Finding
from nemesis.processors.attribution.moments import Progress, progress_of
from nemesis.processors.attribution.recorder_findings import (
    NAMED_MAX,
    acquitted,
    named,
    recorder_finding,
    waits_in,
)
from nemesis.processors.attribution.wait_graph import (
    Group,
    Seen,
    Waits,
    groups_of,
    pending,
    wait_graph,
)
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass
from nemesis.schemas.inferred import RuledOut

STUCK_NS_MIN: Final = 10_000_000_000  # collectives of training take milliseconds, saves seconds


def judge_collectives(job: str, seen: Mapping[int, Seen]) -> Finding | None:
    """What the recorders of a stuck or slow job prove, or None where nothing is wrong."""
    groups = groups_of(seen)
    progress = progress_of(seen, groups)
    if progress is not None:
        return _going_on(job, seen, progress)
    differing = differing_call(job, seen, groups)
    if differing is not None:
        return differing
    crossed = crossed_calls(job, seen, groups)
    if crossed is not None:
        return crossed
    waits = wait_graph(seen, groups)
    if waits.graph.number_of_edges() or waits.stalled:
        return _stuck(job, seen, groups, waits)
    if any(pending(seen[r], d) for g in groups for r, d in g.digests.items()):
        return _together(job, seen, groups)
    return _late(job, seen, groups)


def judge_calls(job: str, seen: Mapping[int, Seen]) -> Finding | None:
    """What is wrong however long it lasts: ranks that called different operations; else None."""
    groups = groups_of(seen)
    return None if progress_of(seen, groups) is not None else differing_call(job, seen, groups)


def judge_sure(job: str, seen: Mapping[int, Seen]) -> Finding | None:
    """What no long save explains of a job that stands; else None.

    Ranks that wait for each other alone, and ranks that have not completed what their peers have:
    both called what they had to, and whoever saves, evaluates or loads data has not.
    """
    groups = groups_of(seen)
    if progress_of(seen, groups) is not None or differing_call(job, seen, groups) is not None:
        return None
    crossed = crossed_calls(job, seen, groups)
    if crossed is not None:
        return crossed
    waits = wait_graph(seen, groups)
    found = _stuck(job, seen, groups, waits) if waits.stalled else None
    stalled = tuple(sorted(components.rank(job, rank) for rank in waits.stalled))
    if found is None or found.culprits != stalled:
        return None
    return replace(
        found, provisional=True
    )  # a link that is lost may keep the last part from a rank


def _going_on(job: str, seen: Mapping[int, Seen], progress: Progress) -> Finding:
    """The recorders are of different moments: who seems to be behind was only read earlier."""
    where = (
        f"collective {progress.collective} of group {progress.group.desc or progress.group.name}"
    )
    says = {
        progress.later: f"had completed {where}",
        progress.earlier: f"had not begun {where}: its recorder was read before",
    }
    reason = f"the recorders of {job} were read at different moments, and it got on in between"
    return recorder_finding(
        job,
        seen,
        [],
        "unknown",
        reason=reason,
        says=says,
        level=UNEXPLAINED,
        missing=(wanted.DUMPS_AT_ONCE,),
    )


def _stuck(
    job: str, seen: Mapping[int, Seen], groups: Sequence[Group], waits: Waits
) -> Finding | None:
    graph = nx.condensation(waits.graph)
    sinks = [
        sorted(node for node in graph.nodes[each]["members"] if isinstance(node, int))
        for each in sorted(graph)
        if graph.out_degree(each) == 0
    ]
    alone = sorted(ranks[0] for ranks in sinks if len(ranks) == 1)
    cycles = [ranks for ranks in sinks if len(ranks) > 1]
    waiting = sorted(
        node for node in waits.graph if isinstance(node, int) and waits.graph.out_degree(node) > 0
    )
    says = {rank: waits_in(waits, rank) for rank in waiting}
    if not waiting and not any(_is_old(seen[rank]) for rank in waits.stalled):
        return _unfinished(job, seen, sorted(waits.stalled))
    blamed = [rank for rank in alone if rank not in waits.unseen]
    if len(blamed) == 1 and not any(_is_old(seen[rank]) for rank in waiting):
        late = _late(job, seen, groups)
        if late is not None and late.culprits == (components.rank(job, blamed[0]),):
            return late  # who is always last is so again
    if blamed:
        return _blamed(job, seen, groups, waits, blamed=blamed, says=says, waiting=waiting)
    if cycles:
        return in_cycles(job, seen, groups, waits, cycles=cycles, says=says)
    reason = f"the others of {job} wait for {named(alone)}, of whom no recorder was read"
    return recorder_finding(
        job,
        seen,
        [],
        "unknown",
        reason=reason,
        says=says,
        level=UNEXPLAINED,
        missing=_dumps_of(alone),
    )


def _is_old(seen: Seen) -> bool:
    """Whether a rank's own recorder shows that it is stuck, not just busy."""
    operations = (pending(seen, each) for each in seen.groups)
    return any(
        each is not None and each.created_ns and seen.at_ns - each.created_ns >= STUCK_NS_MIN
        for each in operations
    )


def _unfinished(job: str, seen: Mapping[int, Seen], ranks: Sequence[int]) -> Finding:
    """Peers are done with an operation a moment before others and nobody waits: as always."""
    return recorder_finding(
        job,
        seen,
        [],
        "unknown",
        reason=f"{named(ranks)} of {job} had operations under way, and nobody waits for them",
        says=dict.fromkeys(ranks, "had not completed yet what its peers had"),
        level=UNEXPLAINED,
        missing=(wanted.DUMPS_LATER,),
    )


def _blamed(
    job: str,
    seen: Mapping[int, Seen],
    groups: Sequence[Group],
    waits: Waits,
    *,
    blamed: list[int],
    says: dict[int, str],
    waiting: list[int],
) -> Finding:
    """Ranks that are waited for and wait for nobody."""
    gone = [rank for rank in blamed if seen[rank].missing]
    stalled = [rank for rank in blamed if rank in waits.stalled]
    busy = [
        rank
        for rank in blamed
        if rank not in stalled and rank not in gone and _has_pending(rank, seen, groups)
    ]
    if busy and len(busy) == len(blamed):
        return _together(job, seen, groups)
    # a rank without a dump may wait like everybody for one that is shown to hold the job up
    shown = [rank for rank in blamed if rank not in busy and rank not in gone]
    if gone and not stalled and all(_was_with(gone, seen[rank], groups) for rank in shown):
        shown = []
    unshown = gone if shown else []
    blamed = shown or gone
    if len(blamed) > len(waiting) > 0:
        # most did not call what a few wait in: the few are ahead of their program
        reason = f"{named(waiting)} of {job} called an operation that most others never did"
        return recorder_finding(job, seen, [], "desync", reason=reason, says=says, level=RANK_STUCK)
    fault_class: FaultClass = (
        "gpu.stall" if stalled else "unknown" if gone == blamed else "app.stall"
    )
    how = {
        "gpu.stall": "did not complete what their peers completed",
        "app.stall": "did not call what the others wait in",
        "unknown": "wrote no flight-recorder dump, and the others wait",
    }[fault_class]
    no_dump = "it wrote no dump where the others did"
    says |= {rank: no_dump if rank in gone else how for rank in blamed}
    return recorder_finding(
        job,
        seen,
        blamed,
        fault_class,
        reason=f"{named(blamed)} of {job} {how}",
        says=says,
        level=RANK_STUCK,
        missing=(*_MISSING[fault_class], *_dumps_of(unshown)),
        ruled_out=_acquitted(fault_class, blamed, waiting, seen),
    )


def _acquitted(
    fault_class: FaultClass, blamed: Sequence[int], waiting: Sequence[int], seen: Mapping[int, Seen]
) -> list[RuledOut]:
    """What else could hold the others up, and what the recorders say against it."""
    found: list[RuledOut] = []
    victims = [rank for rank in waiting if rank not in blamed]
    if victims:
        because = "they entered the operation that they wait in, and somebody else did not"
        found.append(acquitted(named(victims), because, victims[0], seen))
    if fault_class == "app.stall":
        because = "what a rank has never called cannot be lost on the way"
        found.append(acquitted("the network between the ranks", because, blamed[0], seen))
    if fault_class == "gpu.stall":
        because = "it called what its peers called, and they completed it"
        found.append(acquitted("the program's order of calls", because, blamed[0], seen))
    return found


_MISSING: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu.stall": (wanted.KERNEL_LOG, wanted.GPU_STATE),
    "app.stall": (wanted.PYTHON_STACK,),
    "unknown": (wanted.RANK_ENDED, wanted.KERNEL_LOG),
}


def _dumps_of(ranks: Sequence[int]) -> tuple[str, ...]:
    return tuple(wanted.dump_of(rank) for rank in ranks[:NAMED_MAX])


def _was_with(gone: Sequence[int], seen: Seen, groups: Sequence[Group]) -> bool:
    """Whether the last that a rank called had a member that is gone: gloo calls that completed."""
    newest = max(
        ((at_ns, each.name) for each in seen.groups for _, at_ns in each.arrivals), default=(0, "")
    )
    return any(group.name == newest[1] and set(gone) & set(group.members) for group in groups)


def _has_pending(rank: int, seen: Mapping[int, Seen], groups: Sequence[Group]) -> bool:
    return any(
        rank in group.digests and pending(seen[rank], group.digests[rank]) is not None
        for group in groups
    )


def _together(job: str, seen: Mapping[int, Seen], groups: Sequence[Group]) -> Finding:
    """Everybody arrived, and nobody got on: only what has begun tells whose part is stuck."""
    says = {
        rank: f"stuck in collective {operation.seq} of group {group.desc or group.name}"
        for group in groups
        for rank, digest in group.digests.items()
        if (operation := pending(seen[rank], digest)) is not None
    }
    behind = not_started(seen, groups)
    if behind:
        reason = f"{named(behind)} of {job} did not begin what was given to all"
        says |= dict.fromkeys(behind, "its GPU has not begun what it was given")
        missing = _MISSING["gpu.stall"]
        return recorder_finding(
            job,
            seen,
            behind,
            "gpu.stall",
            reason=reason,
            says=says,
            level=RANK_STUCK,
            missing=missing,
        )
    return recorder_finding(
        job,
        seen,
        [],
        "unknown",
        reason=f"all ranks of {job} arrived at the operation they are stuck in: no one is behind",
        says=says,
        level=UNEXPLAINED,
        missing=(wanted.KERNEL_LOGS, wanted.LINK_COUNTERS),
    )


def _late(job: str, seen: Mapping[int, Seen], groups: Sequence[Group]) -> Finding | None:
    found = late_rank(seen, groups)
    if found is None:
        return None
    reason = (
        f"rank {found.rank} of {job} arrives last, {found.lag_ns // 1_000_000} ms after the"
        f" others, in {found.late_count} of {found.judged_count} collectives"
    )
    says = {found.rank: reason}
    because = "the rank is late before anything of the operation is sent"
    return recorder_finding(
        job,
        seen,
        [found.rank],
        "straggler.host",
        reason=reason,
        says=says,
        level=RANK_LATE,
        missing=(wanted.HOST_PRESSURE, wanted.CLOCK_REASONS),
        ruled_out=[acquitted("the network between the ranks", because, found.rank, seen)],
    )
