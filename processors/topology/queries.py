"""What attribution and scheduling ask of a topology; every answer is in an order of its own."""

from collections.abc import Iterable, Iterator
from typing import Literal

import networkx as nx

from nemesis.processors.topology.topology import Topology, switch_of
from nemesis.schemas import components

By = Literal["index", "rail", "switch", "host", "node", "nvlink", "rack"]


def nic_of(topology: Topology, gpu: str) -> str:
    """The NIC that serves a GPU, "" where it is not known."""
    return next(_needed(topology, gpu, "network"), "")


def gpus_of(topology: Topology, nic: str) -> tuple[str, ...]:
    """The GPUs that a NIC serves."""
    return tuple(sorted(_needing(topology, nic, "network")))


def port_of(topology: Topology, nic: str) -> str:
    """The switch port that a NIC is plugged into, "" where it is not known."""
    return next((upper for lower, upper in _links(topology, nic) if lower == nic), "")


def peer_of(topology: Topology, port: str) -> str:
    """What is plugged into a switch port: a NIC or a port; "" where it is not known."""
    for lower, upper in _links(topology, switch_of(port)):
        if port in (lower, upper):
            return lower if port == upper else upper
    return ""


def route(topology: Topology, gpu: str) -> tuple[str, ...]:
    """GPU, PCIe switch, NIC, leaf port, leaf switch, without what is not known."""
    nic = nic_of(topology, gpu)
    port = port_of(topology, nic) if nic else ""
    holder = next(_needed(topology, gpu, "host"), "")
    switch = holder if holder.startswith("pcie/") else ""
    return tuple(part for part in (gpu, switch, nic, port, switch_of(port)) if part)


def above(topology: Topology, component: str) -> dict[str, int]:
    """All that a component needs and how many steps away, itself first at 0."""
    distance = {component: 0}
    ahead = [component]
    for each in ahead:
        for needed in sorted(_needs(topology, each)):
            if needed not in distance:
                distance[needed] = distance[each] + 1
                ahead.append(needed)
    return distance


def shared(topology: Topology, names: Iterable[str]) -> tuple[str, ...]:
    """What all of these need, the nearest first."""
    chains = [above(topology, name) for name in names]
    if not chains:
        return ()
    common = set(chains[0]).intersection(*chains[1:])
    return tuple(sorted(common, key=lambda name: (sum(chain[name] for chain in chains), name)))


def suspects(topology: Topology, names: Iterable[str]) -> tuple[str, ...]:
    """What would alone stop all of these, the narrowest first: what takes least else with it."""
    names = list(names)
    domains = {each: set(domain_of(topology, each)) for each in shared(topology, names)}
    found = [
        each
        for each, stopped in domains.items()
        if all(not stopped.isdisjoint((name, *_ends(topology, name))) for name in names)
    ]
    return tuple(sorted(found, key=lambda each: len(domains[each])))


def domain_of(topology: Topology, component: str) -> tuple[str, ...]:
    """What stops or is cut off when a component fails, itself included, sorted.

    A part stops when all that it needs by one `via` have stopped: a leaf with two spines goes on
    with one.
    """
    graph = topology.graph
    stopped = {component}
    ahead = [component, *_hanging(topology, component)]
    stopped.update(ahead)
    for each in ahead:
        if each not in graph:
            continue
        for part, _, via in sorted(graph.in_edges(each, "via")):
            if part not in stopped and all(
                need in stopped for need in _needed(topology, part, via)
            ):
                stopped.add(part)
                ahead.append(part)
    return tuple(sorted(stopped))


def peers(topology: Topology, component: str, by: By) -> tuple[str, ...]:
    """The others of its kind that are like it in one way, itself left out, sorted.

    index, rail: the same number, on any node. switch: below the same leaf. host: below the same
    PCIe switch or CPU. node, nvlink, rack: in the same one.
    """
    graph, kind = topology.graph, component.partition("/")[0]
    if component not in graph:
        return ()
    if by in ("index", "rail"):
        number = graph.nodes[component].get(by, -1)
        same = (name for name, own in graph.nodes(data=by, default=-1) if own == number >= 0)
    else:
        same = (
            name
            for holder in _holders(topology, component, by)
            for name in _below(topology, holder)
        )
    return tuple(sorted({name for name in same if name.partition("/")[0] == kind} - {component}))


def _holders(topology: Topology, component: str, by: By) -> list[str]:
    """What a component shares with its peers."""
    chain = above(topology, component)
    starts = {"nvlink": "domain/", "rack": "rack/", "node": "node/", "switch": "switch/"}
    if by == "host":
        return list(_needed(topology, component, "host"))
    found = [name for name in chain if name.startswith(starts[by])]
    if by == "switch" and component.startswith("node/"):
        nics = [name for name in _below(topology, component) if name.startswith("nic/")]
        return sorted({switch_of(port_of(topology, nic)) for nic in nics} - {""})
    return found[:1]


def _below(topology: Topology, holder: str) -> set[str]:
    """All that needs it; of a switch its NICs, their GPUs and nodes."""
    if holder not in topology.graph:
        return set()
    if not holder.startswith("switch/"):
        found: set[str] = nx.ancestors(topology.graph, holder)
        return found
    nics = set(_needing(topology, holder, "wire"))
    gpus = {gpu for nic in nics for gpu in _needing(topology, nic, "network")}
    nodes = {components.node(name.split("/")[1]) for name in nics if name.startswith("nic/")}
    return nics | gpus | nodes


def _hanging(topology: Topology, component: str) -> list[str]:
    """The NIC that a port or a link takes with it."""
    kind, _, name = component.partition("/")
    if kind == "port":
        peer = peer_of(topology, component)
        return [peer] if peer.startswith("nic/") else []
    return [f"nic/{name}"] if kind == "link" and f"nic/{name}" in topology.graph else []


def _needs(topology: Topology, component: str) -> Iterable[str]:
    """What a component needs directly."""
    if component in topology.graph:
        found: Iterable[str] = topology.graph.successors(component)
        return found
    return _ends(topology, component)


def _ends(topology: Topology, component: str) -> tuple[str, ...]:
    """Of a port its switch, of a link both its ends."""
    kind, _, name = component.partition("/")
    if kind == "port":
        return (switch_of(component),) if switch_of(component) in topology.graph else ()
    if kind != "link":
        return ()
    nic = f"nic/{name}"
    lower, upper = (
        (nic, port_of(topology, nic))
        if nic in topology.graph
        else (f"port/{name}", peer_of(topology, f"port/{name}"))
    )
    switches = (switch_of(end) for end in (lower, upper))
    return tuple(end for end in (lower, upper, *switches) if end)


def _needed(topology: Topology, component: str, via: str) -> Iterator[str]:
    if component not in topology.graph:
        return iter(())
    edges = topology.graph.out_edges(component, "via")
    return iter(sorted(needed for _, needed, own in edges if own == via))


def _needing(topology: Topology, component: str, via: str) -> Iterator[str]:
    if component not in topology.graph:
        return iter(())
    return (part for part, _, own in topology.graph.in_edges(component, "via") if own == via)


def _links(topology: Topology, end: str) -> Iterator[tuple[str, str]]:
    """The links of a NIC or a switch."""
    if end in topology.graph:
        for edges in (
            topology.graph.out_edges(end, "links"),
            topology.graph.in_edges(end, "links"),
        ):
            for _, _, links in edges:
                yield from links or ()
