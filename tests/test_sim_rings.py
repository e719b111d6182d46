"""Promises of rings and trees: they run between the places that NCCL's own logs name.

Logs that people published say in which order a ring visits the ranks (`Channel`), and who is whose
child in a tree (`Trees`, child/child/child->rank->parent). Compared is what crosses between nodes,
by the NIC that it crosses; docs/jobs.md says what these logs cannot show.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from nemesis.sim.jobs.rings import Pattern, edges

Crossing = frozenset[tuple[int, int]]
"""Two NICs: their nodes, and their numbers there."""

# NVIDIA/nccl, issue 514: four nodes of eight A100 and four NICs, NCCL cuts lines off at 20 ranks
FOUR_NODES = """
Channel 00/08 :    0   7   6   5   4   3   2   1   8  15  14  13  12  11  10   9  16  23  22  21
Channel 01/08 :    0   3  10  15  14  13  12   9   8  11  18  23  22  21  20  17  16  19  26  31
Channel 02/08 :    0   7   6   5  12  11  10   9   8  15  14  13  20  19  18  17  16  23  22  21
Channel 03/08 :    0   5   4   7  14  11  10   9   8  13  12  15  22  19  18  17  16  21  20  23
"""
# NVIDIA/nccl, issue 1412: two nodes of eight GPUs and four NICs, InfiniBand
TWO_NODES = """
Channel 00/08 :    0   5   4   7   6   3   2   1   8  13  12  15  14  11  10   9
Channel 01/08 :    0   5   4   7   6   3  10   9   8  13  12  15  14  11   2   1
Channel 02/08 :    0   5   4   7  14  11  10   9   8  13  12  15   6   3   2   1
Channel 03/08 :    0   5  12  15  14  11  10   9   8  13   4   7   6   3   2   1
"""
# NVIDIA/nccl, issue 1189: two nodes of two H20, ranks 0 and 1; [0] to [3] are the first tree
TWO_PAIRS = """
1 Trees [0] -1/-1/-1->1->0 [1] 0/3/-1->1->-1 [4] -1/-1/-1->1->0 [5] 0/-1/-1->1->3
0 Trees [0] 1/2/-1->0->-1 [1] -1/-1/-1->0->1 [4] 1/-1/-1->0->2 [5] -1/-1/-1->0->1
"""
# tomaslaz.github.io/scale-ops/net_2: four nodes of one GPU
FOUR_SINGLES = """
3 Trees [0] -1/-1/-1->3->2 [1] 1/-1/-1->3->-1
1 Trees [0] -1/-1/-1->1->2 [1] 2/0/-1->1->3
2 Trees [0] 1/3/-1->2->0 [1] -1/-1/-1->2->1
0 Trees [0] 2/-1/-1->0->-1 [1] -1/-1/-1->0->1
"""
# NVIDIA/nccl, issue 226: 64 nodes of one GPU, NCCL 2.4; what is connected because of the tree
SIXTY_FOUR_SINGLES = (
    "35-34 34-33 16-32 43-42 36-40 50-52 42-41 39-38 22-21 30-29 16-24 24-28 0-32 56-52 62-61 "
    "56-60 23-22 27-26 31-30 25-26"
)


def visited(log: str) -> Iterator[list[int]]:
    for line in log.strip().splitlines():
        yield [int(rank) for rank in line.partition(":")[2].split()]


def crossings(pairs: Iterator[tuple[int, int]], gpus: int, nics: int) -> set[Crossing]:
    """Of pairs of ranks those on two nodes; neighbouring GPUs share a NIC."""
    per_nic = gpus // nics
    return {
        frozenset((rank // gpus, rank % gpus // per_nic) for rank in pair)
        for pair in pairs
        if pair[0] // gpus != pair[1] // gpus
    }


def simulated(pattern: Pattern, nodes: int, gpus: int, nics: int) -> set[Crossing]:
    places = [(f"n{node}", index) for node in range(nodes) for index in range(gpus)]
    numbers = {place: rank for rank, place in enumerate(places)}
    found = edges(pattern, places, [node for node, _ in places])
    return crossings(((numbers[one], numbers[two]) for one, two in found), gpus, nics)


def tree_pairs(log: str) -> Iterator[tuple[int, int]]:
    for line in log.strip().splitlines():
        for children, rank, parent in re.findall(r"(\S+)->(\d+)->(-?\d+)", line):
            others = (int(each) for each in (*children.split("/"), parent))
            yield from ((int(rank), other) for other in others if other >= 0)


def test_a_ring_of_two_nodes_crosses_between_the_same_nics_as_in_nccls_log() -> None:
    real: set[Crossing] = set()
    for ranks in visited(TWO_NODES):
        real |= crossings(zip(ranks, [*ranks[1:], ranks[0]], strict=True), 8, 4)
    assert real == simulated("ring", 2, 8, 4)


def test_rings_of_four_nodes_visit_them_in_rank_order_and_keep_to_a_rail() -> None:
    ours = simulated("ring", 4, 8, 4)
    rails: set[int] = set()
    for ranks in visited(FOUR_NODES):
        real = crossings(pairwise(ranks), 8, 4)
        assert len(real) >= 2
        assert real <= ours
        rails |= {nic for crossing in real for _, nic in crossing}
        nodes = list(dict.fromkeys(rank // 8 for rank in ranks))
        assert nodes == sorted(nodes)
    assert rails == {0, 1, 2, 3}, "each channel has a NIC of its own"


@pytest.mark.parametrize(
    ("log", "nodes", "gpus"), [(FOUR_SINGLES, 4, 1), (TWO_PAIRS, 2, 2)], ids=["4 x 1", "2 x 2"]
)
def test_both_trees_join_the_nodes_that_nccls_log_names(log: str, nodes: int, gpus: int) -> None:
    real = crossings(tree_pairs(log), gpus, gpus)
    assert real == simulated("tree", nodes, gpus, gpus)


def test_a_tree_of_64_nodes_has_every_edge_that_nccl_connected() -> None:
    pairs = (each.split("-") for each in SIXTY_FOUR_SINGLES.split())
    real = crossings(((int(one), int(two)) for one, two in pairs), 1, 1)
    assert len(real) == 20
    assert real <= simulated("tree", 64, 1, 1)
