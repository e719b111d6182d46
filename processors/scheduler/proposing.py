"""What a solver is asked about jobs that are about to start, and what becomes of its answer.

An advisor is asked, never obeyed: without an answer in time our own places are taken; an answer is
placed by the same rules, in whole numbers, and is taken only where all of its jobs hold and a step
of theirs takes less time together, or, where steps cannot be predicted, where they touch less. Only
jobs that the checker accepted and that have a place already are in a request: what was rejected, or
waits, never reaches a solver.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nemesis.processors.placement.bounds import lower_bound
from nemesis.processors.placement.ground import Part, Placement, ground_of
from nemesis.processors.placement.ranks import request_of
from nemesis.processors.scheduler.placing import MILLION, predicted_job, weights_of
from nemesis.processors.scheduler.queue import Outcome, Start
from nemesis.processors.scheduler.state import State
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.scheduled import GangWanted, PlacementProposed, PlacementRequested


def starts_of(outcomes: Sequence[Outcome]) -> list[Start]:
    """The jobs that get nodes."""
    return [each for each in outcomes if isinstance(each, Start)]


def request_for(
    state: State, starts: Sequence[Start], free: Pool, now_ns: int, wait_ns: int
) -> PlacementRequested | None:
    """What to ask; None where nothing can be gained. Jobs of one kind of node are asked together.

    `free`: what there was before any of them.
    """
    first = starts[0].case.pool
    assert first is not None
    ground, _ = ground_of(free.only(set(first.nodes)))
    gangs: list[GangWanted] = []
    cost = bound = 0
    for start in starts:
        case = start.case
        assert case.pool is not None
        if case.pool.nodes != first.nodes:
            continue
        assert start.name in state.queue, "only who waits is asked about"
        gang = request_of(case, ground).gang
        weights = weights_of(case, predicted_job(case), len(ground.levels))
        cost += start.place.quality.objective
        bound += lower_bound(ground, [gang], weights)
        gangs.append(
            GangWanted(job=start.name, nodes=gang.nodes, segment=gang.segment, weights=weights)
        )
    if cost <= bound:
        return None
    return PlacementRequested(
        at_ns=now_ns,
        reason=f"{len(gangs)} jobs have a place that is not proven to be the best",
        request=f"placement-{state.asked_count + 1}",
        deadline_ns=now_ns + wait_ns,
        free=ground.free,
        tiers=ground.tiers,
        gangs=tuple(gangs),
    )


def proposals_in(proposed: PlacementProposed | None) -> Mapping[str, Placement]:
    """Placements by job; an answer that contradicts itself proposes nothing."""
    if proposed is None:
        return {}
    return {
        gang.job: tuple(
            Part(shelf, nodes) for shelf, nodes in zip(gang.shelves, gang.nodes, strict=True)
        )
        for gang in proposed.gangs
        if len(gang.shelves) == len(gang.nodes)
    }


def sharpened(outcomes: Sequence[Outcome], proposed: PlacementProposed | None) -> list[Outcome]:
    """The same with a solver's bound, where it was asked about one job and it can be true."""
    starts = starts_of(outcomes)
    if proposed is None or len(starts) != 1 or len(proposed.gangs) != 1:
        return [*outcomes]
    start, bound = starts[0], proposed.bound
    quality = start.place.quality
    if proposed.gangs[0].job != start.name or not quality.bound < bound <= quality.objective:
        return [*outcomes]
    quality = replace(
        quality,
        bound=bound,
        bound_by="solver",
        status="optimal" if bound == quality.objective else "feasible",
        gap_ppm=(quality.objective - bound) * MILLION // quality.objective,
    )
    known = replace(start, place=replace(start.place, quality=quality))
    return [known if each is start else each for each in outcomes]


def better(own: Sequence[Outcome], other: Sequence[Outcome]) -> bool:
    """Whether the others start the same jobs and are better off together."""
    mine, theirs = starts_of(own), starts_of(other)
    if [each.name for each in mine] != [each.name for each in theirs]:
        return False
    return _badness(theirs) < _badness(mine)


def _badness(starts: Sequence[Start]) -> tuple[int, int]:
    qualities = [start.place.quality for start in starts]
    return sum(each.step_ns for each in qualities), sum(each.objective for each in qualities)
