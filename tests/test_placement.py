"""Where the nodes of a gang lie: our own rule, bounds, and the judge that tries everything."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.placement.aligned import aligned
from nemesis.processors.placement.bounds import fewest, lower_bound
from nemesis.processors.placement.counts import flaws, greedy, total
from nemesis.processors.placement.exchange import exchanged
from nemesis.processors.placement.exhaustive import optimum
from nemesis.processors.placement.ground import (
    Gang,
    Ground,
    Part,
    Placement,
    cost,
    flaw,
    ground_of,
)
from nemesis.processors.placement.subtree import best_fit
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.pool import pool_of
from tests.grounds import gangs, ground, grounds, nodes
from tests.pools import nvl72, pool

WEIGHTS = (5, 11)
"""A shelf more and a pod more."""


def test_the_tightest_shelf_that_holds_a_gang_gets_it() -> None:
    assert best_fit(ground((8, 5, 4, 3)), Gang(4)) == (Part(2, 4),)


def test_a_gang_stays_in_the_tightest_pod_that_holds_it_on_few_shelves() -> None:
    wide = ground((8, 8, 8, 7, 7, 4), (3, 3))
    assert best_fit(wide, Gang(13)) == (Part(3, 7), Part(4, 6))
    assert nodes(best_fit(wide, Gang(16))) == {0: 8, 1: 8}


def test_a_segment_never_spans_two_shelves() -> None:
    assert best_fit(ground((3, 3, 3)), Gang(4, segment=4)) == ()
    assert nodes(best_fit(ground((3, 5, 3)), Gang(4, segment=2))) == {1: 4}
    assert nodes(best_fit(ground((3, 3, 3)), Gang(4, segment=2))) == {0: 2, 1: 2}


def test_whole_groups_of_ranks_stay_below_a_switch() -> None:
    """Pods of 7 and 9 nodes: best fit tears a group of four over both, blocks of four do not."""
    place = ground((4, 3, 5, 4), (2, 2))
    assert {place.tiers[0][part.shelf] for part in best_fit(place, Gang(12))} == {0, 1}
    pods = [
        place.tiers[0][part.shelf]
        for part in aligned(place, Gang(12), 1, 4)
        for _ in range(part.nodes)
    ]
    assert pods == [1] * 8 + [0] * 4
    assert aligned(place, Gang(16), 1, 4) == (), "three blocks are all there are"
    assert aligned(place, Gang(12), 1, 5) == (), "no whole number of blocks"


@given(grounds(40), gangs, st.integers(1, 4), st.integers(0, 1))
def test_a_block_never_spans_two_switches(
    place: Ground, gang: Gang, times: int, height: int
) -> None:
    block = gang.segment * times
    found = aligned(place, gang, height, block)
    if found:
        assert flaw(place, gang, found) == ""
        level = place.levels[height]
        row = [level[part.shelf] for part in found for _ in range(part.nodes)]
        starts = range(0, gang.nodes, block)
        assert all(len(set(row[at : at + block])) == 1 for at in starts)


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """NVIDIA/nvcf#598: the first pod went to the fullest clique, the second found no room there."""
    cliques = ground((1, 2))
    assert best_fit(cliques, Gang(2)) == (Part(1, 2),)
    assert best_fit(cliques, Gang(4)) == ()


@given(grounds(40), gangs)
def test_what_is_placed_can_be_placed_and_costs_no_less_than_the_bound(
    place: Ground, gang: Gang
) -> None:
    found = best_fit(place, gang)
    if not found:
        assert sum(free // gang.segment for free in place.free) < gang.segments
        return
    assert flaw(place, gang, found) == ""
    assert cost(place, found, WEIGHTS) >= lower_bound(place, [gang], WEIGHTS)


@given(grounds(), st.lists(gangs, min_size=1, max_size=2))
def test_nothing_beats_the_judge_and_the_judge_never_beats_the_bound(
    place: Ground, some: list[Gang]
) -> None:
    best = optimum(place, some, WEIGHTS)
    if not best:
        return
    least = sum(cost(place, each, WEIGHTS) for each in best)
    assert lower_bound(place, some, WEIGHTS) <= least
    now, total = place, 0
    for gang in some:
        found = best_fit(now, gang)
        if not found:
            return
        now, total = now.less(found), total + cost(place, found, WEIGHTS)
    assert least <= total


@given(grounds(), gangs)
def test_the_bound_of_one_gang_on_one_level_is_exact(place: Ground, gang: Gang) -> None:
    best = optimum(place, [gang], (1,))
    assert fewest(place, place.levels[0], gang) == (cost(place, best[0], (1,)) if best else 0)


@given(grounds(40), gangs, st.integers(0, 5))
def test_a_free_node_more_never_worsens_the_bound(place: Ground, gang: Gang, at: int) -> None:
    shelf = at % len(place.free)
    more = Ground(tuple(free + (own == shelf) for own, free in enumerate(place.free)), place.tiers)
    if lower_bound(place, [gang], WEIGHTS):
        assert lower_bound(more, [gang], WEIGHTS) <= lower_bound(place, [gang], WEIGHTS)


@given(grounds(), gangs, st.randoms(use_true_random=False))
def test_other_numbers_for_shelves_change_no_cost(place: Ground, gang: Gang, dice: object) -> None:
    order = list(range(len(place.free)))
    dice.shuffle(order)  # type: ignore[attr-defined]
    mixed = Ground(
        tuple(place.free[at] for at in order),
        tuple(tuple(tier[at] for at in order) for tier in place.tiers),
    )
    assert lower_bound(mixed, [gang], WEIGHTS) == lower_bound(place, [gang], WEIGHTS)
    costs = [
        [cost(each, found, WEIGHTS) for found in optimum(each, [gang], WEIGHTS)]
        for each in (place, mixed)
    ]
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((Part(0, 2),), "has 2 nodes, not 4"),
        ((Part(0, 3), Part(1, 1)), "segments of 2"),
        ((Part(0, 2), Part(0, 2)), "takes 4 nodes of shelf 0, where 3 are free"),
        ((Part(9, 4),), "a shelf that is not there"),
        ((Part(0, -2), Part(1, 6)), "segments of 2"),
    ],
)
def test_what_somebody_proposes_is_checked(parts: Placement, word: str) -> None:
    assert word in flaw(ground((3, 6)), Gang(4, segment=2), parts)


def test_a_pool_becomes_shelves_of_whole_free_nodes() -> None:
    place, names = ground_of(pool((3, 2), pods=(1, 1), free=(8, 7, 8, 8, 0)))
    assert place == Ground((2, 1), ((0, 1), (0, 0)))
    assert names == (("n001", "n003"), ("n004",))


def test_a_rack_of_trays_is_a_shelf() -> None:
    place, _ = ground_of(nvl72(3).without(["n001"]))
    assert place == Ground((17, 18, 18), ((0, 0, 0),))


def test_domains_inside_one_leaf_are_shelves_below_it() -> None:
    halves = replace(nvl72(2), tiers=((0,) * 36,))
    assert ground_of(halves)[0] == Ground((18, 18), ((0, 0),))


def test_real_leaves_of_2_to_8_hosts_are_used_sparingly() -> None:
    """alibaba-lingjun-dataset-2023: 119 leaves below three groups of spines."""
    place, _ = ground_of(pool_of(load_cluster(Path("lingjun-2023"))))
    found = best_fit(place, Gang(64))
    assert flaw(place, Gang(64), found) == ""
    assert len(found) == fewest(place, place.levels[0], Gang(64)) == 8
    assert len({place.tiers[0][part.shelf] for part in found}) == 1


@given(grounds(40), st.lists(gangs, min_size=2, max_size=6))
def test_an_exchange_holds_and_costs_no_more_and_ends_the_same(
    place: Ground, some: list[Gang]
) -> None:
    first = greedy(place, some)
    if not first:
        return
    better = exchanged(place, some, [WEIGHTS] * len(some), first, attempts_max=100)
    assert flaws(place, some, better) == ""
    assert total(place, better, WEIGHTS) <= total(place, first, WEIGHTS)
    assert better == exchanged(place, some, [WEIGHTS] * len(some), first, attempts_max=100)


def test_a_small_gang_makes_room_for_a_large_one() -> None:
    place = ground((8, 6, 4))
    some = [Gang(6), Gang(8)]
    wrong = ((Part(0, 6),), (Part(1, 6), Part(0, 2)))
    assert flaws(place, some, wrong) == ""
    better = exchanged(place, some, [WEIGHTS] * 2, wrong, attempts_max=10)
    assert [nodes(each) for each in better] == [{1: 6}, {0: 8}]
