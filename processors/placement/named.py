"""A placement of nodes that somebody named, in the terms of the rules: so many on each shelf."""

from collections.abc import Sequence

from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case
from nemesis.processors.placement.ground import Part, Placement, ground_of
from nemesis.processors.placement.ranks import able_pool


def named(case: Case, nodes: Sequence[str]) -> tuple[Case, Placement]:
    """The case with these nodes first on their shelves, and a placement that takes just them.

    () where one of them is not there, not free whole, or lacks what the job must have. Nodes that
    lie together stand together in the placement, whatever order they are named in.
    """
    assert case.pool is not None
    pool, chosen = case.pool, set(nodes)
    rows = sorted(range(len(pool.nodes)), key=lambda row: pool.nodes[row] not in chosen)
    case = replace(case, pool=pool.rows(rows))
    ground, names = ground_of(able_pool(case))
    counts = [sum(name in chosen for name in members) for members in names]
    if not chosen or sum(counts) != len(chosen):
        return case, ()
    shelves = [shelf for shelf, count in enumerate(counts) if count]
    shelves.sort(key=lambda shelf: [level[shelf] for level in reversed(ground.levels)])
    return case, tuple(Part(shelf, counts[shelf]) for shelf in shelves)
