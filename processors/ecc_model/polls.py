"""Which column is which GPU, and the samples of one step put together as one block.

A node's GPUs stand next to one another in the order of its inventory. The samples of a step are
those that came since the last one; of several of a node the latest counts, because counters are
totals. A sample that is late or of another width than the inventory says is no poll.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.attribution.sample_batch import gpu_block, stacked
from nemesis.processors.ecc_model.channels import WIDTH, Flags, Ints
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.facts import Fact


class Columns(msgspec.Struct):
    """The place of every node's GPUs."""

    first: dict[str, int] = {}
    counts: dict[str, int] = {}
    free: dict[int, list[int]] = {}
    """Size to the first columns of places that a node gave up: its number of GPUs changed."""
    count: int = 0
    """Of GPUs, and of free places."""

    def place(self, node: str, gpus_count: int) -> Ints:
        """A node has so many GPUs; one that said so before keeps its place.

        Returns the columns that are not the parts' any more which they were before.
        """
        had = self.of(node)
        if len(had) == gpus_count:
            return had[:0]
        if len(had):
            self.free.setdefault(len(had), []).append(self.first[node])
        self.counts[node] = gpus_count
        left = self.free.get(gpus_count)
        if left:
            self.first[node] = left.pop()
        else:
            self.first[node] = self.count
            self.count += gpus_count
        return np.concatenate([had, self.of(node)])

    def of(self, node: str) -> Ints:
        """The columns of a node's GPUs; none where it is not known."""
        first = self.first.get(node, 0)
        return np.arange(first, first + self.counts.get(node, 0), dtype=np.int64)

    def owners(self, columns: Sequence[int]) -> list[tuple[str, int]]:
        """The node of each column that is somebody's, and which of its GPUs it is."""
        nodes = sorted((first, node) for node, first in self.first.items() if self.counts[node])
        firsts = [first for first, _ in nodes]
        found = []
        for column in columns:
            first, node = nodes[bisect_right(firsts, column) - 1]
            assert column < first + self.counts[node], f"column {column} is nobody's"
            found.append((node, column - first))
        return found

    def gathered(self, facts: Collection[Fact]) -> tuple[Ints, Flags]:
        """Samples as (block [GPU, WIDTH], polled [GPU]), for ChannelReader.read."""
        block = np.full((self.count, WIDTH), ABSENT, np.int64)
        polled = np.zeros(self.count, np.bool_)
        latest = {fact.key: fact for fact in facts if not fact.late}
        for same, whole in stacked(list(latest.values()), gpu_block).shapes:
            rows, width = whole.shape[1:]
            known = [at for at, fact in enumerate(same) if self.counts.get(fact.key) == rows]
            if width < WIDTH or not known:
                continue
            first: NDArray[np.int64] = np.array([self.first[same[at].key] for at in known])
            places = (first[:, None] + np.arange(rows)).ravel()
            block[places] = whole[known, :, :WIDTH].reshape(-1, WIDTH)
            polled[places] = True
        return block, polled
