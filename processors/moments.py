"""Whether the recorders of a job show one moment, or were read while it went on.

Why: of a job that trains on, dumps taken a moment apart look as if some ranks were behind, and a
healthy one gets the blame. How: what all members must take part in cannot complete anywhere before
a member has begun it; where that seems so, the member's recorder was read earlier, and the job got
on in between. Recorders that say themselves that they were read earlier are no news.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.wait_graph import Group, Seen, enqueued, pending
from nemesis.schemas.observed import GroupDigest

# a root may be done with these before the others have called them (NCCL user guide, Collective
# Operations; gloo alike)
_ROOTED: Final = frozenset(
    {"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "scatter", "gather"}
)


class Progress(NamedTuple):
    """The job got on between the reading of two recorders."""

    earlier: int
    """The rank whose recorder was read first."""
    later: int
    collective: int
    group: Group


def progress_of(seen: Mapping[int, Seen], groups: Sequence[Group]) -> Progress | None:
    """A collective that one rank had completed and another had not begun, or None."""
    for group in groups:
        if not group.digests:
            continue
        later = max(group.digests, key=lambda rank: (group.digests[rank].last_completed, -rank))
        collective = group.digests[later].last_completed
        if collective not in dict(group.digests[later].arrivals):
            continue  # sends and receives, which count in pairs, not in the group
        for rank, digest in group.digests.items():
            begun = _begun(seen[rank], digest)
            if begun >= collective or _says_earlier(seen[rank], seen[later]):
                continue
            if not _is_rooted(begun, group.digests, seen):
                return Progress(rank, later, collective, group)
    return None


def _begun(seen: Seen, digest: GroupDigest) -> int:
    """The last collective that a rank can have begun: those of a group run one after the other."""
    operation = pending(seen, digest)
    return enqueued(digest) if operation is None or operation.p2p else operation.seq


def _says_earlier(one: Seen, other: Seen) -> bool:
    return one.at_ns + one.error_ns < other.at_ns - other.error_ns


def _is_rooted(after: int, digests: Mapping[int, GroupDigest], seen: Mapping[int, Seen]) -> bool:
    """Whether somebody is stuck after that number, or in it, in what its root need not wait for."""
    stuck = [pending(seen[rank], digest) for rank, digest in digests.items()]
    return any(each is not None and each.seq >= after and each.op in _ROOTED for each in stuck)
