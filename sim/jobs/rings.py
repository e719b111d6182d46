"""Which pairs of places a collective runs between: NCCL's rings and trees, drawn from rank order.

Pure. Nodes follow each other in the order of their lowest group ranks; inside an NVLink domain (a
node, or a rack of NVL72) everybody is reached over NVLink. There are as many channels as it has
members with a NIC of their own, and a channel enters and leaves it by one NIC (NVIDIA/nccl,
src/graph/connect.cc; NCCL_CROSS_NIC 0). Large collectives run on rings, all-reduces of a few bytes
on a double binary tree (src/graph/trees.cc), an all-to-all between all pairs.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final, Literal

Place = tuple[str, int]
"""A node, and the index of the GPU there and of the NIC that serves it."""
Pattern = Literal["ring", "tree", "pairs", "exchange"]
TREE_ELEMENTS_MAX: Final = 65_536
"""All-reduces up to here take the tree: NCCL's tuning prefers it below some hundred KiB."""


def pattern_of(operation: str, elements_count: int) -> Pattern:
    """How NCCL runs an operation, by its name in torch and its size."""
    match operation:
        case "all_to_all":
            return "pairs"
        case "exchange":
            return "exchange"
        case "all_reduce" if elements_count <= TREE_ELEMENTS_MAX:
            return "tree"
        case _:
            return "ring"


def edges(
    pattern: Pattern, places: Sequence[Place], domains: Sequence[str]
) -> Iterator[tuple[Place, Place]]:
    """The pairs of places between which data leaves its NVLink domain, for members in order.

    `domains`: the NVLink domain of each place.
    """
    if pattern == "pairs":
        far = combinations(zip(places, domains, strict=True), 2)
        yield from ((one, two) for (one, here), (two, there) in far if here != there)
        return
    members: dict[str, list[Place]] = {}
    for place, domain in zip(places, domains, strict=True):
        members.setdefault(domain, []).append(place)
    units = list(members.values())
    if len(units) < 2:
        return
    order = list(ring_edges(len(units)) if pattern == "ring" else tree_edges(len(units)))
    for channel in range(min(map(len, units))):
        for one, two in order:
            yield units[one][channel], units[two][channel]


def ring_edges(count: int) -> Iterator[tuple[int, int]]:
    """Each with the next, the last with the first."""
    yield from pairwise(range(count))
    if count > 2:
        yield count - 1, 0


def tree_edges(count: int) -> Iterator[tuple[int, int]]:
    """Both trees of the double binary tree: child and parent."""
    for node in range(count):
        if (parent := _parent(node, count)) is not None:
            yield node, parent
    # the second tree is the first one shifted, or mirrored where the count is even
    for node in range(count):
        image = (node - 1) % count if count % 2 else count - 1 - node
        if (parent := _parent(image, count)) is not None:
            yield node, (parent + 1) % count if count % 2 else count - 1 - parent


def _parent(node: int, count: int) -> int | None:
    """In-order binary tree: the lowest set bit of a node is its height, node 0 is the root."""
    if node == 0:
        return None
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < count else node ^ bit
