"""Ranks that wait for each other, because one called its groups in another order than the rest.

Why: each of them waits in a call of its own, all look alike, and an analyser that takes one group
at a time reports a missing rank for each. How: a GPU runs its collectives in the order in which
they were enqueued, so a rank stands in what has begun there, else in the oldest; what it has
enqueued behind that nobody finds it in. Ranks that wait so for each other and for nobody else are a
cycle. Of its members the one is named whose order is not that of most who call both groups, or,
where there is no majority, not that of its own earlier steps. Not here: who is waited for and waits
for nobody (collectives.py).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import networkx as nx

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import RANK_STUCK, Finding
from nemesis.processors.attribution.recorder_findings import (
    NAMED_MAX,
    acquitted,
    named,
    recorder_finding,
    waits_in,
)
from nemesis.processors.attribution.wait_graph import (
    Group,
    Hub,
    Seen,
    Waits,
    not_arrived,
    pending,
    stuck_in,
)
from nemesis.schemas.observed import GroupDigest

VOTERS_MIN: Final = 3  # of two that differ, neither is the odd one


def crossed_calls(job: str, seen: Mapping[int, Seen], groups: Sequence[Group]) -> Finding | None:
    """What ranks that wait for each other alone prove, or None where there are none."""
    stands = {rank: list(_stands_in(each)) for rank, each in seen.items()}
    graph = _waits(seen, groups, stands)
    # a collective needs all its members, so a cycle holds whoever else it waits for unread
    whole = nx.condensation(graph.subgraph(node for node in graph if _is_read(node, seen)))
    cycles = [
        sorted(node for node in whole.nodes[each]["members"] if isinstance(node, int))
        for each in sorted(whole)
        if whole.out_degree(each) == 0
    ]
    cycles = [ranks for ranks in cycles if len(ranks) > 1]
    if not cycles:
        return None
    waits = Waits(graph, frozenset(), frozenset())
    waiting = [node for node in graph if isinstance(node, int) and graph.out_degree(node) > 0]
    says = {rank: waits_in(waits, rank) for rank in sorted(waiting)}
    return in_cycles(job, seen, groups, waits, cycles=cycles, says=says)


def in_cycles(
    job: str,
    seen: Mapping[int, Seen],
    groups: Sequence[Group],
    waits: Waits,
    *,
    cycles: Sequence[Sequence[int]],
    says: Mapping[int, str],
) -> Finding:
    """Ranks that wait for each other, and of each cycle the one that left the order."""
    breakers = [
        _outvoted(ranks, seen, groups, waits) or _breaker(ranks, seen, waits) for ranks in cycles
    ]
    odd = sorted(rank for each in breakers for rank in each)
    rings = "; ".join(" -> ".join(map(str, _ring(waits, ranks))) for ranks in cycles[:NAMED_MAX])
    reason = f"{named(cycles[0])} of {job} wait for each other in different groups ({rings})"
    if odd:
        reason += f": {named(odd)} called them in another order than the rest"
    because = "each of them waits in a call of its own for one that the other has not made"
    ruled_out = [acquitted("the GPUs and the network of these ranks", because, cycles[0][0], seen)]
    kept = sorted(rank for ranks in cycles for rank in ranks if rank not in odd)
    if odd and kept:
        because = "the order of its calls is that of the others, or of its own earlier steps"
        ruled_out.append(acquitted(named(kept), because, kept[0], seen))
    return recorder_finding(
        job,
        seen,
        odd,
        "desync",
        reason=reason,
        says=says,
        level=RANK_STUCK,
        missing=() if odd else (wanted.PYTHON_STACK,),
        ruled_out=ruled_out,
    )


def _stands_in(seen: Seen) -> Iterator[Hub]:
    """The collectives that a rank's GPU is in; all that are open where nothing tells."""
    operations = [(each.name, pending(seen, each)) for each in seen.groups]
    waits = [(name, each) for name, each in operations if each is not None]
    begun = [(name, each) for name, each in waits if each.started]
    if not begun and all(each.created_ns for _, each in waits):
        begun = sorted(waits, key=lambda each: (each[1].created_ns, each[0]))[:1]
    yield from (Hub(name, each.seq) for name, each in begun or waits if not each.p2p)


def _waits(
    seen: Mapping[int, Seen], groups: Sequence[Group], stands: Mapping[int, Sequence[Hub]]
) -> "nx.DiGraph[int | Hub]":
    """Edges rank to what it stands in, and from there to all who are not in it yet."""
    graph: nx.DiGraph[int | Hub] = nx.DiGraph()
    for group in groups:
        for collective, stuck in stuck_in(group, seen):
            hub = Hub(group.name, collective)
            here = {rank: each for rank, each in stuck.items() if hub in stands[rank]}
            if not here:
                continue
            due = set(not_arrived(group, collective, here, seen))
            due |= {
                rank
                for rank, digest in group.digests.items()
                if rank not in here and _is_open(seen[rank], digest, collective)
            }
            if due:
                graph.add_edges_from((rank, hub) for rank in here)
                graph.add_edges_from((hub, rank) for rank in sorted(due))
    return graph


def _is_open(seen: Seen, digest: GroupDigest, collective: int) -> bool:
    """Whether a rank has something open in the group that comes no later than this collective."""
    operation = pending(seen, digest)
    return operation is not None and not operation.p2p and operation.seq <= collective


def _is_read(node: int | Hub, seen: Mapping[int, Seen]) -> bool:
    """Whether it is an operation, or a rank of whom something is known."""
    return isinstance(node, Hub) or node in seen


def _hubs(ranks: Sequence[int], waits: Waits) -> list[Hub]:
    """What the members of a cycle stand in."""
    members = set(ranks)
    return sorted(
        {
            hub
            for rank in ranks
            for hub in waits.graph.successors(rank)
            if isinstance(hub, Hub) and members & set(waits.graph.successors(hub))
        }
    )


def _outvoted(
    ranks: Sequence[int], seen: Mapping[int, Seen], groups: Sequence[Group], waits: Waits
) -> list[int]:
    """The one rank of a cycle that calls two groups otherwise than most who call both.

    Whoever is in one of the two groups calls others of the same two dimensions (Megatron-LM,
    core/parallel_state.py): who has passed the one and is in the other tells the order.
    """
    hubs = _hubs(ranks, waits)
    if len(hubs) != 2:
        return []
    names = {hub.group for hub in hubs}
    own = [_of_dimension(hub.group, groups) for hub in hubs]
    numbers = [hub.collective for hub in hubs]
    called = {rank for group in groups if group.name in names for rank in group.digests}
    firsts = {
        rank: first
        for rank in sorted(called)
        if (first := _called_first(seen[rank], [each.get(rank) for each in own], numbers)) >= 0
    }
    sides = [[rank for rank, first in firsts.items() if first == each] for each in (0, 1)]
    few = min(sides, key=len)
    if len(firsts) < VOTERS_MIN or len(few) != 1 or few[0] not in ranks:
        return []
    return few


def _of_dimension(name: str, groups: Sequence[Group]) -> dict[int, GroupDigest]:
    """By rank: its group of the same dimension as the one of that name: that one, or its like."""
    (group,) = (each for each in groups if each.name == name)
    alike = (each for each in groups if each.desc and each.desc == group.desc)
    return {rank: digest for each in (*alike, group) for rank, digest in each.digests.items()}


def _called_first(seen: Seen, own: Sequence[GroupDigest | None], numbers: Sequence[int]) -> int:
    """Which of two collectives a rank called first, the one that it stands in if it has not passed
    the other; -1: it does not tell."""
    stands = set(_stands_in(seen))
    inside = [
        at
        for at, (digest, number) in enumerate(zip(own, numbers, strict=True))
        if digest is not None and Hub(digest.name, number) in stands
    ]
    if len(inside) != 1:
        return -1
    at = inside[0]
    other = own[1 - at]
    if other is None:
        return -1
    return 1 - at if _has_passed(seen, other, numbers[1 - at]) else at


def _has_passed(seen: Seen, digest: GroupDigest, collective: int) -> bool:
    operation = pending(seen, digest)
    if operation is None or operation.p2p:
        return digest.last_completed >= collective
    return operation.seq > collective


def _breaker(ranks: Sequence[int], seen: Mapping[int, Seen], waits: Waits) -> list[int]:
    """The one rank of a cycle whose call does not follow on the one before as it used to."""
    names = {hub.group for hub in _hubs(ranks, waits)}
    odd = [rank for rank in ranks if rank in seen and _breaks_order(seen[rank], names)]
    return odd if len(odd) == 1 else []


def _breaks_order(seen: Seen, names: Collection[str]) -> bool:
    """Of these groups alone, and since all of them are known: a digest keeps the newest calls."""
    arrivals = {each.name: each.arrivals for each in seen.groups if each.name in names}
    since_ns = max((each[0][1] for each in arrivals.values() if each), default=0)
    calls = sorted(
        (at_ns, name) for name, each in arrivals.items() for _, at_ns in each if at_ns >= since_ns
    )
    stuck_ns = min(_open_since_ns(seen, names), default=0)
    before = {(one[1], two[1]) for one, two in pairwise(calls) if two[0] < stuck_ns}
    after = {(one[1], two[1]) for one, two in pairwise(calls) if two[0] >= stuck_ns}
    return bool(before and after - before)


def _open_since_ns(seen: Seen, names: Collection[str]) -> Iterator[int]:
    """When what is open in these groups was called."""
    for digest in seen.groups:
        operation = pending(seen, digest) if digest.name in names else None
        if operation is not None:
            yield dict(digest.arrivals).get(operation.seq, operation.created_ns)


def _ring(waits: Waits, ranks: Sequence[int]) -> list[int]:
    """A way through the waiting that comes back to where it began: its ranks, the first twice."""
    edges = nx.find_cycle(waits.graph, ranks[0])
    ring = [node for node, _ in edges if isinstance(node, int)]
    first = ring.index(min(ring))
    return [*ring[first:], *ring[: first + 1]]
