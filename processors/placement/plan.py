"""Where one job would go now: candidates by every rule, the best of those that hold, and bounds.

Of two placements that one is better whose step is predicted shorter, where model and batch are
known; then the one on fewer groups of the highest tier, of the next, down to shelves. The nodes of
each are then given to ranks in every order that keeps together what must be, and the shortest step
of all is taken: which dim may cross a tapered tier is worth more than a leaf.

Two bounds: no placement touches fewer groups than the prefix bound of each level, and no step is
shorter than with every group alone at its best place. Every candidate is checked in whole numbers,
also our own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.mfu.step import Job, predict
from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.spec import Dim
from nemesis.processors.placement.aligned import aligned, blocks_of
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
    row_orders,
    strays,
)
from nemesis.processors.placement.reach import least_spans, spans_of
from nemesis.processors.placement.subtree import best_fit
from nemesis.processors.topology.pool import TIER_NAMES, Pool

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
    step_ns: int = 0
    """Predicted; 0: not known."""
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
    step_ns: int = 0
    step_ns_least: int = 0
    """With every group at its best place; 0: not known."""
    mfu_ppm: int = 0

    @property
    def optimal(self) -> bool:
        """On each level nothing touches fewer groups."""
        return bool(self.seats) and self.touched == self.fewest


class _Found(msgspec.Struct, frozen=True):
    """A candidate with all that a plan needs of it."""

    candidate: Candidate
    placement: Placement
    order: tuple[Dim, ...]
    mfu_ppm: int


def plan_of(case: Case, job: Job | None = None, proposed: tuple[str, Placement] = ("", ())) -> Plan:
    """The best placement that any rule finds for a job that the checker accepted.

    `job`: the same at its best place, where its step can be predicted (`mfu.planned.job_of`).
    `proposed`: by whom, and a placement that is looked at in place of those of the rules.
    """
    pool = able_pool(case)
    ground, names = ground_of(pool)
    request = request_of(case, ground)
    told = _Predictor(case, job, pool, names, request.node_gpus)
    found: list[_Found] = []
    orders = row_orders(case, request.order, request.node_gpus)
    rules = [*RULES, ("blocks", _by_blocks(request))]
    if job is not None:
        rules += _aligned(case, ground, request, orders)
    if proposed[1]:
        rules = [(proposed[0], lambda _ground, _gang: proposed[1])]
    for name, rule in rules:
        placement = rule(ground, request.gang)
        flawed = flaw(ground, request.gang, placement) if placement else ""
        refused = flawed or strays(ground, request, placement)
        if placement and not refused:
            found.append(_told(told, ground, name, placement, request.order))
        else:
            found.append(_Found(Candidate(name, (), refused=refused), (), (), 0))
    holding = [each for each in found if each.candidate.touched]
    if holding and job is not None:
        places = dict.fromkeys(each.placement for each in holding)
        roles = [
            _told(told, ground, "by role", place, order) for place in places for order in orders
        ]
        holding.append(min(roles, key=_badness))
        found.append(holding[-1])
    nothing = _Found(Candidate("", ()), (), request.order, 0)
    best = min(holding, key=_badness, default=nothing)
    return Plan(
        seats=told.seats(best.placement, best.order),
        rule=best.candidate.rule,
        touched=best.candidate.touched,
        fewest=tuple(fewest(ground, level, request.gang) for level in ground.levels),
        candidates=tuple(each.candidate for each in found),
        levels=_level_names(case, ground),
        order=tuple(f"{dim}{case.layout.degree(dim)}" for dim in best.order),
        step_ns=best.candidate.step_ns,
        step_ns_least=told.least_ns(),
        mfu_ppm=best.mfu_ppm,
    )


def _badness(found: _Found) -> tuple[int, tuple[int, ...]]:
    return found.candidate.step_ns, found.candidate.touched[::-1]


def _told(
    told: "_Predictor", ground: Ground, name: str, placement: Placement, order: tuple[Dim, ...]
) -> _Found:
    step_ns, mfu_ppm = told.step(placement, order)
    return _Found(Candidate(name, _touched(ground, placement), step_ns), placement, order, mfu_ppm)


class _Predictor:
    """Ranks on nodes, and what a step then takes; the same placement is predicted once."""

    def __init__(
        self,
        case: Case,
        job: Job | None,
        pool: Pool,
        names: Sequence[Sequence[str]],
        node_gpus: int,
    ) -> None:
        self._case, self._job, self._pool = case, job, pool
        self._names, self._node_gpus = names, node_gpus
        self._bays: dict[str, list[int]] = {}
        for bay, (name, count) in enumerate(zip(pool.nodes, pool.gpu_counts, strict=True)):
            self._bays.setdefault(name, []).extend([bay] * count)
        self._known: dict[tuple[Placement, tuple[Dim, ...]], tuple[int, int]] = {}

    def seats(self, placement: Placement, order: tuple[Dim, ...]) -> tuple[Seat, ...]:
        """Nodes in a row with the ranks of their slots; a shelf's are taken in their order."""
        ranks = ranks_by_slot(self._case.layout, order)
        used: dict[int, int] = {}
        row: list[str] = []
        for part in placement:
            first = used.get(part.shelf, 0)
            row += self._names[part.shelf][first : first + part.nodes]
            used[part.shelf] = first + part.nodes
        size = self._node_gpus
        return tuple(
            Seat(node, tuple(ranks[at * size : (at + 1) * size])) for at, node in enumerate(row)
        )

    def least_ns(self) -> int:
        """No placement has a shorter step, 0 where none can be predicted."""
        if self._job is None:
            return 0
        spans = least_spans(self._case.layout, max(self._pool.domain_widths.values()))
        return predict(replace(self._job, spans=spans)).step_ns

    def step(self, placement: Placement, order: tuple[Dim, ...]) -> tuple[int, int]:
        """(step in ns, MFU in ppm), zeros where it cannot be predicted."""
        if self._job is None:
            return 0, 0
        if (placement, order) not in self._known:
            home = [0] * self._case.layout.gpu_count
            for seat in self.seats(placement, order):
                for rank, bay in zip(seat.ranks, self._bays[seat.node], strict=False):
                    home[rank] = bay
            spans = spans_of(self._case.layout, self._pool, home)
            told = predict(replace(self._job, spans=spans))
            self._known[placement, order] = told.step_ns, told.mfu_ppm
        return self._known[placement, order]


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


def _aligned(
    case: Case, ground: Ground, request: Request, orders: Sequence[tuple[Dim, ...]]
) -> Iterator[tuple[str, Rule]]:
    """Groups of the job whole below each switch, for every size of group and every tier."""
    levels = _level_names(case, ground)
    for block in blocks_of(case.layout, orders, request.gang, request.node_gpus):
        for height in range(len(ground.levels) - 1):
            yield f"blocks {block}/{levels[height]}", partial(aligned, height=height, block=block)


def _touched(ground: Ground, placement: Placement) -> tuple[int, ...]:
    """By level, how many groups a placement touches."""
    return tuple(
        cost(ground, placement, [int(at == height) for at in range(len(ground.levels))])
        for height in range(len(ground.levels))
    )
