"""What HiGHS proposes, checked in whole numbers, against all placements there are."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.actors.solver.highs import solve
from nemesis.actors.solver.prices import least
from nemesis.actors.solver.together import together
from nemesis.processors.placement.baselines.arnold import arnold_placements, arnold_program
from nemesis.processors.placement.bounds import lower_bound
from nemesis.processors.placement.counts import (
    Answer,
    flaws,
    judge,
    program,
    proposal,
    total,
    values_of,
)
from nemesis.processors.placement.exhaustive import optimum
from nemesis.processors.placement.ground import Gang, Ground, cost
from nemesis.processors.placement.priced import Prices, level_of, priced
from tests.grounds import gangs, ground, grounds, nodes

WEIGHTS = (5, 11)


def small(dice: Random) -> tuple[Ground, list[Gang]]:
    """At most twelve free nodes on two to six shelves, one or two gangs."""
    shelves = dice.randint(2, 6)
    free = [0] * shelves
    for _ in range(dice.randint(4, 12)):
        free[dice.randrange(shelves)] += 1
    cut = dice.randint(1, shelves - 1)
    sizes = [(dice.randint(1, 4), dice.randint(1, 2)) for _ in range(dice.randint(1, 2))]
    return (
        ground(tuple(free), (cut, shelves - cut)),
        [Gang(count * segment, segment) for count, segment in sizes],
    )


def test_the_optimum_of_500_small_clusters_is_found_and_called_so() -> None:
    dice, tried = Random(8), 0
    while tried < 500:
        place, some = small(dice)
        best = optimum(place, some, WEIGHTS)
        own, answer = together(place, some, [WEIGHTS] * len(some), seconds=10)
        found = judge(place, some, WEIGHTS, program=own, answer=answer)
        assert bool(found.placements) == bool(best)
        if best:
            tried += 1
            assert found.cost == found.bound == total(place, best, WEIGHTS)
            assert found.status == "optimal"
            assert flaws(place, some, found.placements) == ""


PLACE = ground((4, 4, 3, 2), (2, 2))
GANGS = [Gang(5), Gang(4, segment=2)]


prices = st.lists(st.integers(0, 40), min_size=3, max_size=3)


@given(grounds(), st.lists(gangs, min_size=1, max_size=3), prices, prices)
def test_no_prices_show_more_than_the_best_placement_costs(
    place: Ground, some: list[Gang], segment: list[int], touch: list[int]
) -> None:
    best = optimum(place, some, WEIGHTS)
    if not best:
        return
    for height, weight in enumerate(WEIGHTS):
        own = [weight if at == height else 0 for at in range(len(WEIGHTS))]
        level = level_of(place, height, some, [weight] * len(some))
        count = len(some)
        shown = priced(level, Prices(tuple(segment[:count]), tuple(touch[:count]), 4))
        assert shown.bound <= total(place, optimum(place, some, own), own)


@given(grounds(), st.lists(gangs, min_size=1, max_size=3))
def test_the_bound_of_prices_lies_between_that_of_each_gang_alone_and_the_optimum(
    place: Ground, some: list[Gang]
) -> None:
    best = optimum(place, some, WEIGHTS)
    if best:
        found = sum(least(place, some, [WEIGHTS] * len(some), seconds=5))
        assert lower_bound(place, some, WEIGHTS) <= found <= total(place, best, WEIGHTS)


def test_gangs_that_compete_are_bounded_together() -> None:
    """Three gangs of two on two leaves of three: each alone needs one leaf, one is torn."""
    place, some = ground((3, 3)), [Gang(2)] * 3
    assert lower_bound(place, some, (1,)) == 3
    assert least(place, some, [(1,)] * 3, seconds=5) == (4,)


def test_a_start_is_the_placement_that_it_was_made_of() -> None:
    own = program(PLACE, GANGS, [WEIGHTS] * len(GANGS))
    first = judge(PLACE, GANGS, WEIGHTS)
    values = values_of(own, PLACE, GANGS, first.placements)
    again = proposal(own, GANGS, Answer(values, 0.0, "given"))
    assert [nodes(each) for each in again] == [nodes(each) for each in first.placements]
    assert sum(c * v for c, v in zip(own.mip.costs, values, strict=True)) == first.cost
    answer = solve(own.mip, seconds=10, start=values)
    assert judge(PLACE, GANGS, WEIGHTS, program=own, answer=answer).status == "optimal"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda values: (9, *values[1:]), "gang 0 "),
        (lambda values: tuple(0 for _ in values), "gang 0 has 0 nodes, not 5"),
        (lambda values: (-1, *values[1:]), "gang 0 "),
    ],
)
def test_a_proposal_that_cannot_be_is_refused_and_our_own_holds(change: object, word: str) -> None:
    own = program(PLACE, GANGS, [WEIGHTS] * len(GANGS))
    answer = solve(own.mip, seconds=10)
    wrong = replace(answer, values=change(answer.values))  # type: ignore[operator]
    found = judge(PLACE, GANGS, WEIGHTS, program=own, answer=wrong)
    assert word in found.refused
    assert found.source == "subtree"
    assert flaws(PLACE, GANGS, found.placements) == ""


def test_a_bound_above_what_is_already_there_is_not_believed() -> None:
    own = program(PLACE, GANGS, [WEIGHTS] * len(GANGS))
    found = judge(PLACE, GANGS, WEIGHTS, program=own, answer=Answer((), 1e9, "nonsense"))
    assert found.bound_by == "prefix"
    assert found.bound <= found.cost


def test_without_time_our_own_placement_stands_with_its_bound() -> None:
    found = judge(PLACE, GANGS, WEIGHTS)
    assert (found.source, found.bound_by) == ("subtree", "prefix")
    assert found.gap_ppm == (found.cost - found.bound) * 1_000_000 // found.cost


def test_no_room_is_said_and_not_forced() -> None:
    found = judge(PLACE, [Gang(14)], WEIGHTS)
    assert (found.status, found.placements, found.gap_ppm) == ("none", (), 0)


def test_arnold_keeps_groups_together_on_few_minipods() -> None:
    """Its two minipods of six: three groups of four nodes; one has to be spread."""
    place = ground((3, 3, 3, 3), (2, 2))
    groups = [Gang(4)] * 3
    answer = solve(arnold_program(place, groups), seconds=10)
    placements = arnold_placements(place, groups, answer)
    assert flaws(place, groups, placements) == ""
    assert [cost(place, each, (0, 1)) for each in placements].count(2) == 1
    assert answer.bound == 2 + 2


def test_arnold_uses_one_minipod_where_one_is_enough() -> None:
    place = ground((4, 4, 6, 6), (2, 2))
    groups = [Gang(4)] * 3
    placements = arnold_placements(place, groups, solve(arnold_program(place, groups), seconds=10))
    assert {place.tiers[0][shelf] for each in placements for shelf in nodes(each)} == {1}
