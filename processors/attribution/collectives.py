"""What the flight recorders of a job prove together: who holds it up, and how.

Why: all ranks report the same timeout, and most analysers name a victim. How: an operation that
ranks call differently is a fault of the program; else the ranks that are waited for and wait for
nobody are the cause, all of them at once, so that a second culprit does not hide behind the first;
ranks that wait for each other called their groups in another order. Where nothing hangs, a rank
that arrives last time after time is a straggler. Not here: who waits for whom (wait_graph.py).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import networkx as nx
from msgspec.structs import replace

from nemesis.processors.attribution.arrivals import late_rank, not_started, order_breaker
from nemesis.processors.attribution.findings import (
    RANK_LATE,
    RANK_STUCK,
    UNEXPLAINED,
    Finding,
    Proof,
)
from nemesis.processors.attribution.moments import Progress, progress_of
from nemesis.processors.attribution.wait_graph import (
    Group,
    Hub,
    Seen,
    Waits,
    groups_of,
    pending,
    wait_graph,
)
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass, Verdict
from nemesis.schemas.observed import OperationSeen

PROOFS_MAX: Final = 12
VICTIMS_MAX: Final = 64
NAMED_MAX: Final = 8  # ranks named in a sentence
STUCK_NS_MIN: Final = 10_000_000_000  # collectives of training take milliseconds, saves seconds
# operations in which every member must bring the same sizes (NCCL user guide, Collective
# Operations); all_to_all, gather and scatter may differ
_EQUAL_SIZES: Final = frozenset(
    {
        "all_reduce",
        "allreduce",
        "broadcast",
        "reduce",
        "all_gather",
        "_all_gather_base",
        "all_gather_into_tensor",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor",
    }
)


def judge_collectives(job: str, seen: Mapping[int, Seen]) -> Finding | None:
    """What the recorders of a stuck or slow job prove, or None where nothing is wrong."""
    groups = groups_of(seen)
    progress = progress_of(seen, groups)
    if progress is not None:
        return _going_on(job, seen, progress)
    differing = _differing(job, seen, groups)
    if differing is not None:
        return differing
    waits = wait_graph(seen, groups)
    if waits.graph.number_of_edges() or waits.stalled:
        return _stuck(job, seen, groups, waits)
    if any(pending(seen[r], d) for g in groups for r, d in g.digests.items()):
        return _together(job, seen, groups)
    return _late(job, seen, groups)


def judge_calls(job: str, seen: Mapping[int, Seen]) -> Finding | None:
    """What is wrong however long it lasts: ranks that called different operations; else None."""
    groups = groups_of(seen)
    return None if progress_of(seen, groups) is not None else _differing(job, seen, groups)


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
    return _finding(
        job,
        seen,
        [],
        "unknown",
        reason=reason,
        says=says,
        level=UNEXPLAINED,
        missing=("dumps of all ranks taken at one moment",),
    )


def _call(operation: OperationSeen) -> tuple[object, ...]:
    sizes = (operation.input_sizes, operation.output_sizes)
    return (operation.op, operation.dtypes, sizes if operation.op in _EQUAL_SIZES else ())


def _differing(job: str, seen: Mapping[int, Seen], groups: Sequence[Group]) -> Finding | None:
    """The rank that called another operation than the rest of its group."""
    for group in groups:
        calls: dict[int, dict[int, tuple[object, ...]]] = {}
        for rank, digest in group.digests.items():
            operation = digest.first_unfinished
            if operation is not None and not operation.p2p and operation.op:
                calls.setdefault(operation.seq, {})[rank] = _call(operation)
        for collective, by_rank in sorted(calls.items()):
            counts = Counter(by_rank.values())
            if len(counts) < 2:
                continue
            (common, count), (_, second) = counts.most_common(2)
            odd = sorted(rank for rank, call in by_rank.items() if call != common)
            where = f"collective {collective} of group {group.desc or group.name}"
            if count == second or len(odd) * 2 >= len(by_rank):
                odd = []
            reason = (
                f"{_ranks(odd)} of {job} called another operation than the rest in {where}"
                if odd
                else f"ranks of {job} called different operations in {where}"
            )
            says = {rank: f"its {where} is {_spelled(call)}" for rank, call in by_rank.items()}
            found = _finding(job, seen, odd, "desync", reason=reason, says=says, level=RANK_STUCK)
            return replace(found, of_its_own=True)  # no hardware chooses what a program calls
    return None


def _spelled(call: tuple[object, ...]) -> str:
    name, dtypes, sizes = call
    return f"{name} of {sizes} {dtypes}" if sizes else f"{name} {dtypes}"


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
    says = {rank: _waits_in(waits, rank) for rank in waiting}
    if not waiting and not any(_is_old(seen[rank]) for rank in waits.stalled):
        return _unfinished(job, seen, sorted(waits.stalled))
    blamed = [rank for rank in alone if rank not in waits.unseen]
    if blamed:
        return _blamed(job, seen, groups, waits, blamed=blamed, says=says, waiting=waiting)
    if cycles:
        breakers = [order_breaker(ranks, seen) for ranks in cycles]
        odd = sorted(rank for rank in breakers if rank is not None)
        ring = _ranks(cycles[0])
        reason = f"{ring} of {job} wait for each other in different groups" + (
            f": {_ranks(odd)} broke the order of its own earlier steps" if odd else ""
        )
        return _finding(job, seen, odd, "desync", reason=reason, says=says, level=RANK_STUCK)
    reason = f"the others of {job} wait for {_ranks(alone)}, of whom no recorder was read"
    return _finding(
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
    return _finding(
        job,
        seen,
        [],
        "unknown",
        reason=f"{_ranks(ranks)} of {job} had operations under way, and nobody waits for them",
        says=dict.fromkeys(ranks, "had not completed yet what its peers had"),
        level=UNEXPLAINED,
        missing=("dumps of all ranks taken a minute later",),
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
        reason = f"{_ranks(waiting)} of {job} called an operation that most others never did"
        return _finding(job, seen, [], "desync", reason=reason, says=says, level=RANK_STUCK)
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
    return _finding(
        job,
        seen,
        blamed,
        fault_class,
        reason=f"{_ranks(blamed)} of {job} {how}",
        says=says,
        level=RANK_STUCK,
        missing=(*_MISSING[fault_class], *_dumps_of(unshown)),
    )


_MISSING: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu.stall": ("the kernel log of its node", "nvidia-smi -q of its GPU"),
    "app.stall": ("the Python stack of the rank (py-spy dump)",),
    "unknown": ("the rank's error output and exit status", "the kernel log of its node"),
}


def _dumps_of(ranks: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"the flight-recorder dump of rank {rank}" for rank in ranks[:NAMED_MAX])


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
        reason = f"{_ranks(behind)} of {job} did not begin what was given to all"
        says |= dict.fromkeys(behind, "its GPU has not begun what it was given")
        missing = _MISSING["gpu.stall"]
        return _finding(
            job,
            seen,
            behind,
            "gpu.stall",
            reason=reason,
            says=says,
            level=RANK_STUCK,
            missing=missing,
        )
    return _finding(
        job,
        seen,
        [],
        "unknown",
        reason=f"all ranks of {job} arrived at the operation they are stuck in: no one is behind",
        says=says,
        level=UNEXPLAINED,
        missing=("the kernel logs of the nodes", "NIC and NVLink counters"),
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
    return _finding(
        job,
        seen,
        [found.rank],
        "straggler.host",
        reason=reason,
        says=says,
        level=RANK_LATE,
        missing=("CPU pressure and run queue of its host", "clock event reasons of its GPU"),
    )


def _finding(
    job: str,
    seen: Mapping[int, Seen],
    blamed: Sequence[int],
    fault_class: FaultClass,
    *,
    reason: str,
    says: Mapping[int, str],
    level: int,
    missing: tuple[str, ...] = (),
) -> Finding:
    guilty = set(blamed)
    ordered = sorted((rank for rank in says if rank in seen), key=lambda r: (r not in guilty, r))
    victims = [rank for rank in ordered if rank not in guilty] if guilty else []
    without: Verdict = "insufficient" if level == UNEXPLAINED else "class-only"
    return Finding(
        verdict="attributed" if guilty else without,
        fault_class=fault_class,
        reason=reason,
        confidence_ppm=(850_000 if len(guilty) <= 2 else 700_000) if guilty else 400_000,
        level=level,
        culprits=tuple(components.rank(job, rank) for rank in sorted(guilty)),
        victims=tuple(components.rank(job, rank) for rank in victims[:VICTIMS_MAX]),
        proofs=tuple(
            Proof(seen[rank].fact, seen[rank].seq, f"rank {rank}: {says[rank]}")
            for rank in ordered[:PROOFS_MAX]
        ),
        missing=missing,
        jobs=(job,),
    )


def _waits_in(waits: Waits, rank: int) -> str:
    for target in waits.graph.successors(rank):
        if isinstance(target, Hub):
            return f"waits in collective {target.collective} of group {target.group}"
        return f"waits for a transfer with rank {target}"
    return ""


def _ranks(ranks: Collection[int]) -> str:
    named = ", ".join(str(rank) for rank in sorted(ranks)[:NAMED_MAX])
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
