"""What NICs count of words that were lost on the wire, as states of devices tell.

Why: a transceiver that fades takes no link down. Forward error correction hides it at first, then
code words are lost, and only the end that receives them counts it, in counters that samples leave
out. How: of each node the last reading is kept, and what rose since is an error of that link, as
those in samples are. Whether it is more than the standard allows: link_findings.py.

IEEE 802.3bj/bs (RS-FEC): a code word beyond correction is rare on a healthy link, one in hours;
mlx5 counts them as rx_pcs_symbol_err_phy, broken frames as rx_crc_errors_phy (Linux
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst).
"""

from typing import Final

import msgspec
import numpy as np

from nemesis.schemas.channels import ABSENT, NIC_STATE_CHANNELS
from nemesis.schemas.facts import Fact

_COLUMNS: Final = [
    NIC_STATE_CHANNELS.index(name) for name in ("fec_uncorrectable_count", "crc_error_count")
]
_INT64: Final = np.dtype("<i8")


class LinkLosses(msgspec.Struct):
    """These counters of every node's NICs."""

    by_node: dict[str, bytes] = {}
    """int64 [NIC, counter]; empty where all are zero."""

    def risen(self, fact: Fact) -> list[tuple[int, int]]:
        """(the NIC's place in the inventory, words lost since the last reading), where any were."""
        count, block = fact.data.nic_count, fact.data.nic
        if not count or len(block) % (8 * count) or len(block) < 8 * count * (max(_COLUMNS) + 1):
            return []
        new = np.frombuffer(block, _INT64).reshape(count, -1)[:, _COLUMNS]
        was = self.by_node.get(fact.key)
        self.by_node[fact.key] = new.tobytes() if new.any() else b""
        if was is None or len(was) not in (0, new.nbytes):
            return []  # a lifetime's count says nothing about today
        old = np.frombuffer(was, _INT64).reshape(count, -1) if was else np.zeros_like(new)
        known = (old != ABSENT) & (new != ABSENT)
        rises = np.where(known & (new > old), new - old, 0).sum(axis=1)
        return [(row, int(rises[row])) for row in rises.nonzero()[0].tolist()]
