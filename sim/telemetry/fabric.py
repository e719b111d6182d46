"""The switches of the simulated cluster: every port, what it is plugged into, its counters.

Pure, like the world of the nodes; counters only rise. Ports towards NICs mark and correct all the
time, each at a rate of its own; links between switches are quiet until something happens to them.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from nemesis.producers.fabric import fabric_inventory_of, fabric_of
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import Observation, PortSeen
from nemesis.sim.faults.symptoms import Readings
from nemesis.sim.params import Params, load_params
from nemesis.sim.telemetry.draws import LANE_MAX, Ints, keys, lanes
from nemesis.sim.telemetry.staggered import staggered_ns
from nemesis.sim.topology.cluster import Cluster

SECOND_NS: Final = 1_000_000_000


class Fabric:
    """All switches."""

    def __init__(self, cluster: Cluster, seed: int, params: Params | None = None) -> None:
        given = (params or load_params()).port
        self._ports: Final[dict[str, PortSeen]] = {}
        self._rates: Final[dict[str, tuple[int, int]]] = {}
        """Of ports towards NICs: ECN marks and corrected code words in 1,000 seconds."""
        self._passed_ns = 0
        self._per_s: Final[dict[str, Readings]] = {}
        self._due_ns: Final[dict[str, int]] = {}
        self._by_switch: Final[dict[str, list[str]]] = {}
        for switch in cluster.switches:
            ports = cluster.ports_of(switch)
            self._by_switch[switch] = [each.port for each in ports]
            for each in ports:
                self._ports[each.port] = PortSeen(port=each.port, peer=each.peer)
        edge = [port for port, seen in self._ports.items() if seen.peer.startswith("nic/")]
        marks, corrections, _, _ = lanes(keys(seed, 4, (len(edge),)))
        per_ks = zip(
            (marks * (2_000 * given.ecn_marked_per_s) // LANE_MAX).tolist(),
            (corrections * (2_000 * given.fec_corrected_per_s) // LANE_MAX).tolist(),
            strict=True,
        )
        self._rates.update(zip(edge, per_ks, strict=True))

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
        self._passed_ns += elapsed_ns
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
        passed_s, rates, ports = self._passed_ns // SECOND_NS, self._rates, self._ports
        return [
            _with(ports[port], *rates[port], passed_s) if port in rates else ports[port]
            for port in self._by_switch[switch]
        ]


class Collector:
    """Polls one switch, from somewhere else; tells once what it is made of."""

    def __init__(self, switch: str, cluster: Cluster, fabric: Fabric, *, start_ns: int) -> None:
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

    def poll(self, now_ns: int) -> None:
        """Read all ports."""
        ports = self._fabric.ports_of(self._switch)
        switch = f"switch/{self._switch}"
        self.observations.append(fabric_of(self.origin, now_ns, switch=switch, ports=ports))

    def carried(self) -> list[Observation]:
        """Take away what there is to send."""
        polls, self.observations = self.observations, []
        return polls


class Collectors:
    """The collectors of all switches, each of which polls at its own place in the period."""

    def __init__(self, cluster: Cluster, fabric: Fabric, *, start_ns: int, period_ns: int) -> None:
        self.by_switch: Final = {
            switch: Collector(switch, cluster, fabric, start_ns=start_ns)
            for switch in cluster.switches
        }
        self._names: Final = list(self.by_switch)
        self._period_ns: Final = period_ns
        self._due_ns: Final = start_ns + staggered_ns(len(self._names), period_ns)
        self._speaking = list(self.by_switch.values())

    def look(self, now_ns: int, lost: set[str]) -> None:
        """Poll the switches that are due, but for those that are lost."""
        rows = np.flatnonzero(self._due_ns <= now_ns)
        for _, collector in self._due(rows, np.full(len(rows), now_ns), lost):
            collector.poll(now_ns)
            self._speaking.append(collector)

    def look_ahead(
        self, now_ns: int, until_ns: int, quantum_ns: int, lost: set[str]
    ) -> list[tuple[int, Collector]]:
        """All that become due until then, in order, each with when it is to be polled: when
        somebody who looks every `quantum_ns` would."""
        rows = np.flatnonzero(self._due_ns <= until_ns)
        at_ns = now_ns - (now_ns - self._due_ns[rows]) // quantum_ns * quantum_ns
        order = np.lexsort((rows, at_ns))
        return self._due(rows[order], at_ns[order], lost)

    def _due(self, rows: Ints, at_ns: Ints, lost: set[str]) -> list[tuple[int, Collector]]:
        missed = (at_ns - self._due_ns[rows]) // self._period_ns
        self._due_ns[rows] += (1 + missed) * self._period_ns
        names = (self._names[row] for row in rows.tolist())
        return [
            (time_ns, self.by_switch[switch])
            for time_ns, switch in zip(at_ns.tolist(), names, strict=True)
            if switch not in lost
        ]

    @property
    def is_speaking(self) -> bool:
        """Whether some have anything to say."""
        return bool(self._speaking)

    def speaking(self) -> list[Collector]:
        """Those that have something to say since this was asked last."""
        speaking, self._speaking = self._speaking, []
        return speaking


def _with(seen: PortSeen, marks_per_ks: int, corrections_per_ks: int, passed_s: int) -> PortSeen:
    """What a port counts and does all the time besides."""
    return replace(
        seen,
        ecn_marked_count=seen.ecn_marked_count + marks_per_ks * passed_s // 1_000,
        fec_corrected_count=seen.fec_corrected_count + corrections_per_ks * passed_s // 1_000,
    )
