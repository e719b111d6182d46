"""What of one node's telemetry reaches the log: all of it, or what a defect of evidence leaves.

Why: on real clusters samples are lost, come late or twice, clocks are off, kernel logs are not
read. How: what the node sees is what it always sees; only what arrives differs, and a share of it
is drawn by the number of the fact, so equal runs lose the same ones.
"""

from collections.abc import Sequence
from typing import Final, assert_never
from zlib import crc32

from msgspec.structs import replace

from nemesis.producers.origin import Origin, Stamp
from nemesis.schemas.observed import (
    CollectiveRecorded,
    DeviceStateRead,
    GroupDigest,
    Observation,
    SampleTaken,
    SpoolAnnounced,
)
from nemesis.sim.faults.symptoms import (
    ClockOff,
    DevicesReadOnce,
    EvidenceEffect,
    MissedPolls,
    NoDump,
    NoKernelLog,
    SamplesDoubled,
    SamplesLate,
    SamplesLost,
)


class Evidence:
    """The defects of one node's evidence; none at first."""

    def __init__(self, node: str, seed: int) -> None:
        self.clock_offset_ns = 0
        """How far its wall clock is off."""
        self.clock_error_ns = 0
        """What its producer says of that."""
        self.has_kernel_log = True
        self._is_sound = True
        """None of it was ever struck."""
        self._key: Final = f"{seed}/{node}"
        self._lost_per_mille = 0
        self._doubled_per_mille = 0
        self._missed_per_mille = 0
        self._polls_count = 0
        self._reads_left: dict[type[Observation], int] | None = None
        """Of devices; None: as many as there are polls."""
        self._without_dump: Final[set[int]] = set()
        self._cut_ns = 0
        self._back_ns = 0
        self._spooled: list[Observation] = []

    def suffer(self, effect: EvidenceEffect, now_ns: int) -> None:
        """A defect begins or ends."""
        self._is_sound = False
        match effect:
            case SamplesLost(per_mille=per_mille):
                self._lost_per_mille = per_mille
            case SamplesDoubled(per_mille=per_mille):
                self._doubled_per_mille = per_mille
            case MissedPolls(per_mille=per_mille):
                self._missed_per_mille = per_mille
            case SamplesLate(for_ns=for_ns):
                self._cut_ns = self._cut_ns if self.is_cut_off(now_ns) else now_ns
                self._back_ns = now_ns + for_ns
            case DevicesReadOnce():
                self._reads_left = dict.fromkeys((SampleTaken, DeviceStateRead), 1)
            case NoKernelLog():
                self.has_kernel_log = False
            case NoDump(rank=rank):
                self._without_dump.add(rank)
            case ClockOff():
                self.clock_offset_ns = effect.offset_ns
                self.clock_error_ns = effect.stated_error_ns
            case _:
                assert_never(effect)

    def is_cut_off(self, now_ns: int) -> bool:
        """Whether nothing of the node reaches the log, nor the other way round."""
        return now_ns < self._back_ns

    def polls(self) -> bool:
        """Whether the poll that is due is made."""
        self._polls_count += 1
        return not self._drawn("poll", self._polls_count, self._missed_per_mille)

    def dumps(self, rank: int) -> bool:
        """Whether anybody gets to see this rank's flight recorder."""
        return not {rank, -1} & self._without_dump

    def arriving(
        self, seen: Sequence[Observation], origin: Origin, now_ns: int
    ) -> list[Observation]:
        """What reaches the log now, given what the node has told since it was asked last."""
        if self._is_sound:
            return list(seen)
        told = [
            fact
            for fact in seen
            if not (
                isinstance(fact, SampleTaken) and self._drawn("lost", fact.n, self._lost_per_mille)
            )
        ]
        if self._reads_left is not None:
            told = [fact for each in told for fact in self._without_devices(each)]
        if self._doubled_per_mille:
            told = [fact for each in told for fact in [each] * self._times(each)]
        if self.is_cut_off(now_ns):
            self._spooled += told
            return []
        if self._spooled:
            late, self._spooled = self._spooled, []
            announced = SpoolAnnounced(
                **origin.stamp("spool", now_ns), since_ns=self._cut_ns, spooled_count=len(late)
            )
            return [announced, *late, *told]
        return told

    def _without_devices(self, fact: Observation) -> list[Observation]:
        """A fact without what was not read; none where nothing is left of it."""
        left = self._reads_left or {}
        if type(fact) not in left:
            return [fact]
        if left[type(fact)]:
            left[type(fact)] -= 1
            return [fact]
        if not isinstance(fact, SampleTaken):
            return []
        return [replace(fact, gpu_count=0, gpu=b"", nic_count=0, nic=b"", host=b"")]

    def by_its_clock(self, dump: CollectiveRecorded) -> CollectiveRecorded:
        """A flight recorder's times as the node's own clock had them."""
        offset_ns = self.clock_offset_ns
        if not offset_ns:
            return dump
        return replace(dump, groups=tuple(_shifted(group, offset_ns) for group in dump.groups))

    def _times(self, fact: Observation) -> int:
        kind = type(fact).__name__
        return 1 + self._drawn(kind, fact.n, self._doubled_per_mille)

    def _drawn(self, what: str, number: int, per_mille: int) -> bool:
        if not per_mille:
            return False
        return crc32(f"{self._key}/{what}/{number}".encode()) % 1_000 < per_mille


class SeenOrigin(Origin):
    """A producer whose wall clock is the node's: as wrong as that, and as sure of itself."""

    def __init__(self, node: str, evidence: Evidence, *, start_ns: int, boot_id: str = "") -> None:
        super().__init__(node, start_ns=start_ns, boot_id=boot_id)
        self._evidence: Final = evidence

    def stamp(self, kind: str, at_ns: int) -> Stamp:
        """As every producer's, by the node's own clock."""
        self.clock_error_ns = self._evidence.clock_error_ns
        offset_ns = self._evidence.clock_offset_ns
        return super().stamp(kind, max(0, at_ns + offset_ns) if offset_ns else at_ns)


def _shifted(group: GroupDigest, offset_ns: int) -> GroupDigest:
    first = group.first_unfinished
    return replace(
        group,
        first_unfinished=first and replace(first, created_ns=max(0, first.created_ns + offset_ns)),
        arrivals=tuple((number, max(0, at_ns + offset_ns)) for number, at_ns in group.arrivals),
    )
