"""Slurm's topology plugins: tree and block.

slurm.schedmd.com/topology.html. Tree: the lowest switch that can serve the job, of several the one
with least room; then leaf by leaf, the smallest that holds the rest, else the largest. Block: base
blocks stand in a row, and a job gets a row of 1, 2, 4, ... of them, aligned, with as few blocks as
can be; segments (`--segment`) lie inside one block.
"""

from nemesis.processors.placement.ground import Gang, Ground, Part, Placement
from nemesis.processors.placement.subtree import tightest
from nemesis.processors.topology.pool import sums


def slurm_tree(ground: Ground, gang: Gang) -> Placement:
    """The placement of topology/tree, () where no switch reaches nodes enough."""
    room = [free // gang.segment for free in ground.free]
    for level in ground.levels:
        fitting = [(count, g) for g, count in sums(level, room).items() if count >= gang.segments]
        if fitting:
            _, group = min(fitting)
            return _leaf_by_leaf(gang, {s: room[s] for s in range(len(room)) if level[s] == group})
    return ()


def slurm_block(ground: Ground, gang: Gang) -> Placement:
    """The placement of topology/block; every shelf is a base block, in the order of names."""
    room = [free // gang.segment for free in ground.free]
    size = 1
    while True:
        rows = [range(at, min(at + size, len(room))) for at in range(0, len(room), size)]
        fitting = [(sum(room[s] for s in row), row.start) for row in rows]
        fitting = [each for each in fitting if each[0] >= gang.segments]
        if fitting:
            _, start = min(fitting)
            row = range(start, min(start + size, len(room)))
            return _leaf_by_leaf(gang, {shelf: room[shelf] for shelf in row})
        if size >= len(room):
            return ()
        size *= 2


def _leaf_by_leaf(gang: Gang, room: dict[int, int]) -> Placement:
    need, found = gang.segments, dict[int, int]()
    while need:
        shelf = tightest(room, need)
        found[shelf] = min(need, room.pop(shelf))
        need -= found[shelf]
    return tuple(Part(shelf, found[shelf] * gang.segment) for shelf in sorted(found))
