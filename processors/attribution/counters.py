"""GPU memory counters in samples: not enough to blame anyone, but they back an Xid up.

Why: 2,500 samples a second must cost next to nothing. How: the columns that count are compared as
bytes; nodes whose counters are all zero, nearly all of them, are not even remembered.
"""

from typing import Final

import msgspec
import numpy as np

from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.observed import SampleTaken

_SAID: Final = {
    "dram_ue_count": "uncorrectable errors in its DRAM",
    "sram_ue_count": "uncorrectable errors in its SRAM",
    "remap_pending": "a row remap pending",
    "remap_failed": "a failed row remap",
}
_INT64: Final = np.dtype("<i8")
_FIRST: Final = min(GPU_CHANNELS.index(name) for name in _SAID)
_BEYOND: Final = max(GPU_CHANNELS.index(name) for name in _SAID) + 1
_WIDTH: Final = _BEYOND - _FIRST


class Risen(msgspec.Struct, frozen=True):
    """A counter of one GPU that went up."""

    row: int
    """Its place in the node's inventory."""
    says: str


class Counters(msgspec.Struct):
    """The memory counters of nodes where one is not zero, as the bytes of their block."""

    by_node: dict[str, bytes] = {}

    def risen(self, data: SampleTaken) -> list[Risen]:
        """What went up since the node's last sample."""
        count = data.gpu_count
        if not count or len(data.gpu) % (8 * count) or len(data.gpu) < 8 * count * _BEYOND:
            return []
        block = np.frombuffer(data.gpu, _INT64).reshape(count, -1)[:, _FIRST:_BEYOND].tobytes()
        before = self.by_node.get(data.node)
        if before == block or (before is None and block.count(0) == len(block)):
            return []
        self.by_node[data.node] = block
        if before is None or len(before) != len(block):
            return []
        return _compare(before, block)


def _compare(before: bytes, block: bytes) -> list[Risen]:
    old = np.frombuffer(before, "<i8").reshape(-1, _WIDTH)
    new = np.frombuffer(block, "<i8").reshape(-1, _WIDTH)
    found: list[Risen] = []
    for name, says in _SAID.items():
        column = GPU_CHANNELS.index(name) - _FIRST
        for row, (was, now) in enumerate(
            zip(old[:, column].tolist(), new[:, column].tolist(), strict=True)
        ):
            if now > was != ABSENT:
                found.append(Risen(row, f"its counters show {says}: {was} before, {now} now"))
    return found
