"""Other schedulers, each held to the examples of its own documents."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.placement.baselines.kai import kai
from nemesis.processors.placement.baselines.kubernetes import (
    Host,
    Pod,
    kubernetes,
    nodes_looked_for,
)
from nemesis.processors.placement.baselines.kueue import kueue, kueue_balanced
from nemesis.processors.placement.baselines.plain import at_random, packed
from nemesis.processors.placement.baselines.slurm import slurm_block, slurm_tree
from nemesis.processors.placement.baselines.volcano import volcano
from nemesis.processors.placement.ground import Gang, Ground, Part, flaw
from tests.grounds import gangs, ground, grounds, nodes

# Kueue, KEP-2724


def test_kueue_best_fit_ends_with_the_node_that_just_holds_the_rest() -> None:
    """Nodes for 3, 3, 2 and 1 pods, 7 pods."""
    rack = ground((3, 3, 2, 1))
    assert nodes(kueue(rack, Gang(7), level=1)) == {0: 3, 1: 3, 3: 1}


def test_kueue_least_free_capacity_begins_with_the_fullest() -> None:
    found = kueue(ground((3, 3, 2, 1)), Gang(7), level=1, profile="least-free")
    assert nodes(found) == {3: 1, 2: 2, 0: 3, 1: 1}


def test_kueue_balanced_shares_evenly() -> None:
    """Its unit tests: 25 over 15 and 15; its documentation: 12 over 10 and 10."""
    assert nodes(kueue_balanced(ground((15, 15)), Gang(25))) == {0: 13, 1: 12}
    assert nodes(kueue_balanced(ground((10, 10)), Gang(12))) == {0: 6, 1: 6}
    assert nodes(kueue(ground((10, 10)), Gang(12), level=1)) == {0: 10, 1: 2}


def test_kueue_required_waits_where_preferred_climbs() -> None:
    rack = ground((4, 4), (1, 1))
    assert kueue(rack, Gang(6), level=1, required=True) == ()
    assert nodes(kueue(rack, Gang(6), level=1)) == {0: 4, 1: 2}


def test_kueue_slices_stay_on_one_domain() -> None:
    """kubernetes-sigs/kueue#9046: 96 replicas as groups of 48, of groups of 16."""
    halls = ground((60, 40, 30))
    assert nodes(kueue(halls, Gang(96, segment=48), level=1)) == {}
    assert nodes(kueue(halls, Gang(96, segment=16), level=1)) == {0: 48, 1: 32, 2: 16}


# Volcano, network topology aware scheduling: s0 to s3 of two nodes each, s4 and s5 above, s6 on top

TREE = Ground((2, 2, 2, 2), ((0, 0, 1, 1), (0, 0, 0, 0)))


def test_volcano_hard_mode_goes_no_higher_than_allowed() -> None:
    assert volcano(TREE, Gang(2), highest_tier=1) == (Part(0, 2),)
    assert volcano(TREE, Gang(3), highest_tier=1) == ()
    assert nodes(volcano(TREE, Gang(3), highest_tier=2)) == {0: 2, 1: 1}
    assert volcano(TREE, Gang(5), highest_tier=2) == ()
    assert sum(nodes(volcano(TREE, Gang(5), highest_tier=2, soft=True)).values()) == 5


def test_volcano_packs_hypernodes_that_are_in_use() -> None:
    """One of two HyperNodes is partly taken; what comes goes there, the other stays whole."""
    used = Ground((2, 1, 2, 2), TREE.tiers)
    assert volcano(used, Gang(1), highest_tier=1) == (Part(1, 1),)
    assert {TREE.tiers[0][s] for s in nodes(volcano(used, Gang(3), highest_tier=2))} == {0}


# KAI, topology awareness


def test_kai_packs_domains_and_spreads_over_the_emptiest_inside() -> None:
    racks = ground((3, 4, 1, 2, 8, 8), (4, 2))
    assert nodes(kai(racks, Gang(9), required=1)) == {0: 3, 1: 4, 3: 2}
    assert kai(racks, Gang(17), required=1) == ()


def test_kai_like_the_field_leaves_no_gang_half_placed() -> None:
    """NVIDIA/nvcf#598, the failure that its first-pod pinning had."""
    assert kai(ground((1, 2)), Gang(2), required=0) == (Part(1, 2),)


# Slurm, topology.html


def test_slurm_tree_takes_the_lowest_switch_then_the_smallest_leaf_that_is_enough() -> None:
    leaves = ground((4, 4, 2, 8, 6), (3, 2))
    assert nodes(slurm_tree(leaves, Gang(4))) == {0: 4}
    assert nodes(slurm_tree(leaves, Gang(9))) == {0: 4, 1: 4, 2: 1}
    assert nodes(slurm_tree(leaves, Gang(12))) == {3: 8, 4: 4}


def test_slurm_block_takes_aligned_rows_of_1_2_4_blocks() -> None:
    blocks = ground((18, 4, 18, 18))
    assert nodes(slurm_block(blocks, Gang(18))) == {0: 18}
    assert nodes(slurm_block(blocks, Gang(20))) == {0: 18, 1: 2}
    assert nodes(slurm_block(blocks, Gang(36))) == {2: 18, 3: 18}
    assert nodes(slurm_block(blocks, Gang(37))) == {0: 18, 2: 18, 1: 1}


def test_slurm_segments_stay_in_a_block() -> None:
    assert slurm_block(ground((17, 17)), Gang(18, segment=18)) == ()
    assert nodes(slurm_block(ground((17, 17)), Gang(16, segment=8))) == {0: 16}


# Kubernetes, schedule_one.go


@pytest.mark.parametrize(("count", "looked"), [(99, 99), (100, 100), (1000, 420), (6000, 300)])
def test_kubernetes_looks_at_a_share_of_nodes(count: int, looked: int) -> None:
    assert nodes_looked_for(count) == looked


def host(gpus: int = 8, cpu_used: int = 0) -> Host:
    return Host(gpus_free=gpus, cpu_milli=192_000, memory_mib=2_000_000, cpu_milli_used=cpu_used)


ONE = Pod(gpus=1, cpu_milli=16_000, memory_mib=128_000)


def test_kubernetes_spreads_pods_of_one_gpu_over_nodes() -> None:
    bound = kubernetes([host() for _ in range(8)], [ONE] * 8, lambda ties: 0)
    assert sorted(bound.nodes) == list(range(8))


def test_kubernetes_does_not_see_how_full_gpus_are() -> None:
    bound = kubernetes([host(gpus=8, cpu_used=1000), host(gpus=1)], [ONE], lambda ties: 0)
    assert bound.nodes == (1,)


def test_kubernetes_lets_two_gangs_hold_half_each() -> None:
    """Without gangs: eight nodes, two jobs of six, whose pods come in turn."""
    whole = Pod(gpus=8, cpu_milli=128_000, memory_mib=1_000_000)
    bound = kubernetes([host() for _ in range(8)], [whole] * 12, lambda ties: 0)
    first = [node for node in bound.nodes[0::2] if node >= 0]
    second = [node for node in bound.nodes[1::2] if node >= 0]
    assert (len(first), len(second)) == (4, 4)


def test_kubernetes_splits_a_domain_over_racks() -> None:
    """dra-driver-nvidia-gpu#804: pods of one NVLink domain land in different racks."""
    tray = Pod(gpus=4, cpu_milli=128_000, memory_mib=1_000_000)
    racks = 33
    dice = Random(1)
    bound = kubernetes([host(4) for _ in range(racks * 18)], [tray] * 18, dice.randrange)
    assert len({node // 18 for node in bound.nodes}) > racks // 3


def test_packing_knows_no_switches() -> None:
    assert nodes(packed(ground((8, 1, 8, 1), (2, 2)), Gang(3))) == {1: 1, 3: 1, 0: 1}


@given(grounds(40), gangs, st.integers(0, 2**32))
def test_every_baseline_places_whole_gangs_where_there_is_room(
    place: Ground, gang: Gang, seed: int
) -> None:
    dice = Random(seed)
    room = sum(free // gang.segment for free in place.free) >= gang.segments
    for found in (
        kueue(place, gang),
        kueue_balanced(place, gang),
        volcano(place, gang),
        kai(place, gang),
        slurm_tree(place, gang),
        slurm_block(place, gang),
        packed(place, gang),
        at_random(place, gang, lambda slots: dice.randrange(len(slots))),
    ):
        assert bool(found) == room
        assert not found or flaw(place, gang, found) == ""
