"""NVLinks that were trained anew, as states of devices count them.

Samples count what was sent again; that a link was lost and came back stands in the rarer
device_state alone. What both prove stands in gpu_sign_findings.py.
"""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from nemesis.schemas.channels import GPU_STATE_CHANNELS
from nemesis.schemas.facts import Fact

TRAINED: Final = "nvlink_recovery_count"
TRAINED_OFTEN: Final = "nvlink_recovery_count, several times"
_COLUMN: Final = GPU_STATE_CHANNELS.index(TRAINED)
_INT64: Final = np.dtype("<i8")


class Trained(NamedTuple):
    """A GPU of which links were trained anew."""

    row: int
    """Its place in the inventory."""
    name: str
    """TRAINED or TRAINED_OFTEN."""
    says: str


class NvlinkStates(msgspec.Struct):
    """How often links of each GPU were trained anew."""

    by_node: dict[str, list[int]] = {}

    def risen(self, fact: Fact) -> list[Trained]:
        """Those that went up since the last reading."""
        count, block = fact.data.gpu_count, fact.data.gpu
        if not count or len(block) % (8 * count) or len(block) < 8 * count * (_COLUMN + 1):
            return []
        new = np.frombuffer(block, _INT64).reshape(count, -1)[:, _COLUMN].tolist()
        old = self.by_node.get(fact.key)
        self.by_node[fact.key] = new
        if old is None or len(old) != count:
            return []  # a lifetime's count says nothing about today
        return [
            Trained(
                row,
                TRAINED if now == was + 1 else TRAINED_OFTEN,
                f"NVLinks of it were trained anew: {was} times before, {now} now",
            )
            for row, (was, now) in enumerate(zip(old, new, strict=True))
            if now > was >= 0
        ]
