"""Who waits for whom: edges from a rank through the operation it is stuck in to those who are due.

Why: when a job hangs, every rank is stuck in something, and almost all of them are victims; who is
waited for and waits for nobody is the cause. PyTorch's own analyser looks at one group at a time
and so names victims of other groups beside the cause. How: a rank stuck in operation s of a group
waits for members that have not enqueued s; if all have, for those stuck in an earlier one. A rank
whose peers completed s while it has not is stuck in itself. Counters of sends and receives differ
between pipeline stages when all is well, so of those only the pending operation itself counts.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import networkx as nx

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.observed import GroupDigest, OperationSeen
from nemesis.schemas.rank_ranges import RANKS_MAX, count_ranks, parse_ranks

HUBS_MAX: Final = 64  # ranks of a hung group are stuck in one or two operations
LISTED_MAX: Final = 1 << 21  # of all groups: 16 of each rank of a job of 131,072
PEERS_MAX: Final = 8  # of one batch; a pipeline stage has two neighbours
UNSEEN_MAX: Final = 8  # enough to ask for; a broken digest may list a million
GATHERING: Final = frozenset(
    {
        "all_reduce",
        "allreduce",
        "all_gather",
        "_all_gather_base",
        "all_gather_into_tensor",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor",
    }
)
"""What needs a part of equal size from each member (NCCL user guide, Collective Operations)."""
# completes nowhere before every member brought its part; a broadcast's root and the other ranks of
# a reduction are done before that
_OF_ALL: Final = GATHERING | {"all_to_all", "all_to_allv", "barrier"}
_P2P: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})\Z")


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One rank's flight recorder, or that it wrote none."""

    fact: str
    seq: int
    node: str
    at_ns: int
    error_ns: int
    entry_count: int
    missing: bool
    groups: tuple[GroupDigest, ...]


class Group(NamedTuple):
    """One process group as its members' recorders show it."""

    name: str
    desc: str
    members: tuple[int, ...]
    """Ascending; of those that no recorder was read of only the first few."""
    listed: tuple[int, ...]
    """All of them, ascending, as torch counts the ranks of a group."""
    digests: Mapping[int, GroupDigest]


class Hub(NamedTuple):
    """An operation that somebody is stuck in."""

    group: str
    collective: int


class Waits(NamedTuple):
    """The graph, and those it cannot show."""

    graph: "nx.DiGraph[int | Hub]"
    stalled: frozenset[int]
    """Ranks that have not completed what their peers have."""
    unseen: frozenset[int]
    """Members of groups of whom nothing is known, not even that they wrote no dump."""


def groups_of(seen: Mapping[int, Seen]) -> list[Group]:
    """The groups of a job, by name."""
    digests: dict[str, dict[int, GroupDigest]] = {}
    for rank, each in sorted(seen.items()):
        for group in each.groups:
            digests.setdefault(group.name, {})[rank] = group
    groups: list[Group] = []
    left_count = LISTED_MAX
    stated = {name: _stated(own) for name, own in digests.items()}
    # the smallest first: what a broken digest states must not keep the others from being read
    for name, (count, ranks) in sorted(stated.items(), key=lambda each: (each[1][0], each[0])):
        own = digests[name]
        listed = parse_ranks(ranks) if count <= left_count else ()
        left_count -= len(listed)
        listed = listed or _took_part(own, seen)
        unseen = [rank for rank in listed if rank not in seen][:UNSEEN_MAX]
        members = tuple(sorted([*unseen, *(rank for rank in listed if rank in seen)]))
        groups.append(Group(name, _described(own), members, listed, own))
    return sorted(groups, key=lambda group: group.name)


def _described(digests: Mapping[int, GroupDigest]) -> str:
    return next((each.desc for each in digests.values() if each.desc), "")


def _stated(digests: Mapping[int, GroupDigest]) -> tuple[int, str]:
    """(how many, which) ranks the group's own configuration lists, as the first that does says."""
    for digest in digests.values():
        with suppress(BadNameError):
            count = count_ranks(digest.ranks)
            if 0 < count <= RANKS_MAX:
                return count, digest.ranks
    return 0, ""


def _took_part(digests: Mapping[int, GroupDigest], seen: Mapping[int, Seen]) -> tuple[int, ...]:
    """Its members where no configuration says: those who took part, or wrote no dump."""
    gone = {rank for rank, each in seen.items() if each.missing}
    return tuple(sorted(digests.keys() | gone))


def pending(seen: Seen, digest: GroupDigest) -> OperationSeen | None:
    """The operation of a group that a rank is stuck in.

    Entries say it. Where a digest has none at all, counters alone tell, and not the operation.
    """
    if digest.first_unfinished is not None:
        return digest.first_unfinished
    if seen.entry_count == 0 and -1 < digest.last_completed < digest.last_enqueued:
        return OperationSeen(seq=digest.last_completed + 1, op="")
    return None


def enqueued(digest: GroupDigest) -> int:
    """The last collective that a rank has enqueued in a group."""
    known = [digest.last_enqueued, *(number for number, _ in digest.arrivals)]
    operation = digest.first_unfinished
    if operation is not None and not operation.p2p:
        known.append(operation.seq)
    return max(known)


def wait_graph(seen: Mapping[int, Seen], groups: list[Group]) -> Waits:
    """Edges rank to operation, operation to the ranks it lacks."""
    graph: nx.DiGraph[int | Hub] = nx.DiGraph()
    stalled: set[int] = set()
    for group in groups:
        for collective, stuck in stuck_in(group, seen):
            hub = Hub(group.name, collective)
            due = not_arrived(group, collective, stuck, seen)
            done = _peers_done(group, collective, seen)
            if done and _was_whole(group, collective, stuck, seen):
                due = []
            done = [] if due else done
            first_ns = min(done, default=None)
            stalled.update(rank for rank in stuck if _is_behind(seen[rank], first_ns))
            if not due and not done:
                due = _stuck_before(group, collective, seen)
            if due:
                graph.add_edges_from((rank, hub) for rank in stuck)
                graph.add_edges_from((hub, member) for member in due)
    # who waits for a member that never arrived may lack what its peers completed without it
    stalled = {rank for rank in stalled if not _waits(graph, rank)}
    graph.add_nodes_from(stalled)
    _add_transfers(graph, stalled, seen, groups)
    known = seen.keys()
    unseen = frozenset(n for n in graph if isinstance(n, int) and n not in known)
    return Waits(graph, frozenset(stalled), unseen)


def _waits(graph: "nx.DiGraph[int | Hub]", rank: int) -> bool:
    return rank in graph and graph.out_degree(rank) > 0


def stuck_in(group: Group, seen: Mapping[int, Seen]) -> list[tuple[int, dict[int, OperationSeen]]]:
    """The ranks stuck in each collective of a group, the earliest collectives first."""
    stuck: dict[int, dict[int, OperationSeen]] = {}
    for rank, digest in group.digests.items():
        operation = pending(seen[rank], digest)
        if operation is not None and not operation.p2p:
            stuck.setdefault(operation.seq, {})[rank] = operation
    return sorted(stuck.items())[:HUBS_MAX]


def not_arrived(
    group: Group, collective: int, stuck: Mapping[int, OperationSeen], seen: Mapping[int, Seen]
) -> list[int]:
    """Members that have not enqueued the collective, as far as their recorders can tell."""
    began_ns = max(each.created_ns - seen[rank].error_ns for rank, each in stuck.items())
    due: list[int] = []
    for member in group.members:
        other = seen.get(member)
        digest = group.digests.get(member)
        if other is None or other.missing:
            due.append(member)
        elif digest is not None and enqueued(digest) < collective:
            # a recorder that was read before the operation began proves nothing about it
            due += [member] if other.at_ns + other.error_ns >= began_ns else []
    return due


def _peers_done(group: Group, collective: int, seen: Mapping[int, Seen]) -> list[int]:
    """When the recorders of members that completed the collective were read, at the earliest."""
    return [
        seen[member].at_ns - seen[member].error_ns
        for member, digest in group.digests.items()
        if digest.last_completed >= collective
    ]


def _was_whole(
    group: Group, collective: int, stuck: Mapping[int, OperationSeen], seen: Mapping[int, Seen]
) -> bool:
    """Whether all members have called a collective, also those of whom no recorder was read.

    Nobody completes it before that and waits in a later one; alone, that it is over may also mean
    that it failed (gloo).
    """
    began = all(each.op in _OF_ALL and each.started for each in stuck.values())
    since_ns = max(each.created_ns for each in stuck.values())
    done = (rank for rank, each in group.digests.items() if each.last_completed >= collective)
    later = (pending(seen[rank], each) for rank in done for each in seen[rank].groups)
    return began and any(each is not None and each.created_ns > since_ns for each in later)


def _is_behind(own: Seen, done_ns: int | None) -> bool:
    """Whether a peer was done already when this rank's recorder was read."""
    return done_ns is not None and done_ns <= own.at_ns + own.error_ns


def _stuck_before(group: Group, collective: int, seen: Mapping[int, Seen]) -> list[int]:
    """Members that are stuck in an earlier operation of the group."""
    stuck: list[int] = []
    for member, digest in group.digests.items():
        operation = pending(seen[member], digest)
        if operation is not None and not operation.p2p and operation.seq < collective:
            stuck.append(member)
    return stuck


def _add_transfers(
    graph: "nx.DiGraph[int | Hub]",
    stalled: set[int],
    seen: Mapping[int, Seen],
    groups: list[Group],
) -> None:
    """Sends and receives: only for ranks that no collective explains, and only if unanswered."""
    waiting = {node for node in graph if isinstance(node, int) and graph.out_degree(node) > 0}
    transfers = list(_transfers(seen, groups))
    posted = {(rank, peer) for rank, peer in transfers}
    for rank, peer in transfers:
        if rank not in waiting and rank not in stalled and (peer, rank) not in posted:
            graph.add_edge(rank, peer)


def _transfers(seen: Mapping[int, Seen], groups: list[Group]) -> Iterator[tuple[int, int]]:
    """(rank, peer) of every pending send and receive."""
    for group in groups:
        for rank, digest in group.digests.items():
            operation = pending(seen[rank], digest)
            if operation is not None and operation.p2p:
                peers = operation.peers[:PEERS_MAX] or _named_peer(operation, group)
                yield from ((rank, peer) for peer in peers if peer != rank)


def _named_peer(operation: OperationSeen, group: Group) -> tuple[int, ...]:
    """Of digests that do not say: the name counts places in the group."""
    match = _P2P.match(operation.op)
    place = int(match[4]) if match else len(group.listed)
    return group.listed[place : place + 1]
