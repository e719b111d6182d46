"""Which column is which GPU, and the samples of one step put together as one block.

A node's GPUs stand next to one another in the order of its inventory. The samples of a step are
those that came since the last one; of several of a node the latest counts, because counters are
totals. A sample that is late or of another width than the inventory says is no poll.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.attribution.sample_batch import gpu_block, stacked
from nemesis.processors.ecc_model.channels import WIDTH, Flags, Ints
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.facts import Fact


class Columns:
    """The place of every node's GPUs."""

    def __init__(self) -> None:
        self._first: Final[dict[str, int]] = {}
        self._counts: Final[dict[str, int]] = {}
        self.count = 0
        """Of GPUs, and of places that a node gave up when its number of GPUs changed."""

    def place(self, node: str, gpus_count: int) -> None:
        """A node has so many GPUs; one that said so before keeps its place."""
        if self._counts.get(node) != gpus_count:
            self._first[node], self._counts[node] = self.count, gpus_count
            self.count += gpus_count

    def of(self, node: str) -> Ints:
        """The columns of a node's GPUs; none where it is not known."""
        first = self._first.get(node, 0)
        return np.arange(first, first + self._counts.get(node, 0), dtype=np.int64)

    def gathered(self, facts: Sequence[Fact]) -> tuple[Ints, Flags]:
        """Samples as (block [GPU, WIDTH], polled [GPU]), for ChannelReader.read."""
        block = np.full((self.count, WIDTH), ABSENT, np.int64)
        polled = np.zeros(self.count, np.bool_)
        latest = {fact.key: fact for fact in facts if not fact.late}
        for same, whole in stacked(list(latest.values()), gpu_block).shapes:
            rows, width = whole.shape[1:]
            known = [at for at, fact in enumerate(same) if self._counts.get(fact.key) == rows]
            if width < WIDTH or not known:
                continue
            first: NDArray[np.int64] = np.array([self._first[same[at].key] for at in known])
            places = (first[:, None] + np.arange(rows)).ravel()
            block[places] = whole[known, :, :WIDTH].reshape(-1, WIDTH)
            polled[places] = True
        return block, polled
