"""The switches of the simulated cluster: every port, what it is plugged into, its counters.

Pure, like the world of the nodes; counters only rise.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nemesis.producers.fabric import fabric_inventory_of, fabric_of
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import Observation, PortSeen
from nemesis.sim.faults.symptoms import Readings
from nemesis.sim.topology.cluster import Cluster

SECOND_NS: Final = 1_000_000_000


class Fabric:
    """All switches."""

    def __init__(self, cluster: Cluster) -> None:
        self._ports: Final[dict[str, PortSeen]] = {}
        self._per_s: Final[dict[str, Readings]] = {}
        self._due_ns: Final[dict[str, int]] = {}
        self._by_switch: Final[dict[str, list[str]]] = {}
        for switch in cluster.switches:
            ports = cluster.ports_of(switch)
            self._by_switch[switch] = [each.port for each in ports]
            for each in ports:
                self._ports[each.port] = PortSeen(port=each.port, peer=each.peer)

    def turn(self, port: str, *, up: bool) -> None:
        """A port's link goes down or up; a port on its other end sees it too."""
        for end in (port, self._ports[port].peer):
            if end in self._ports:
                seen = self._ports[end]
                downed = seen.up and not up
                self._ports[end] = replace(
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

    def ports_of(self, switch: str) -> list[PortSeen]:
        """One switch's ports as they are now."""
        return [self._ports[port] for port in self._by_switch[switch]]


class Collector:
    """Polls one switch, from somewhere else; tells once what it is made of."""

    def __init__(
        self, switch: str, cluster: Cluster, fabric: Fabric, *, start_ns: int, period_ns: int
    ) -> None:
        self.origin: Final = Origin(switch, start_ns=start_ns)
        self.observations: list[Observation] = [
            fabric_inventory_of(
                self.origin,
                start_ns,
                switch=f"switch/{switch}",
                tier=cluster.tier_of(switch),
                transport=cluster.fabric.transport,
                ports=cluster.ports_of(switch),
            )
        ]
        self._switch: Final = switch
        self._fabric: Final = fabric
        self._period_ns: Final = period_ns
        self._polled_ns = start_ns - period_ns

    def look(self, now_ns: int) -> None:
        """Poll where it is time to."""
        if now_ns - self._polled_ns >= self._period_ns:
            self._polled_ns = now_ns
            ports = self._fabric.ports_of(self._switch)
            switch = f"switch/{self._switch}"
            self.observations.append(fabric_of(self.origin, now_ns, switch=switch, ports=ports))
