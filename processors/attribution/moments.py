"""Whether the recorders of a job show one moment, or were read while it went on.

Why: of a job that trains on, dumps taken a moment apart look as if some ranks were behind, and a
healthy one gets the blame. How: what all members must take part in cannot complete anywhere before
a member has begun it; where that seems so, the member's recorder was read earlier, and the job got
on in between. Recorders that say themselves that they were read earlier are no news.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution.wait_graph import Group, Seen, enqueued, pending
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
    newest = {
        rank: max((at_ns for group in each.groups for _, at_ns in group.arrivals), default=0)
        for rank, each in seen.items()
    }
    for group in groups:
        passed = {rank: _passed(each, newest[rank]) for rank, each in group.digests.items()}
        later = max(passed, key=lambda rank: (passed[rank], -rank), default=-1)
        for rank, digest in group.digests.items():
            begun = _begun(seen[rank], digest)
            if begun >= passed[later] or _says_earlier(seen[rank], seen[later]):
                continue
            if not _is_rooted(begun, group.digests, seen):
                return Progress(rank, later, passed[later], group)
    return None


def _passed(digest: GroupDigest, newest_ns: int) -> int:
    """The last collective after which the rank went on to something else, -1 if there is none.

    Of the very last nothing shows that it succeeded: gloo calls what failed completed. Sends and
    receives count in pairs, and are not among the arrivals.
    """
    done = digest.last_completed
    return max((n for n, at_ns in digest.arrivals if n <= done and at_ns < newest_ns), default=-1)


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
