"""Free nodes below a tree of switches, gangs that want some, and what a placement costs.

Nodes that nobody can tell apart, on one leaf and in the same NVLink domain where a domain spans
several nodes, are one *shelf*: a cluster of 12,500 nodes is a few hundred numbers, and no solver
meets its symmetries. A gang takes whole nodes, in segments that must each lie on one shelf.
"""

from collections.abc import Iterable, Sequence

import msgspec

from nemesis.processors.topology.pool import Pool, sums


class Ground(msgspec.Struct, frozen=True):
    """Columns by shelf."""

    free: tuple[int, ...]
    """Nodes with all GPUs free."""
    tiers: tuple[tuple[int, ...], ...]
    """By tier above the shelves, the group of each; the last tier is one group."""

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The shelves themselves, each its own group, and all tiers above."""
        return (tuple(range(len(self.free))), *self.tiers)

    def less(self, parts: Iterable["Part"]) -> "Ground":
        """The ground once these nodes are taken."""
        free = list(self.free)
        for part in parts:
            free[part.shelf] -= part.nodes
            assert free[part.shelf] >= 0, "a placement takes what is free"
        return Ground(tuple(free), self.tiers)


class Gang(msgspec.Struct, frozen=True):
    """Nodes that start together or not at all."""

    nodes: int
    segment: int = 1
    """Nodes that must lie on one shelf; it divides `nodes`."""

    @property
    def segments(self) -> int:
        """How many."""
        assert self.nodes % self.segment == 0, "a gang is made of whole segments"
        return self.nodes // self.segment


class Part(msgspec.Struct, frozen=True):
    """So many nodes of a shelf."""

    shelf: int
    nodes: int


Placement = tuple[Part, ...]
"""In the order of ranks; () where none was found."""


def ground_of(pool: Pool) -> tuple[Ground, tuple[tuple[str, ...], ...]]:
    """The ground of a pool, and by shelf the names of its free nodes in the pool's order.

    A node with several bays counts once all of them are free; a leaf and a domain of its first bay
    are those of the node.
    """
    spans = _nodes_by_domain(pool)
    whole = set(pool.whole_nodes)
    first = {name: bay for bay, name in reversed([*enumerate(pool.nodes)])}
    keys: dict[str, tuple[int, int]] = {}
    for name, bay in first.items():
        domain = pool.domains[bay]
        keys[name] = (pool.tiers[0][bay], domain if spans[domain] > 1 else -1)
    order = {key: at for at, key in enumerate(sorted(set(keys.values())))}
    members: list[list[str]] = [[] for _ in order]
    for name in dict.fromkeys(pool.nodes):
        if name in whole:
            members[order[keys[name]]].append(name)
    bays = {order[keys[name]]: bay for name, bay in first.items()}
    shelves = range(len(order))
    own = all(key[1] == -1 for key in order) or len({key[0] for key in order}) == len(order)
    tiers = pool.tiers[1:] if own and len(pool.tiers) > 1 else pool.tiers
    return (
        Ground(
            tuple(len(names) for names in members),
            tuple(tuple(tier[bays[shelf]] for shelf in shelves) for tier in tiers),
        ),
        tuple(tuple(names) for names in members),
    )


def _nodes_by_domain(pool: Pool) -> dict[int, int]:
    """By domain, how many nodes it spans."""
    pairs = set(zip(pool.domains, pool.nodes, strict=True))
    found: dict[int, int] = {}
    for domain, _ in pairs:
        found[domain] = found.get(domain, 0) + 1
    return found


def filled(ground: Ground, gang: Gang, shelves: Iterable[int]) -> Placement:
    """Segments on shelves in this order, each as full as it goes; () where they have no room."""
    need, found = gang.segments, list[Part]()
    for shelf in shelves:
        share = min(need, ground.free[shelf] // gang.segment)
        if share:
            found.append(Part(shelf, share * gang.segment))
            need -= share
    return () if need else tuple(found)


def cost(ground: Ground, placement: Iterable[Part], weights: Sequence[int]) -> int:
    """Groups that a placement touches, weighted by level: shelves first, then tiers upwards."""
    shelves = [part.shelf for part in placement if part.nodes]
    return sum(
        weight * len({level[shelf] for shelf in shelves})
        for weight, level in zip(weights, ground.levels, strict=False)
    )


def flaw(ground: Ground, gang: Gang, placement: Placement) -> str:
    """Why a placement cannot be, "" where it can: whole segments, on shelves that have them."""
    taken = sums([part.shelf for part in placement], [part.nodes for part in placement])
    if any(not 0 <= shelf < len(ground.free) for shelf in taken):
        return "names a shelf that is not there"
    if any(part.nodes <= 0 or part.nodes % gang.segment for part in placement):
        return f"a part is no whole number of segments of {gang.segment}"
    if sum(taken.values()) != gang.nodes:
        return f"has {sum(taken.values())} nodes, not {gang.nodes}"
    for shelf, nodes in taken.items():
        if nodes > ground.free[shelf]:
            return f"takes {nodes} nodes of shelf {shelf}, where {ground.free[shelf]} are free"
    return ""
