"""Which ranks of a job hold one copy of a model together, so that they go or stay together.

The rule is schemas/layout.py's, which the ranks themselves make their groups by.
"""

from collections.abc import Collection

from nemesis.schemas.layout import Degrees
from nemesis.schemas.operated import JobSubmitted


def world_of(job: JobSubmitted) -> int:
    """How many ranks were submitted."""
    return len(job.node_names) * job.ranks_per_node


def degrees_of(job: JobSubmitted) -> Degrees:
    """As submitted."""
    return Degrees(tp=job.tp, cp=job.cp, pp=job.pp, ep=job.ep)


def replica_count(job: JobSubmitted) -> int:
    """How many replicas the job was submitted with; 1 where its degrees do not divide it."""
    return degrees_of(job).replica_count(world_of(job))


def replica_of(job: JobSubmitted, rank: int) -> int:
    """The replica that a rank belongs to."""
    return degrees_of(job).replica_of(rank, world_of(job))


def replicas_of(job: JobSubmitted, ranks: Collection[int]) -> frozenset[int]:
    """The replicas that these ranks belong to."""
    return frozenset(replica_of(job, rank) for rank in ranks)
