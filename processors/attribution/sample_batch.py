"""Samples that are read together: one pass of numpy over many nodes instead of many over one.

Why: 2,500 samples a second pass through here, and of almost all of them nothing is to be said. How:
samples wait until another kind of fact, a second sample of a node or a snapshot needs what they
say; so what is concluded is the same as if each were read at once. Nothing that waits is state.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.facts import Fact

Block = NDArray[np.int64]
BATCH_MAX: Final = 1024  # 2 MB of blocks

_INT64: Final = np.dtype("<i8")


class SampleBatch:
    """Samples of different nodes at one log time, in the order of the log."""

    def __init__(self) -> None:
        self._by_node: dict[str, Fact] = {}
        self._log_time_ns = 0

    def put(self, fact: Fact) -> bool:
        """Add a sample; False where it cannot be read together with those that wait."""
        waiting = self._by_node
        if not waiting:
            self._log_time_ns = fact.log_time_ns
        elif (
            fact.key in waiting
            or fact.log_time_ns != self._log_time_ns
            or len(waiting) >= BATCH_MAX
        ):
            return False
        waiting[fact.key] = fact
        return True

    def take(self) -> list[Fact]:
        """Everything that waits."""
        facts, self._by_node = list(self._by_node.values()), {}
        return facts


class Stack(NamedTuple):
    """One block of each of many samples, put together once for all that read it."""

    facts: Sequence[Fact]
    """All of them, in the order of the log, also those whose block is absent or broken."""
    shapes: list[tuple[list[Fact], Block]]
    """Samples with blocks of one shape, each with (sample, row, column)."""


class Changed(NamedTuple):
    """A node whose block is not as it was."""

    fact: Fact
    old: Block | None
    """(row, column) as it was last seen; None: never seen, or of another shape."""
    new: Block


def stacked(facts: Sequence[Fact], read: Callable[[Any], tuple[bytes, int]]) -> Stack:
    """`read` gives a sample's block and how many rows it has.

    Blocks that are absent or not a whole number of rows are passed over.
    """
    shapes: dict[tuple[int, int], tuple[list[Fact], list[bytes]]] = {}
    for fact in facts:
        block, rows = read(fact.data)
        if rows:
            same = shapes.get((rows, len(block)))
            if same is None:
                same = shapes[rows, len(block)] = ([], [])
            same[0].append(fact)
            same[1].append(block)
    return Stack(
        facts,
        [
            (own, np.frombuffer(b"".join(blocks), _INT64).reshape(len(own), rows, -1))
            for (rows, size), (own, blocks) in shapes.items()
            if size and size % (8 * rows) == 0
        ],
    )


def gpu_block(data: Any) -> tuple[bytes, int]:
    """The GPUs of a sample, for `stacked`."""
    return data.gpu, data.gpu_count


def nic_block(data: Any) -> tuple[bytes, int]:
    """The NICs of a sample, for `stacked`."""
    return data.nic, data.nic_count


def changed_in(
    stack: Stack, columns: Sequence[int], last: Mapping[str, bytes], usual: tuple[int, ...]
) -> list[Changed]:
    """The samples whose columns are not as they were, in the order of the log.

    `last` is what `kept` made of each node's last block; `usual` what a row shows where nothing
    ever happened. Blocks that are too narrow are passed over.
    """
    found: list[Changed] = []
    for same, whole in stack.shapes:
        if whole.shape[2] <= max(columns):
            continue
        new = whole[:, :, columns]
        odd = (new != _row(usual)).reshape(len(same), -1).any(axis=1).tolist()
        known = [last.get(fact.key) for fact in same]
        # of nearly all nothing was ever seen: they are as usual, and were
        looked_at = [at for at, was in enumerate(known) if odd[at] or was != b""]
        if looked_at:
            own, was = [same[at] for at in looked_at], [known[at] for at in looked_at]
            found += _unlike(own, was, np.ascontiguousarray(new[looked_at]), usual)
    found.sort(key=lambda each: each.fact.seq)
    return found


def _unlike(
    facts: Sequence[Fact], known: Sequence[bytes | None], new: Block, usual: tuple[int, ...]
) -> list[Changed]:
    size, healthy = new[0].nbytes, _healthy(usual, new.shape[1])
    was = b"".join(healthy if not each or len(each) != size else each for each in known)
    old = np.frombuffer(was, _INT64).reshape(new.shape)
    unlike = (new != old).reshape(len(new), -1).any(axis=1)
    found: list[Changed] = []
    for at, each in enumerate(known):
        if each is None or (each and len(each) != size):
            found.append(Changed(facts[at], None, new[at]))
        elif unlike[at]:
            found.append(Changed(facts[at], old[at], new[at]))
    return found


def kept(block: Block, usual: tuple[int, ...]) -> bytes:
    """A block as it is remembered: nothing where nothing ever happened."""
    taken = block.astype(_INT64, copy=False).tobytes()
    return b"" if taken == _healthy(usual, block.shape[0]) else taken


@lru_cache(maxsize=64)
def _row(usual: tuple[int, ...]) -> Block:
    return np.array(usual, _INT64)


@lru_cache(maxsize=64)
def _healthy(usual: tuple[int, ...], rows: int) -> bytes:
    return np.array([usual] * rows, _INT64).tobytes()
