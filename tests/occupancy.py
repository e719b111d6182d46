"""Clusters that are in use: what a scheduler's earlier jobs still hold.

Jobs of 1 to 32 nodes, each doubling half as often, fill the cluster to 90 %; then jobs end in no
order until the wanted share is taken. So holes are those that the scheduler left, not dice of ours.
All of it is assumed: no public trace says which nodes jobs had.
"""

from collections.abc import Callable
from random import Random

from nemesis.processors.placement.baselines.kubernetes import Host, Pod, kubernetes
from nemesis.processors.placement.baselines.kueue import kueue
from nemesis.processors.placement.ground import Gang, ground_of
from nemesis.processors.topology.pool import Pool

SIZES = [1 << step for step in range(6) for _ in range(32 >> step)]
"""Nodes of a job."""
FULL = 0.9
CPU_MILLI, MEMORY_MIB = 192_000, 2_000_000
"""Of a node; its pods ask for nine tenths."""

Take = Callable[[int], list[int]]
"""Nodes for a job of so many."""


def left_by_kubernetes(pool: Pool, share: float, dice: Random) -> Pool:
    """Jobs of whole nodes that the default scheduler of Kubernetes placed."""
    hosts, start = [host(gpus) for gpus in pool.gpu_counts], 0

    def take(size: int) -> list[int]:
        nonlocal hosts, start
        bound = kubernetes(
            hosts, [pod(pool, pool.gpu_counts[0])] * size, dice.randrange, start=start
        )
        hosts, start = list(bound.hosts), bound.start
        return list(bound.nodes)

    return _left(pool, share, dice, take)


def left_by_kueue(pool: Pool, share: float, dice: Random) -> Pool:
    """Jobs that Kueue placed by best fit, each on as few leaves as it could."""
    ground, names = ground_of(pool)
    place = {name: at for at, name in enumerate(pool.nodes)}
    free = [[place[name] for name in members] for members in names]

    def take(size: int) -> list[int]:
        nonlocal ground
        placement = kueue(ground, Gang(size))
        ground = ground.less(placement)
        return [free[part.shelf].pop() for part in placement for _ in range(part.nodes)]

    return _left(pool, share, dice, take)


def _left(pool: Pool, share: float, dice: Random, take: Take) -> Pool:
    count, jobs, taken = len(pool.nodes), list[list[int]](), 0
    while taken < FULL * count:
        size = min(dice.choice(SIZES), count - taken)
        jobs.append(take(size))
        taken += size
    while taken > share * count:
        taken -= len(jobs.pop(dice.randrange(len(jobs))))
    return pool.without({pool.nodes[node] for nodes in jobs for node in nodes})


def host(free: int) -> Host:
    """A node as Kubernetes sees it, with so many free GPUs: all of its own, or none."""
    used = 0 if free else 9
    return Host(
        gpus_free=free,
        cpu_milli=CPU_MILLI,
        memory_mib=MEMORY_MIB,
        cpu_milli_used=CPU_MILLI * used // 10,
        memory_mib_used=MEMORY_MIB * used // 10,
    )


def pod(pool: Pool, gpus: int) -> Pod:
    """A pod of so many GPUs, with their share of its node."""
    whole = 10 * pool.gpu_counts[0]
    return Pod(
        gpus=gpus,
        cpu_milli=9 * CPU_MILLI * gpus // whole,
        memory_mib=9 * MEMORY_MIB * gpus // whole,
    )
