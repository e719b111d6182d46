"""Which rank sits where: a job as a gang of nodes, and its ranks in the order in which nodes lie.

Nodes of a placement stand in a row: neighbours on one shelf, shelves of one pod together. Dims that
must stay close are laid along that row first, those inside an NVLink domain before those below a
leaf, a pod, a core, and last what nobody bound, in the order of the description: so every
group that must be together is a block of the row, and rings of the rest step from neighbour to
neighbour. A rank's place in the row is its *slot*.
"""

from collections.abc import Sequence
from itertools import permutations
from math import lcm, prod

import msgspec

from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.fabric import able_bays, hard_unit, nvl_terms
from nemesis.processors.parallelism.layout import DATA, EXPERT, Layout
from nemesis.processors.parallelism.spec import Dim
from nemesis.processors.placement.ground import Gang, Ground, Placement
from nemesis.processors.topology.pool import Pool

FREE = 99
"""The reach of a dim that may lie anywhere."""


class Block(msgspec.Struct, frozen=True):
    """So many nodes in a row that must lie in one group of a level of the ground."""

    height: int
    nodes: int


class Request(msgspec.Struct, frozen=True):
    """A job as placement sees it."""

    gang: Gang
    blocks: tuple[Block, ...]
    """The inner ones first; their heights are levels of the ground."""
    order: tuple[Dim, ...]
    """Dense dims along the row, the closest first."""
    node_gpus: int


def request_of(case: Case, ground: Ground) -> Request:
    """What a checked job asks of a pool of nodes of one size: whole nodes, in whole blocks."""
    assert case.pool is not None
    above = len(ground.levels) - case.pool.depth - 1
    node_gpus = max(case.pool.node_sizes.values())
    reach = _reach(case)
    dims: list[Dim] = [dim for dim, _ in case.layout.dense]
    order = row_orders(case, tuple(sorted(dims, key=lambda dim: reach[dim])), node_gpus)[0]
    nodes = -(-case.world // node_gpus)
    segment = max(1, -(-hard_unit(case) // node_gpus))
    blocks: list[Block] = []
    for tier in sorted({each for each in reach.values() if 0 < each < FREE}):
        inner: list[Dim] = [dim for dim in dims if reach[dim] <= tier]
        gpus = lcm(prod(case.layout.degree(dim) for dim in inner), hard_unit(case))
        size = max(1, -(-gpus // node_gpus))
        blocks.append(Block(min(tier + above, len(ground.levels) - 1), size))
        if tier + above == 0:
            segment = lcm(segment, size)
    return Request(Gang(-(-nodes // segment) * segment, segment), tuple(blocks), order, node_gpus)


def row_orders(case: Case, order: Sequence[Dim], node_gpus: int) -> list[tuple[Dim, ...]]:
    """All orders along the row that keep together what must be: dims that are bound stay first.

    Of them those by which a node has ranks in a row, as launchers number them, if there are any.
    """
    reach = _reach(case)
    bound: list[Dim] = [dim for dim in order if reach[dim] < FREE]
    free: list[Dim] = [dim for dim in order if reach[dim] == FREE and case.layout.degree(dim) > 1]
    rest: list[Dim] = [dim for dim in order if dim not in bound and dim not in free]
    orders: list[tuple[Dim, ...]] = [(*bound, *each, *rest) for each in permutations(free)]
    usual = [
        each
        for each in orders
        if max(ranks_by_slot(case.layout, each, node_gpus)[:node_gpus]) < node_gpus
    ]
    return usual or orders


def _reach(case: Case) -> dict[Dim, int]:
    """By dense dim: 0 inside an NVLink domain, else the tier that it is bound to."""
    found: dict[Dim, int] = {dim: FREE for dim, _ in case.layout.dense}
    for _, term in case.wishes():
        fabric = term.fabric
        if fabric and fabric.force == "hard" and fabric.tier and term.dim not in EXPERT:
            found[_own(case.layout, term.dim)] = fabric.tier
    for _, term, _ in nvl_terms(case, hard_only=True):
        if term.dim not in EXPERT:
            found[_own(case.layout, term.dim)] = 0
    return found


def _own(layout: Layout, dim: Dim) -> Dim:
    """A dim as the layout calls it."""
    same = DATA if dim in DATA else (dim,)
    return next(own for own, _ in layout.dense if own in same)


def able_pool(case: Case) -> Pool:
    """The pool with nothing free where a node lacks what the job must have."""
    assert case.pool is not None
    able = set(able_bays(case))
    unable = {name for bay, name in enumerate(case.pool.nodes) if bay not in able}
    return case.pool.without(unable)


def ranks_by_slot(layout: Layout, order: Sequence[Dim], count: int = 0) -> list[int]:
    """By slot, the rank that sits there; `count`: of so many slots at least, 0: of all."""
    found = [0]
    for dim in order:
        if 0 < count <= len(found):
            break
        stride = layout.stride(dim)
        found = [rank + at * stride for at in range(layout.degree(dim)) for rank in found]
    return found


def strays(ground: Ground, request: Request, placement: Placement) -> str:
    """Why a placement breaks a block, "" where all lie together."""
    row = [part.shelf for part in placement for _ in range(part.nodes)]
    for block in request.blocks:
        level = ground.levels[block.height]
        for at in range(0, len(row), block.nodes):
            if len({level[shelf] for shelf in row[at : at + block.nodes]}) > 1:
                return f"nodes {at} to {at + block.nodes - 1} in a row lie below several switches"
    return ""
