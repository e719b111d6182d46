"""Where one job would go now: candidates by every rule, the best of those that hold, and its bound.

Of two placements the one on fewer groups of the highest tier is better, then on fewer of the next,
down to shelves. The bound is the prefix bound of each level. Every candidate is checked in whole
numbers, also our own.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from nemesis.processors.parallelism.case import Case
from nemesis.processors.placement.baselines.kai import kai
from nemesis.processors.placement.baselines.kueue import kueue, kueue_balanced
from nemesis.processors.placement.baselines.plain import packed
from nemesis.processors.placement.baselines.slurm import slurm_block, slurm_tree
from nemesis.processors.placement.baselines.volcano import volcano
from nemesis.processors.placement.bounds import fewest
from nemesis.processors.placement.ground import Gang, Ground, Part, Placement, cost, flaw, ground_of
from nemesis.processors.placement.ranks import (
    Request,
    able_pool,
    ranks_by_slot,
    request_of,
    strays,
)
from nemesis.processors.placement.subtree import best_fit
from nemesis.processors.topology.pool import TIER_NAMES

Rule = Callable[[Ground, Gang], Placement]
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("subtree", best_fit),
    ("kueue", kueue),
    ("kueue balanced", kueue_balanced),
    ("volcano", volcano),
    ("kai", kai),
    ("slurm tree", slurm_tree),
    ("slurm block", slurm_block),
    ("packed", packed),
)
"""The first of equals is taken."""


class Candidate(msgspec.Struct, frozen=True):
    """What one rule would do."""

    rule: str
    touched: tuple[int, ...]
    """By level, groups that it touches; () where it has no placement that holds."""
    refused: str = ""


class Seat(msgspec.Struct, frozen=True):
    """A node of the plan and its ranks, GPU by GPU."""

    node: str
    ranks: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job would go."""

    seats: tuple[Seat, ...]
    """() where no rule found a placement that holds."""
    rule: str
    touched: tuple[int, ...]
    fewest: tuple[int, ...]
    """By level, what no placement can go below."""
    candidates: tuple[Candidate, ...]
    levels: tuple[str, ...]
    """What the levels are called."""
    order: tuple[str, ...]
    """Dims with their degrees along the row of nodes, the closest first."""

    @property
    def optimal(self) -> bool:
        """On each level nothing touches fewer groups."""
        return bool(self.seats) and self.touched == self.fewest


def plan_of(case: Case) -> Plan:
    """The best placement that any rule finds for a job that the checker accepted."""
    ground, names = ground_of(able_pool(case))
    request = request_of(case, ground)
    rules = (*RULES, ("blocks", _by_blocks(request)))
    found = [(name, rule(ground, request.gang)) for name, rule in rules]
    candidates = tuple(_candidate(ground, request, name, placement) for name, placement in found)
    holding = [
        (tuple(reversed(each.touched)), at) for at, each in enumerate(candidates) if each.touched
    ]
    least = tuple(fewest(ground, level, request.gang) for level in ground.levels)
    _, at = min(holding, default=((), -1))
    return Plan(
        seats=_seats(case, request, found[at][1], names) if holding else (),
        rule=found[at][0] if holding else "",
        touched=candidates[at].touched if holding else (),
        fewest=least,
        candidates=candidates,
        levels=_level_names(case, ground),
        order=tuple(f"{dim}{case.layout.degree(dim)}" for dim in request.order),
    )


def _level_names(case: Case, ground: Ground) -> tuple[str, ...]:
    """Shelves are leaves, or NVLink domains below them."""
    assert case.pool is not None
    names = TIER_NAMES[: case.pool.depth]
    more = ("fabric",) * (case.pool.depth - len(names))
    below = ("NVLink domain",) * (len(ground.levels) - case.pool.depth)
    return (*below, *names, *more)


def _by_blocks(request: Request) -> Rule:
    """Block by block of the outermost ones, each inside one group."""

    def rule(ground: Ground, gang: Gang) -> Placement:
        if not request.blocks:
            return ()
        block = request.blocks[-1]
        level, found = ground.levels[block.height], list[Part]()
        for size in [block.nodes] * (gang.nodes // block.nodes) + [gang.nodes % block.nodes]:
            part = best_fit(ground, Gang(size, gang.segment)) if size else ()
            if size and len({level[each.shelf] for each in part}) != 1:
                return ()
            found += part
            ground = ground.less(part)
        return tuple(found)

    return rule


def _candidate(ground: Ground, request: Request, name: str, placement: Placement) -> Candidate:
    if not placement:
        return Candidate(name, ())
    refused = flaw(ground, request.gang, placement) or strays(ground, request, placement)
    if refused:
        return Candidate(name, (), refused)
    return Candidate(name, _touched(ground, placement))


def _touched(ground: Ground, placement: Placement) -> tuple[int, ...]:
    """By level, how many groups a placement touches."""
    return tuple(
        cost(ground, placement, [int(at == height) for at in range(len(ground.levels))])
        for height in range(len(ground.levels))
    )


def _seats(
    case: Case, request: Request, placement: Placement, names: Sequence[Sequence[str]]
) -> tuple[Seat, ...]:
    """Nodes in a row with the ranks of their slots; a shelf's nodes are taken in their order."""
    ranks = ranks_by_slot(case.layout, request.order)
    used: dict[int, int] = {}
    row: list[str] = []
    for part in placement:
        first = used.get(part.shelf, 0)
        row += names[part.shelf][first : first + part.nodes]
        used[part.shelf] = first + part.nodes
    starts = accumulate([request.node_gpus] * len(row), initial=0)
    return tuple(
        Seat(node, tuple(ranks[at : at + request.node_gpus]))
        for node, at in zip(row, starts, strict=False)
    )
