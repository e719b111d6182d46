"""GPU memory counters in samples: not enough to blame anyone, but they back an Xid up."""

from collections.abc import Iterator
from typing import Final

import msgspec

from nemesis.processors.attribution.sample_batch import Block, Stack, changed_in, kept
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.facts import Fact

_SAID: Final = {
    "dram_ue_count": "uncorrectable errors in its DRAM",
    "sram_ue_count": "uncorrectable errors in its SRAM",
    "remap_pending": "a row remap pending",
    "remap_failed": "a failed row remap",
}
_COLUMNS: Final = tuple(GPU_CHANNELS.index(name) for name in _SAID)
_USUAL: Final = (0,) * len(_SAID)


class Risen(msgspec.Struct, frozen=True):
    """A counter of one GPU that went up."""

    fact: Fact
    row: int
    """Its place in the node's inventory."""
    says: str


class Counters(msgspec.Struct):
    """The memory counters of every node, as the bytes of its block; empty where all are zero."""

    by_node: dict[str, bytes] = {}

    def risen(self, gpus: Stack) -> list[Risen]:
        """What went up since each node's last sample, in the order of the log."""
        found: list[Risen] = []
        for fact, old, new in changed_in(gpus, _COLUMNS, self.by_node, _USUAL):
            self.by_node[fact.key] = kept(new, _USUAL)
            if old is not None:
                found += _compared(fact, old, new)
        return found


def _compared(fact: Fact, old: Block, new: Block) -> Iterator[Risen]:
    for at, says in enumerate(_SAID.values()):
        for row, (was, now) in enumerate(
            zip(old[:, at].tolist(), new[:, at].tolist(), strict=True)
        ):
            if now > was != ABSENT:
                yield Risen(fact, row, f"its counters show {says}: {was} before, {now} now")
