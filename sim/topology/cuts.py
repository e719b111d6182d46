"""What stops when a component fails, as sets of names: for faults to strike and stalls to spread.

Only what the failure takes with it by itself: a spine's loss takes its links and no NIC, because
flows go around it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from nemesis.schemas.components import gpu as gpu_name
from nemesis.schemas.components import node as node_name
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.sim.topology.wiring import Wiring


class Parts(Protocol):
    """What a cut asks of a cluster."""

    @property
    def node_index(self) -> Mapping[str, int]: ...
    @property
    def nvswitch_count(self) -> int: ...
    @property
    def wiring(self) -> Wiring: ...
    def gpus_of(self, node: str) -> tuple[GpuDescribed, ...]: ...
    def nics_of(self, node: str) -> tuple[NicDescribed, ...]: ...
    def nic_number(self, nic: str) -> int: ...
    def nodes_of_rack(self, rack: str) -> tuple[str, ...]: ...
    def nodes_of_nvlink(self, domain: str) -> tuple[str, ...]: ...


class Cut(msgspec.Struct, frozen=True):
    """Canonical names."""

    nodes: frozenset[str] = frozenset()
    """That stop."""
    gpus: frozenset[str] = frozenset()
    """That stop, or cannot reach the others of their NVLink domain."""
    nics: frozenset[str] = frozenset()
    """That reach no other NIC."""
    links: frozenset[str] = frozenset()
    """That carry nothing."""


def cut(cluster: Parts, component: str) -> Cut:
    """What the failure of a component takes with it.

    Raises:
        BadNameError: the cluster has no such component.
    """
    kind, _, name = component.partition("/")
    found = _CUTS[kind](cluster, name) if kind in _CUTS else None
    if found is None:
        raise BadNameError(f"the cluster has no {component[:60]!r}")
    return found


def _node(cluster: Parts, node: str) -> Cut | None:
    return _of_nodes(cluster, [node]) if node in cluster.node_index else None


def _rack(cluster: Parts, rack: str) -> Cut | None:
    nodes = cluster.nodes_of_rack(rack)
    return _of_nodes(cluster, nodes) if nodes else None


def _of_nodes(cluster: Parts, nodes: Iterable[str]) -> Cut:
    nodes = list(nodes)
    nics = [f"{node}/{nic.name}" for node in nodes for nic in cluster.nics_of(node)]
    return Cut(
        nodes=frozenset(map(node_name, nodes)),
        gpus=_gpus(cluster, nodes),
        nics=frozenset(f"nic/{nic}" for nic in nics),
        links=frozenset(f"link/{nic}" for nic in nics),
    )


def _gpus(cluster: Parts, nodes: Iterable[str]) -> frozenset[str]:
    return frozenset(gpu_name(node, gpu.pci) for node in nodes for gpu in cluster.gpus_of(node))


def _gpu(cluster: Parts, name: str) -> Cut | None:
    node, _, pci = name.partition("/")
    known = node in cluster.node_index and any(gpu.pci == pci for gpu in cluster.gpus_of(node))
    return Cut(gpus=frozenset({f"gpu/{name}"})) if known else None


def _nvlink(cluster: Parts, name: str) -> Cut | None:
    return _gpu(cluster, name.rpartition("/")[0])


def _nvswitch(cluster: Parts, name: str) -> Cut | None:
    domain, _, number = name.partition("/")
    count = cluster.nvswitch_count
    if not number.isdecimal() or int(number) >= count:
        return None
    nodes = cluster.nodes_of_nvlink(domain)
    return Cut(gpus=_gpus(cluster, nodes)) if nodes else None


def _nic(cluster: Parts, name: str) -> Cut | None:
    """Of a NIC, or of the link that is named by it."""
    if cluster.nic_number(f"nic/{name}") < 0:
        return None
    return Cut(nics=frozenset({f"nic/{name}"}), links=frozenset({f"link/{name}"}))


def _port(cluster: Parts, name: str) -> Cut | None:
    switch, _, number = name.partition("/")
    port = cluster.wiring.port_at(switch, number)
    return _ports(cluster, [port]) if port >= 0 else None


def _link(cluster: Parts, name: str) -> Cut | None:
    return _nic(cluster, name) or _port(cluster, name)


def _switch(cluster: Parts, name: str) -> Cut | None:
    at = cluster.wiring.index.get(name, -1)
    return _ports(cluster, cluster.wiring.ports(at)) if at >= 0 else None


def _ports(cluster: Parts, ports: Iterable[int]) -> Cut:
    wiring, ports = cluster.wiring, list(ports)
    peers = (wiring.peer_name(port) for port in ports)
    return Cut(
        nics=frozenset(peer for peer in peers if peer.startswith("nic/")),
        links=frozenset(map(wiring.link_name, ports)),
    )


def _fabric(cluster: Parts, name: str) -> Cut | None:
    """A rail: every leaf of it."""
    rail = name.removeprefix("rail")
    rails = cluster.wiring.shape.rails
    if not name.startswith("rail") or not rail.isdecimal() or int(rail) >= rails or rails == 1:
        return None
    leaves = range(int(rail), cluster.wiring.counts[0], rails)
    return _ports(cluster, (port for leaf in leaves for port in cluster.wiring.ports(leaf)))


_CUTS: Final[Mapping[str, Callable[[Parts, str], Cut | None]]] = {
    "node": _node,
    "rack": _rack,
    "gpu": _gpu,
    "nvlink": _nvlink,
    "nvswitch": _nvswitch,
    "nic": _nic,
    "port": _port,
    "link": _link,
    "switch": _switch,
    "fabric": _fabric,
}
