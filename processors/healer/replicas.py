"""Which ranks hold one copy of a model together, so that they go or stay together.

Ranks are numbered as Megatron-LM numbers them, fastest first: tensor, context, data, pipeline
(github.com/NVIDIA/Megatron-LM, megatron/core/parallel_state.py, order "tp-cp-ep-dp-pp"); expert
parallelism runs over the combined context and data axis. What is closed under all of these but
data parallelism is a replica: losing one of its ranks loses all of it.
"""

from collections.abc import Collection
from math import lcm

from nemesis.schemas.operated import JobSubmitted


def world_of(job: JobSubmitted) -> int:
    """How many ranks were submitted."""
    return len(job.node_names) * job.ranks_per_node


def replica_count(job: JobSubmitted) -> int:
    """How many replicas the job was submitted with; 1 where its degrees do not divide it."""
    size = _replica_size(job)
    world = world_of(job)
    return world // size if size and world and world % size == 0 else 1


def replica_of(job: JobSubmitted, rank: int) -> int:
    """The replica that a rank belongs to."""
    count = replica_count(job)
    if count == 1:
        return 0
    columns = count * lcm(job.cp, job.ep)  # ranks on the combined context and data axis
    return rank // job.tp % columns // lcm(job.cp, job.ep)


def replicas_of(job: JobSubmitted, ranks: Collection[int]) -> frozenset[int]:
    """The replicas that these ranks belong to."""
    return frozenset(replica_of(job, rank) for rank in ranks)


def _replica_size(job: JobSubmitted) -> int:
    return job.tp * job.pp * lcm(job.cp, job.ep)
