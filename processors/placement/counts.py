"""All gangs of a queue placed together: the program that a solver is asked, and what it proposed.

Variables are counts of segments by gang and shelf, and whether a gang touches a shelf or a group of
a tier; nodes of a shelf are not told apart, so the program has no symmetry of theirs. The objective
is `ground.cost`, summed over gangs. A proposal is checked here in whole numbers before it counts;
the solver's bound is taken on its word and named as such.
"""

from collections.abc import Sequence
from math import ceil
from typing import Literal

import msgspec

from nemesis.processors.placement.bounds import fewest, lower_bound
from nemesis.processors.placement.exchange import exchanged
from nemesis.processors.placement.ground import Gang, Ground, Part, Placement, cost, flaw
from nemesis.processors.placement.mip import Building, Mip
from nemesis.processors.placement.subtree import best_fit
from nemesis.processors.topology.pool import sums

SLACK = 1e-6
"""What a solver's bound may lie above a whole number without being the next one."""


Source = Literal["subtree", "exchange", "solver"]


class Program(msgspec.Struct, frozen=True):
    """The integer program and what its variables mean."""

    mip: Mip
    counts: tuple[tuple[int, int, int], ...]
    """(variable, gang, shelf) of every count."""
    uses: tuple[tuple[int, int, int, int], ...]
    """(variable, gang, level, group) of every choice."""


class Answer(msgspec.Struct, frozen=True):
    """What a solver said."""

    values: tuple[int, ...]
    """Of all variables; () where it found nothing."""
    bound: float
    """No solution costs less, it says."""
    status: str
    """In its own words."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Placements of all gangs that hold, and how good they are known to be."""

    placements: tuple[Placement, ...]
    """By gang; () where not all could be placed."""
    cost: int
    bound: int
    bound_by: Literal["prefix", "solver"]
    status: Literal["optimal", "feasible", "none"]
    source: Source
    refused: str = ""
    """Why a proposal was not taken."""

    @property
    def gap_ppm(self) -> int:
        """How far the cost may be above the best there is, in millionths of the cost."""
        return (self.cost - self.bound) * 1_000_000 // self.cost if self.cost else 0


def program(
    ground: Ground,
    gangs: Sequence[Gang],
    weights: Sequence[Sequence[int]],
    least: Sequence[int] = (),
) -> Program:
    """The program of placing all these gangs; `weights`: by gang, of each level.

    `least`: by level, what touching it is known to cost at least.
    """
    building = Building()
    counts: list[tuple[int, int, int]] = []
    uses: list[tuple[int, int, int, int]] = []
    on_shelf: dict[int, list[tuple[int, int]]] = {}
    for number, (gang, costs) in enumerate(zip(gangs, weights, strict=True)):
        own = _gang_rows(building, ground, gang, costs)
        counts += [(variable, number, shelf) for variable, shelf in own.counts]
        uses += [(variable, number, level, group) for variable, level, group in own.uses]
        for variable, shelf in own.counts:
            on_shelf.setdefault(shelf, []).append((variable, gang.segment))
    for shelf, sharing in on_shelf.items():
        columns, sizes = zip(*sharing, strict=True)
        building.row(columns, sizes, high=ground.free[shelf])
    for height, low in enumerate(least):
        alone = sum(
            own[height] * fewest(ground, ground.levels[height], gang)
            for gang, own in zip(gangs, weights, strict=True)
        )
        if low > alone:  # else each gang's own row says it, and a row more misleads the solver
            touching = [(variable, gang) for variable, gang, level, _ in uses if level == height]
            prices = [weights[gang][height] for _, gang in touching]
            building.row([variable for variable, _ in touching], prices, low=low)
    return Program(building.built(), tuple(counts), tuple(uses))


class _Own(msgspec.Struct):
    """One gang's variables: (variable, shelf), (variable, level, group)."""

    counts: list[tuple[int, int]]
    uses: list[tuple[int, int, int]]


def _gang_rows(building: Building, ground: Ground, gang: Gang, weights: Sequence[int]) -> _Own:
    """A gang is whole, and pays for what it touches: at least what the prefix bound says."""
    room = {s: free // gang.segment for s, free in enumerate(ground.free) if free >= gang.segment}
    counts = [(building.variable(min(most, gang.segments)), s) for s, most in room.items()]
    building.row([v for v, _ in counts], [1] * len(counts), low=gang.segments, high=gang.segments)
    uses: list[tuple[int, int, int]] = []
    for height, (weight, level) in enumerate(zip(weights, ground.levels, strict=False)):
        chosen = {group: building.variable(1, weight) for group in {level[s]: 0 for s in room}}
        uses += [(variable, height, group) for group, variable in chosen.items()]
        for variable, shelf in counts:
            most = min(room[shelf], gang.segments)
            building.row([variable, chosen[level[shelf]]], [1, -most], high=0)
        building.row(list(chosen.values()), [1] * len(chosen), low=fewest(ground, level, gang))
    return _Own(counts, uses)


def values_of(
    program: Program, ground: Ground, gangs: Sequence[Gang], placements: Sequence[Placement]
) -> tuple[int, ...]:
    """The values that placements of these gangs mean, for a solver to start from."""
    values = [0] * len(program.mip.costs)
    taken = [sums([p.shelf for p in own], [p.nodes for p in own]) for own in placements]
    for variable, gang, shelf in program.counts:
        values[variable] = taken[gang].get(shelf, 0) // gangs[gang].segment
    for variable, gang, level, group in program.uses:
        values[variable] = int(any(ground.levels[level][shelf] == group for shelf in taken[gang]))
    return tuple(values)


def greedy(
    ground: Ground, gangs: Sequence[Gang], order: Sequence[int] = ()
) -> tuple[Placement, ...]:
    """Best fit by subtree, in this order or the largest gang first; () where one has no place."""
    found: dict[int, Placement] = {}
    for number in order or sorted(range(len(gangs)), key=lambda at: (-gangs[at].nodes, at)):
        placement = best_fit(ground, gangs[number])
        if not placement:
            return ()
        found[number], ground = placement, ground.less(placement)
    return tuple(found[number] for number in range(len(gangs)))


def judge(
    ground: Ground,
    gangs: Sequence[Gang],
    weights: Sequence[int],
    *,
    program: Program | None = None,
    answer: Answer | None = None,
    attempts_max: int = 0,
) -> Judged:
    """The best of our own placements and a solver's, once each is checked in whole numbers.

    `attempts_max`: exchanges of two gangs that may be tried on our own.
    """
    bound, bound_by = lower_bound(ground, gangs, weights), "prefix"
    own = greedy(ground, gangs)
    proposed: tuple[Placement, ...] = ()
    refused = ""
    if program is not None and answer is not None:
        solver_bound = ceil(answer.bound - SLACK)
        if solver_bound > bound:
            bound, bound_by = solver_bound, "solver"
        proposed = proposal(program, gangs, answer)
        refused = flaws(ground, gangs, proposed) if proposed else ""
    better: tuple[Placement, ...] = ()
    if own:
        better = exchanged(ground, gangs, [weights] * len(gangs), own, attempts_max=attempts_max)
    options: tuple[tuple[Source, tuple[Placement, ...]], ...] = (
        ("subtree", own),
        ("exchange", better),
        ("solver", () if refused else proposed),
    )
    choices: list[tuple[int, Source, tuple[Placement, ...]]] = [
        (total(ground, each, weights), name, each) for name, each in options if each
    ]
    if not choices:
        return Judged(
            placements=(),
            cost=0,
            bound=bound,
            bound_by="prefix",
            status="none",
            source="subtree",
            refused=refused,
        )
    cost_now, source, placements = min(choices, key=lambda each: each[0])  # the first of equals
    if bound > cost_now:  # a bound above what is there was wrong
        bound, bound_by = lower_bound(ground, gangs, weights), "prefix"
    return Judged(
        placements=placements,
        cost=cost_now,
        bound=bound,
        bound_by="solver" if bound_by == "solver" else "prefix",
        status="optimal" if bound == cost_now else "feasible",
        source=source,
        refused=refused,
    )


def total(ground: Ground, placements: Sequence[Placement], weights: Sequence[int]) -> int:
    """What all placements cost together."""
    return sum(cost(ground, each, weights) for each in placements)


def proposal(program: Program, gangs: Sequence[Gang], answer: Answer) -> tuple[Placement, ...]:
    """The placements that a solver's values mean, shelves in their order; () where it has none."""
    if len(answer.values) != len(program.mip.costs):
        return ()
    parts: list[list[Part]] = [[] for _ in gangs]
    for variable, gang, shelf in program.counts:
        if answer.values[variable]:
            parts[gang].append(Part(shelf, answer.values[variable] * gangs[gang].segment))
    return tuple(tuple(each) for each in parts)


def flaws(ground: Ground, gangs: Sequence[Gang], placements: Sequence[Placement]) -> str:
    """Why placements cannot be had together, "" where they can."""
    for number, (gang, placement) in enumerate(zip(gangs, placements, strict=True)):
        problem = flaw(ground, gang, placement)
        if problem:
            return f"gang {number} {problem}"
        ground = ground.less(placement)
    return ""
