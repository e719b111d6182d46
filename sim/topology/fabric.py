"""How nodes are wired, as a cluster file says it, and the shape that follows from it.

Nodes come in groups of neighbours. The NICs of a group share one leaf switch (leaf, fat-tree), or
one leaf for each rail (rail-optimised: NIC i of every node on the i-th leaf of its group). Leaves
of a pod reach each other over the pod's spines, pods over cores.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import Final, Literal

import msgspec

from nemesis.schemas.observed import Transport

FabricKind = Literal["leaf", "rail-optimised", "fat-tree"]
# A switch tells its ports in one fact of 64 KiB; a core chassis has 576 ports at most today.
PORTS_MAX: Final = 768


class FabricModel(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The `[fabric]` of a cluster file."""

    kind: FabricKind = "leaf"
    """leaf: no switch above the leaves is known."""
    transport: Transport = "infiniband"
    nodes_per_leaf: int = 0
    """Nodes of a group; 0: as many as the ports of a leaf allow."""
    leaf_sizes: tuple[int, ...] = ()
    """Nodes of each group in turn, where they differ."""
    leaf_ports: int = 64
    """Of a leaf switch, up and down."""
    oversubscription: float = 1.0
    """Bandwidth of NICs below a leaf to that of its links to spines."""
    groups_per_pod: int = 0
    """0: one pod."""
    pod_sizes: tuple[int, ...] = ()
    """Groups of each pod in turn, where they differ."""
    spines: int = 0
    """Of each pod."""
    cores: int = 0
    core_oversubscription: float = 1.0
    """Bandwidth of a spine's links to leaves to that of its links to cores."""


class Shape(msgspec.Struct, frozen=True):
    """A fabric in numbers: what `Wiring` is built from."""

    rails: int
    """Leaves of a group."""
    group_sizes: tuple[int, ...]
    """Nodes of each group."""
    pod_sizes: tuple[int, ...]
    """Groups of each pod."""
    spines: int
    """Of a pod."""
    spine_links: int
    """Between a leaf and each spine of its pod."""
    cores: int
    core_links: int
    """Between a spine and each core of its plane."""

    @property
    def plane(self) -> int:
        """How many cores a spine is linked to."""
        return max(1, self.cores // self.spines) if self.cores else 0

    @property
    def sharers(self) -> int:
        """How many spines of a pod share a core."""
        return max(1, self.spines // self.cores) if self.cores else 0


def shape_of(model: FabricModel, nodes: int, nics: int) -> Shape:
    """The shape of a fabric of so many nodes with so many NICs each; see `rules` for what holds."""
    rails = nics if model.kind == "rail-optimised" else 1
    ports = nics // rails
    """That a node takes on a leaf."""
    per_group = model.nodes_per_leaf or max(1, _down_ports(model) // ports)
    groups = model.leaf_sizes or _cut(nodes, per_group)
    pods = model.pod_sizes or _cut(len(groups), model.groups_per_pod or len(groups))
    spines = 0 if model.kind == "leaf" else model.spines
    cores = model.cores if spines else 0
    spine_links = core_links = 0
    if spines:
        spine_links = _links(max(groups) * ports, model.oversubscription, spines)
    if cores:
        down = max(pods) * rails * spine_links
        core_links = _links(down, model.core_oversubscription, max(1, cores // spines))
    return Shape(rails, groups, pods, spines, spine_links, cores, core_links)


def rules(model: FabricModel, shape: Shape, nodes: int, nics: int) -> Iterator[tuple[bool, str]]:
    """(whether it holds, what must hold), each."""
    sizes = (*model.leaf_sizes, *model.pod_sizes)
    yield all(size > 0 for size in sizes), "fabric.leaf_sizes, pod_sizes must be positive"
    total = sum(shape.group_sizes)
    yield total == nodes, f"fabric.leaf_sizes must sum to cluster.nodes, {nodes}, not to {total}"
    groups = len(shape.group_sizes)
    total = sum(shape.pod_sizes)
    yield total == groups, f"fabric.pod_sizes must sum to the groups, {groups}, not to {total}"
    if model.kind == "leaf":
        unused = model.spines == model.cores == 0
        yield unused, 'fabric.spines and cores need kind = "fat-tree" or "rail-optimised"'
    else:
        yield model.spines > 0, "fabric.spines must be positive: what the leaves of a pod share"
    wide = (
        shape.cores % shape.spines == 0 or shape.spines % shape.cores == 0 if shape.cores else True
    )
    yield wide, "fabric.cores must be a multiple of fabric.spines or divide it"
    single = len(shape.pod_sizes) == 1 or shape.spines == 0 or shape.cores > 0
    yield single, "fabric.cores must be positive where there are several pods"
    down = max(shape.group_sizes) * (nics // shape.rails)
    used = down + shape.spines * shape.spine_links
    fits = used <= model.leaf_ports
    yield fits, f"fabric.leaf_ports: {model.leaf_ports}, but a leaf needs {used}"
    spine = max(shape.pod_sizes) * shape.rails * shape.spine_links + shape.plane * shape.core_links
    core = len(shape.pod_sizes) * shape.sharers * shape.core_links
    most = max(used, spine, core)
    yield (
        most <= PORTS_MAX,
        f"a switch needs {most} ports, more than {PORTS_MAX}: more spines or cores",
    )


def model_rules(model: FabricModel) -> Iterator[tuple[bool, str]]:
    """(whether it holds, what must hold): what can be said before there is a shape."""
    counts = (
        model.nodes_per_leaf,
        model.groups_per_pod,
        model.spines,
        model.cores,
    )
    yield min(counts) >= 0, "fabric: counts must not be negative"
    yield 0 < model.leaf_ports <= PORTS_MAX, f"fabric.leaf_ports must be 1 to {PORTS_MAX}"
    ratios = (model.oversubscription, model.core_oversubscription)
    positive = all(0 < ratio <= PORTS_MAX for ratio in ratios)
    yield positive, "fabric.oversubscription, core_oversubscription must be positive"
    yield model.transport != "", 'fabric.transport must be "infiniband" or "roce"'


def _down_ports(model: FabricModel) -> int:
    """Ports of a leaf for NICs, so many that the links up keep the oversubscription."""
    if model.kind == "leaf":
        return model.leaf_ports
    return int(model.leaf_ports * model.oversubscription / (1 + model.oversubscription))


def _cut(count: int, size: int) -> tuple[int, ...]:
    whole, rest = divmod(count, size)
    return (size,) * whole + (rest,) * bool(rest)


def _links(down: int, oversubscription: float, switches: int) -> int:
    """Links to each of so many switches, at least one, for what comes from below."""
    return max(1, ceil(down / oversubscription / switches))


def offsets(sizes: Sequence[int]) -> list[int]:
    """Where each begins, and where the last one ends."""
    return list(accumulate(sizes, initial=0))
