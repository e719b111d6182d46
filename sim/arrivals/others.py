"""Two other schedulers as planners: first come, first fit; and what Kubernetes does by default.

Both give whole nodes and start a gang whole, which Kubernetes does only with a queue before it
(Kueue): without one, gangs of a full cluster hold half their nodes each and none starts.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from nemesis.processors.placement.baselines.kubernetes import Host, Pod, kubernetes
from nemesis.sim.arrivals.arrival import Arrival
from nemesis.sim.arrivals.planner import Refusal, Said, Start
from nemesis.sim.topology.cluster import Cluster

POD_SHARE: Final = 0.9
CPU_MILLI: Final = 100_000
MEMORY_MIB: Final = 1_000_000
"""Of a node; its pod asks for most of it. Nodes without a pod are equal, so no number matters."""


class _Waits:
    """Who waits and which nodes are free, for a scheduler that knows no topology."""

    def __init__(self, cluster: Cluster) -> None:
        self._size = len(cluster.node.gpus)
        self._names: Final = cluster.node_names
        self._free = dict.fromkeys(self._names, True)
        self._queue: dict[str, int] = {}
        self._running: dict[str, tuple[str, ...]] = {}
        self._refused: list[Said] = []

    def at(self, now_s: int) -> None:
        """The hour changes nothing."""

    def come(self, arrival: Arrival) -> None:
        """A job stands at the end, unless no cluster like this has room for it."""
        nodes = arrival.nodes(self._size)
        if nodes > len(self._names):
            why = f"{nodes} nodes, the cluster has {len(self._names)}"
            self._refused.append(Refusal(arrival.job, "SIZE", why))
            return
        self._queue[arrival.job] = nodes

    def leave(self, job: str) -> None:
        """Its nodes are free."""
        self._free.update(dict.fromkeys(self._running.pop(job), True))

    def _start(self, job: str, nodes: tuple[str, ...], *, backfilled: bool) -> Start:
        del self._queue[job]
        self._free.update(dict.fromkeys(nodes, False))
        self._running[job] = nodes
        return Start(job, nodes, backfilled)

    @property
    def _open(self) -> list[str]:
        return [name for name in self._names if self._free[name]]


class FirstFit(_Waits):
    """The head of the queue or nobody, on the first nodes by name."""

    def said(self) -> Sequence[Said]:
        """Who starts."""
        found, self._refused = self._refused, []
        for job, count in [*self._queue.items()]:
            if len(open_ := self._open) < count:
                break
            found.append(self._start(job, tuple(open_[:count]), backfilled=False))
        return found


class KubernetesDefault(_Waits):
    """Whoever fits, in the order of the queue, on nodes that cpu and memory choose."""

    def __init__(self, cluster: Cluster, *, seed: int) -> None:
        """`seed` draws among nodes of equal score."""
        super().__init__(cluster)
        self._dice: Final = Random(seed)
        self._next = 0

    def said(self) -> Sequence[Said]:
        """Who starts."""
        found, self._refused = self._refused, []
        passed = False
        for job, count in [*self._queue.items()]:
            if sum(self._free.values()) < count:
                passed = True
                continue
            found.append(self._start(job, self._bound(count), backfilled=passed))
        return found

    def _bound(self, count: int) -> tuple[str, ...]:
        used = int(CPU_MILLI * POD_SHARE), int(MEMORY_MIB * POD_SHARE)
        hosts = [
            Host(
                gpus_free=self._size * free,
                cpu_milli=CPU_MILLI,
                memory_mib=MEMORY_MIB,
                cpu_milli_used=0 if free else used[0],
                memory_mib_used=0 if free else used[1],
            )
            for free in self._free.values()
        ]
        pod = Pod(gpus=self._size, cpu_milli=used[0], memory_mib=used[1])
        bound = kubernetes(hosts, [pod] * count, self._dice.randrange, start=self._next)
        self._next = bound.start
        return tuple(self._names[at] for at in bound.nodes)
