"""The leaf switches of the simulated cluster: every port, what it is plugged into, its counters.

Pure, like the world of the nodes; counters only rise. Ports to spines are not simulated.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nemesis.producers.fabric import fabric_inventory_of, fabric_of
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import Observation, PortDescribed, PortSeen
from nemesis.sim.faults.symptoms import Readings
from nemesis.sim.topology.cluster import Cluster

SECOND_NS: Final = 1_000_000_000


class Fabric:
    """All leaf switches."""

    def __init__(self, cluster: Cluster) -> None:
        self._ports: Final[dict[str, PortSeen]] = {}
        self._by_leaf: Final[dict[str, list[str]]] = {leaf: [] for leaf in cluster.leaves}
        self._per_s: Final[dict[str, Readings]] = {}
        self._due_ns: Final[dict[str, int]] = {}
        for node in cluster.node_names:
            for nic in cluster.nics_of(node):
                port = nic.switch_port
                self._ports[port] = PortSeen(port=port, peer=f"nic/{node}/{nic.name}")
                self._by_leaf[leaf_of(port)].append(port)

    def turn(self, port: str, *, up: bool) -> None:
        """A port's link goes down or up."""
        seen = self._ports[port]
        downed = seen.up and not up
        self._ports[port] = replace(
            seen, up=up, link_downed_count=seen.link_downed_count + int(downed)
        )

    def advance(self, elapsed_ns: int) -> None:
        """Let counters rise that do so by themselves."""
        for port, per_s in self._per_s.items():
            due = self._due_ns.get(port, 0) + elapsed_ns
            self._due_ns[port] = due % SECOND_NS
            self.count(port, [(name, each * (due // SECOND_NS)) for name, each in per_s])

    def rise(self, port: str, per_s: Readings) -> None:
        """Counters of a port rise by so much a second from here on; none: no more."""
        self._per_s.pop(port, None)
        if per_s:
            self._per_s[port] = per_s

    def count(self, port: str, rises: Iterable[tuple[str, int]]) -> None:
        """Counters of a port rise, by their names in PortSeen."""
        seen = self._ports[port]
        self._ports[port] = replace(
            seen, **{name: getattr(seen, name) + rise for name, rise in rises}
        )

    def ports_of(self, leaf: str) -> list[PortSeen]:
        """One switch's ports as they are now."""
        return [self._ports[port] for port in self._by_leaf[leaf]]


class Collector:
    """Polls one leaf switch, from somewhere else."""

    def __init__(self, leaf: str, fabric: Fabric, *, start_ns: int, period_ns: int) -> None:
        self.observations: list[Observation] = []
        self.origin: Final = Origin(leaf, start_ns=start_ns)
        self._leaf: Final = leaf
        self._fabric: Final = fabric
        self._period_ns: Final = period_ns
        self._polled_ns = start_ns - period_ns
        ports = [PortDescribed(each.port, each.peer) for each in fabric.ports_of(leaf)]
        self.observations.append(
            fabric_inventory_of(
                self.origin,
                start_ns,
                switch=f"switch/{leaf}",
                tier="leaf",
                transport="infiniband",
                ports=ports,
            )
        )

    def look(self, now_ns: int) -> None:
        """Poll where it is time to."""
        if now_ns - self._polled_ns >= self._period_ns:
            self._polled_ns = now_ns
            ports = self._fabric.ports_of(self._leaf)
            switch = f"switch/{self._leaf}"
            self.observations.append(fabric_of(self.origin, now_ns, switch=switch, ports=ports))


def leaf_of(port: str) -> str:
    """`leaf03` of `port/leaf03/17`."""
    return port.split("/")[1]
