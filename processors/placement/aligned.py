"""Whole groups of ranks below each switch: nodes counted in blocks of a job's own groups.

What other rules count are nodes, so a switch may get one and a half groups of a pipeline, and the
torn one crosses the tier above. Here each switch of a level gets a whole number of blocks: of
switches with enough room the tightest, else the roomiest first. Inside it nodes are best fit.
"""

from collections.abc import Iterator, Sequence

from nemesis.processors.parallelism.layout import Layout
from nemesis.processors.parallelism.spec import Dim
from nemesis.processors.placement.ground import Gang, Ground, Part, Placement
from nemesis.processors.placement.subtree import filled, tightest


def aligned(ground: Ground, gang: Gang, height: int, block: int) -> Placement:
    """The gang in blocks of nodes, each inside one group of a level; () where they do not fit."""
    room = [free // gang.segment for free in ground.free]
    inside: dict[int, list[int]] = {}
    for shelf, group in enumerate(ground.levels[height]):
        inside.setdefault(group, []).append(shelf)
    size = block // gang.segment
    left = {group: sum(room[s] for s in members) // size for group, members in inside.items()}
    need = gang.nodes // block
    if gang.nodes % block or block % gang.segment or sum(left.values()) < need:
        return ()
    found: list[Part] = []
    while need:
        group = tightest(left, need)
        share = min(need, left.pop(group))
        part = Gang(share * block, gang.segment)
        found += filled(ground, inside[group], height, room, part)
        need -= share
    return tuple(found)


def blocks_of(
    layout: Layout, orders: Sequence[Sequence[Dim]], gang: Gang, node_gpus: int
) -> Iterator[int]:
    """Nodes of the groups that lie in a row by any of these orders, smaller than the job."""
    seen: set[int] = set()
    for order in orders:
        gpus = 1
        for dim in order:
            gpus *= layout.degree(dim)
            nodes = gpus // node_gpus
            if gpus % node_gpus == 0 and gang.segment < nodes < gang.nodes and nodes not in seen:
                seen.add(nodes)
                yield nodes
