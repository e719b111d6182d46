"""Which GPUs have a PCIe link with fewer lanes than their neighbours'.

Why: a link that trained to four lanes of sixteen feeds its GPU slowly and reports no error. How:
states of devices are told seldom; of each node only the GPUs that differ from the widest are kept.
Whether anybody waits for them is asked elsewhere (slow_findings.py).
"""

from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution.findings import Proof
from nemesis.schemas.channels import GPU_STATE_CHANNELS
from nemesis.schemas.facts import Fact

_WIDTH: Final = GPU_STATE_CHANNELS.index("pcie_width")
_INT64: Final = np.dtype("<i8")


class DeviceStates(msgspec.Struct):
    """The GPUs with narrow links, by node and by their place in the inventory."""

    narrow: dict[str, dict[int, Proof]] = {}

    def take(self, fact: Fact) -> None:
        """One reading of a node's devices."""
        count, block = fact.data.gpu_count, fact.data.gpu
        if fact.late or not count or len(block) % (8 * count):
            return
        if len(block) < 8 * count * (_WIDTH + 1):
            return
        widths = np.frombuffer(block, _INT64).reshape(count, -1)[:, _WIDTH].tolist()
        widest = max(widths)
        narrow = {
            row: Proof(
                fact.id, fact.seq, f"its PCIe link has {width} lanes, its neighbours' {widest}"
            )
            for row, width in enumerate(widths)
            if 0 < width < widest
        }
        if narrow:
            self.narrow[fact.key] = narrow
        else:
            self.narrow.pop(fact.key, None)
