"""What HiGHS proposes, checked in whole numbers, against all placements there are."""

from random import Random

import pytest
from msgspec.structs import replace

from nemesis.actors.solver.highs import solve
from nemesis.processors.placement.baselines.arnold import arnold_placements, arnold_program
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
from tests.grounds import ground, nodes

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
        place, gangs = small(dice)
        best = optimum(place, gangs, WEIGHTS)
        own = program(place, gangs, [WEIGHTS] * len(gangs))
        answer = solve(own.mip, seconds=10)
        found = judge(place, gangs, WEIGHTS, program=own, answer=answer)
        assert bool(found.placements) == bool(best)
        if best:
            tried += 1
            assert found.cost == found.bound == total(place, best, WEIGHTS)
            assert found.status == "optimal"
            assert flaws(place, gangs, found.placements) == ""


PLACE = ground((4, 4, 3, 2), (2, 2))
GANGS = [Gang(5), Gang(4, segment=2)]


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
