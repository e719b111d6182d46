"""What the ranks of a node spent in collectives, as somebody timed them beside the program."""

from typing import Annotated

import msgspec

from nemesis.schemas.observed import Count, Index, Ns, Observation


class GroupTimed(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """How long collectives of one communicator took on one of its members, of those looked at."""

    communicator: str
    """As NCCL names it."""
    member: Index
    """The rank within it."""
    size: Index
    """How many members it has."""
    rank: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = -1
    """Of the job; -1: the process is not known."""
    last_number: Count = 0
    """Of the newest operation: what two facts differ by is how many there were."""
    timed_count: Count = 0
    """How many of them were looked at; the rest was passed over."""
    total_ns: Ns = 0
    longest_ns: Ns = 0
    size_bytes: Count = 0
    """Of the messages, together."""


class CollectivesTimed(Observation, kw_only=True, frozen=True):
    """What the ranks of this node spent in collectives, since the last such fact, once a minute."""

    job: str = ""
    groups: tuple[GroupTimed, ...] = ()
