"""GPU memory and NVLink counters in samples, and GPUs that cannot be read any more.

They back up what a kernel log says; what they prove where no kernel log is read stands in
gpu_sign_findings.py.
"""

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
    "nvlink_replay_count": "packets sent again over its NVLinks",
}
# a packet or two are sent again on any link; DCGM's health check has a failure at 100 flits with a
# wrong checksum a second (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR, dcgm_structs.h)
_RISE_MIN: Final = {"nvlink_replay_count": 100}
_COLUMNS: Final = tuple(GPU_CHANNELS.index(name) for name in _SAID)
_USUAL: Final = (0,) * len(_SAID)
UNREADABLE: Final = "unreadable"
ANSWERS: Final = "answers again"


class Risen(msgspec.Struct, frozen=True):
    """A counter of one GPU that went up."""

    fact: Fact
    row: int
    """Its place in the node's inventory."""
    name: str
    """The channel, UNREADABLE or ANSWERS."""
    says: str


class Counters(msgspec.Struct):
    """The memory counters of every node, as the bytes of its block; empty where all are zero."""

    by_node: dict[str, bytes] = {}
    read_at_ns: dict[str, int] = {}
    """When each node's GPUs were last read, by its own clock."""

    def risen(self, gpus: Stack) -> list[Risen]:
        """What went up since each node's last sample, in the order of the log."""
        self.read_at_ns.update(
            (fact.key, fact.at_ns) for fact in gpus.facts if fact.data.gpu_count and not fact.late
        )
        found: list[Risen] = []
        for fact, old, new in changed_in(gpus, _COLUMNS, self.by_node, _USUAL):
            self.by_node[fact.key] = kept(new, _USUAL)
            if old is not None:
                found += _compared(fact, old, new)
        return found


def _compared(fact: Fact, old: Block, new: Block) -> Iterator[Risen]:
    was_absent, is_absent = (old == ABSENT).all(axis=1), (new == ABSENT).all(axis=1)
    if not is_absent.all():  # that none can be read says nothing about one of them
        for row in (is_absent & ~was_absent).nonzero()[0].tolist():
            yield Risen(fact, row, UNREADABLE, "nothing of it can be read, its neighbours can be")
        for row in (was_absent & ~is_absent).nonzero()[0].tolist():
            yield Risen(fact, row, ANSWERS, "it can be read again")
    for at, (name, says) in enumerate(_SAID.items()):
        for row, (was, now) in enumerate(
            zip(old[:, at].tolist(), new[:, at].tolist(), strict=True)
        ):
            if was != ABSENT and now - was >= _RISE_MIN.get(name, 1):
                says_all = f"its counters show {says}: {was} before, {now} now"
                yield Risen(fact, row, name, says_all)
