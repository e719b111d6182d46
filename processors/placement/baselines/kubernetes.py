"""The default scheduler of Kubernetes: pod after pod, by cpu and memory, without gangs or topology.

kubernetes/kubernetes pkg/scheduler, default profile of 1.29 to 1.35 (in 1.36 there is an alpha,
TopologyAwareWorkloadScheduling, which is off). Of the plugins that score, two tell nodes of one
kind apart for the pods of a Job: NodeResourcesFit (LeastAllocated) and
NodeResourcesBalancedAllocation, which look at cpu and memory alone: how full the GPUs are changes
no score. Nodes are looked at from a start that moves on, until enough of them fit; ties are drawn.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

ALL_BELOW: Final = 100
PERCENT_MIN: Final = 5
"""schedule_one.go, minFeasibleNodesToFind and minFeasibleNodesPercentageToFind."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what it has, and what pods have asked for."""

    gpus_free: int
    cpu_milli: int
    memory_mib: int
    cpu_milli_used: int = 0
    memory_mib_used: int = 0


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod asks for."""

    gpus: int
    cpu_milli: int
    memory_mib: int


class Bound(msgspec.Struct, frozen=True):
    """Where pods went, and the cluster after them."""

    nodes: tuple[int, ...]
    """By pod, in the order in which they came; -1: pending."""
    hosts: tuple[Host, ...]
    start: int
    """Where the next pod's search begins."""


def kubernetes(
    hosts: Sequence[Host], pods: Sequence[Pod], pick: Callable[[int], int], *, start: int = 0
) -> Bound:
    """Bind pods in turn; `pick` draws one of so many ties. A stuck pod gives nothing back."""
    now = list(hosts)
    found: list[int] = []
    for pod in pods:
        feasible, seen = _feasible(now, pod, start)
        start = (start + seen) % len(now)
        if not feasible:
            found.append(-1)
            continue
        scores = [_score(now[at], pod) for at in feasible]
        most = max(scores)
        best = [at for at, score in zip(feasible, scores, strict=True) if score == most]
        node = best[pick(len(best))]
        host = now[node]
        now[node] = replace(
            host,
            gpus_free=host.gpus_free - pod.gpus,
            cpu_milli_used=host.cpu_milli_used + pod.cpu_milli,
            memory_mib_used=host.memory_mib_used + pod.memory_mib,
        )
        found.append(node)
    return Bound(tuple(found), tuple(now), start)


def nodes_looked_for(count: int) -> int:
    """How many nodes that fit end the search, in a cluster of so many."""
    if count < ALL_BELOW:
        return count
    percent = max(PERCENT_MIN, 50 - count // 125)
    return max(ALL_BELOW, count * percent // 100)


def _feasible(hosts: Sequence[Host], pod: Pod, start: int) -> tuple[list[int], int]:
    """(nodes that fit, how many were looked at)."""
    enough, found = nodes_looked_for(len(hosts)), list[int]()
    for step in range(len(hosts)):
        at = (start + step) % len(hosts)
        host = hosts[at]
        if (
            host.gpus_free >= pod.gpus
            and host.cpu_milli - host.cpu_milli_used >= pod.cpu_milli
            and host.memory_mib - host.memory_mib_used >= pod.memory_mib
        ):
            found.append(at)
            if len(found) == enough:
                return found, step + 1
    return found, len(hosts)


def _score(host: Host, pod: Pod) -> int:
    """LeastAllocated and BalancedAllocation, 0 to 100 each, in whole numbers as Go has them."""
    cpu = host.cpu_milli_used + pod.cpu_milli
    memory = host.memory_mib_used + pod.memory_mib
    least = (
        (host.cpu_milli - cpu) * 100 // host.cpu_milli
        + (host.memory_mib - memory) * 100 // host.memory_mib
    ) // 2
    apart = abs(cpu / host.cpu_milli - memory / host.memory_mib) / 2
    return least + int((1 - apart) * 100)
