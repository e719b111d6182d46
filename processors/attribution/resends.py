"""Which NICs send again what was lost, poll after poll.

Why: a NIC that is set otherwise than its peers loses packets long before its job is a tenth slower.
How: packets out of sequence and acknowledgements that never came are counted by the NIC itself; a
burst is nothing, three polls of it are. What it proves stands beside a setting (differences.py).

Meaning of the counters: packet_seq_err, local_ack_timeout_err (mlx5 hw_counters).
"""

from typing import Final

import msgspec

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.sample_batch import Stack, changed_in, kept
from nemesis.schemas.channels import ABSENT, NIC_CHANNELS

COUNT_MIN: Final = 50  # in one poll; a lossless fabric loses nothing, one failed way tries 7 times
POLLS_MIN: Final = 3
APART_NS: Final = 30_000_000_000  # polls further apart tell of two bursts
_COLUMNS: Final = tuple(
    NIC_CHANNELS.index(name) for name in ("local_ack_timeout_count", "packet_seq_err_count")
)
_USUAL: Final = (0, 0)


class Resends(msgspec.Struct):
    """The counters of every node's NICs, and NICs that send again."""

    nics: dict[str, bytes] = {}
    """Node to its last block; empty where nothing was ever counted."""
    again: dict[str, tuple[int, int]] = {}
    """NIC to (log time of the latest poll that shows it, polls in a row)."""

    def take(self, nics: Stack, inventory: Inventory) -> None:
        """NICs of different nodes, in the order of the log."""
        for fact, old, new in changed_in(nics, _COLUMNS, self.nics, _USUAL):
            self.nics[fact.key] = kept(new, _USUAL)
            if old is None or (old == ABSENT).any() or (new == ABSENT).any():
                continue
            places = inventory.nics.get(fact.key, [])
            for row in ((new - old).clip(0).sum(axis=1) >= COUNT_MIN).nonzero()[0].tolist():
                if row < len(places):
                    nic = f"nic/{fact.key}/{places[row].name}"
                    at_ns, polls_count = self.again.get(nic, (0, 0))
                    lasts = fact.log_time_ns - at_ns <= APART_NS
                    self.again[nic] = (fact.log_time_ns, polls_count + 1 if lasts else 1)

    def last(self, nic: str, now_ns: int) -> bool:
        """Whether a NIC has sent again in several polls, and still does."""
        at_ns, polls_count = self.again.get(nic, (0, 0))
        return polls_count >= POLLS_MIN and now_ns - at_ns <= APART_NS
