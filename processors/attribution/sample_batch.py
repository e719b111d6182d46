"""Samples that are read together: one pass of numpy over many nodes instead of many over one.

Why: 2,500 samples a second pass through here, and of almost all of them nothing is to be said. How:
samples wait until another kind of fact, a second sample of a node or a snapshot needs what they
say; so what is concluded is the same as if each were read at once. Nothing that waits is state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.facts import Fact

Block = NDArray[np.int64]
BATCH_MAX: Final = 4096  # 25 MB of blocks

_INT64: Final = np.dtype("<i8")


class SampleBatch:
    """Samples of different nodes, in the order of the log."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._nodes: set[str] = set()

    def has_room_for(self, node: str) -> bool:
        """Whether a sample of this node can still be read together with the others."""
        return node not in self._nodes and len(self.facts) < BATCH_MAX

    def put(self, fact: Fact) -> None:
        """Add a sample."""
        self.facts.append(fact)
        self._nodes.add(fact.key)

    def take(self) -> list[Fact]:
        """Everything that waits."""
        facts, self.facts = self.facts, []
        self._nodes = set()
        return facts


class Changed(NamedTuple):
    """A node whose block is not as it was."""

    fact: Fact
    old: Block | None
    """(row, column) as it was last seen; None: never seen, or of another shape."""
    new: Block


def changed_in(
    facts: Sequence[Fact],
    read: Callable[[Any], tuple[bytes, int]],
    columns: Sequence[int],
    last: Mapping[str, bytes],
    usual: tuple[int, ...],
) -> list[Changed]:
    """The samples whose columns are not as they were, in the order of the log.

    `read` gives a sample's block and how many rows it has; `last` what `kept` made of each node's
    last block; `usual` what a row shows where nothing ever happened. Blocks that are absent, too
    narrow or not a whole number of rows are passed over.
    """
    found: list[Changed] = []
    for same, new in _by_shape(facts, read, columns):
        size, healthy = new[0].nbytes, _healthy(usual, new.shape[1])
        known = [last.get(fact.key) for fact in same]
        was = b"".join(healthy if not each or len(each) != size else each for each in known)
        old = np.frombuffer(was, _INT64).reshape(new.shape)
        unlike = (new != old).any(axis=(1, 2))
        for at, each in enumerate(known):
            if each is None or (each and len(each) != size):
                found.append(Changed(same[at], None, new[at]))
            elif unlike[at]:
                found.append(Changed(same[at], old[at], new[at]))
    found.sort(key=lambda each: each.fact.seq)
    return found


def kept(block: Block, usual: tuple[int, ...]) -> bytes:
    """A block as it is remembered: nothing where nothing ever happened."""
    taken = block.astype(_INT64, copy=False).tobytes()
    return b"" if taken == _healthy(usual, block.shape[0]) else taken


@lru_cache(maxsize=64)
def _healthy(usual: tuple[int, ...], rows: int) -> bytes:
    return np.array([usual] * rows, _INT64).tobytes()


def _by_shape(
    facts: Sequence[Fact], read: Callable[[Any], tuple[bytes, int]], columns: Sequence[int]
) -> Iterator[tuple[list[Fact], Block]]:
    """Samples with blocks of one shape, each with (sample, row, column)."""
    width_min = max(columns) + 1
    shapes: dict[tuple[int, int], tuple[list[Fact], list[bytes]]] = {}
    for fact in facts:
        block, rows = read(fact.data)
        if rows:
            same = shapes.setdefault((rows, len(block)), ([], []))
            same[0].append(fact)
            same[1].append(block)
    for (rows, size), (own, blocks) in shapes.items():
        if size % (8 * rows) == 0 and size >= 8 * rows * width_min:
            whole = np.frombuffer(b"".join(blocks), _INT64).reshape(len(own), rows, -1)
            yield own, np.ascontiguousarray(whole[:, :, columns])
