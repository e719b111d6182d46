"""What healthy clusters show as well, and what goes wrong with evidence alone, as planned."""

from typing import Annotated

import msgspec

from nemesis.sim.faults.plan import Few, OnGpu, OnNic, OnRank, Planned, Ppm, Seconds
from nemesis.sim.faults.symptoms import LoneTask

PerMilleLost = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class SlowStep(OnRank, kw_only=True, frozen=True, tag="slow-step"):
    """One rank is slow in one step."""

    delay_ms: Annotated[int, msgspec.Meta(ge=1, le=2_500)] = 1_200


class LoneWork(OnRank, kw_only=True, frozen=True, tag="lone-work"):
    """One rank does something alone, and rightly, while all others wait for it."""

    does: LoneTask = "evaluation"
    lasts_s: Annotated[float, msgspec.Meta(ge=1.0, le=50.0)] = 25.0


class CorrectedErrors(OnGpu, kw_only=True, frozen=True, tag="corrected-errors"):
    """A few corrected memory errors, as every fleet sees them."""

    errors_count: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    spread_s: Seconds = 20.0


class KernelNoise(Planned, kw_only=True, frozen=True, tag="kernel-noise"):
    """Lines that healthy machines print."""

    lines_count: Few = 8
    spread_s: Seconds = 20.0


class UserXid(OnGpu, kw_only=True, frozen=True, tag="user-xid"):
    """Somebody's test on a GPU reads beyond its memory (Xid 31 or 13); no rank is concerned."""


class TeardownXids(OnGpu, kw_only=True, frozen=True, tag="teardown-xids"):
    """A process of a user is ended in the middle of its work: Xid 45 on each GPU of a node."""


class NicNoise(OnNic, kw_only=True, frozen=True, tag="nic-noise"):
    """What an adapter prints at a firmware that has not all registers, and with an empty cage."""


class NoisyNeighbour(Planned, kw_only=True, frozen=True, tag="noisy-neighbour"):
    """A spare is used hard by somebody else: hot, loaded, and nothing of the job is there."""

    pressure_ppm: Ppm = 700_000
    lasts_s: Seconds = 30.0


class MaintenanceReboot(Planned, kw_only=True, frozen=True, tag="maintenance-reboot"):
    """A spare is shut down in order and is back some time later."""

    down_s: Annotated[float, msgspec.Meta(ge=1.0, le=3_600.0)] = 20.0


class ClockOffset(Planned, kw_only=True, frozen=True, tag="evidence-clock-off"):
    """A node's clock is off, and nobody said so."""

    offset_ms: Annotated[int, msgspec.Meta(ge=-600_000, le=600_000)] = 1_500


class EvidenceLate(Planned, kw_only=True, frozen=True, tag="evidence-late"):
    """The management network of a leaf is cut: its nodes spool what they see, and come back."""

    whole_switch: bool = True
    """Else one node alone."""
    for_s: Seconds = 15.0


class EvidenceLost(Planned, kw_only=True, frozen=True, tag="evidence-lost"):
    """Samples of a node get lost on the way."""

    per_mille: PerMilleLost = 200


class EvidenceDoubled(Planned, kw_only=True, frozen=True, tag="evidence-doubled"):
    """A node sends facts twice, because it did not hear that the first was taken."""

    per_mille: PerMilleLost = 200


class PollsMissed(Planned, kw_only=True, frozen=True, tag="polls-missed"):
    """A producer is too busy to poll as often as it should."""

    per_mille: PerMilleLost = 300


class SingleSnapshot(Planned, kw_only=True, frozen=True, tag="single-snapshot"):
    """A node is polled once and then no more: counters without a difference."""


class NoKernelLines(Planned, kw_only=True, frozen=True, tag="kernel-log-missing"):
    """Nothing may read a node's kernel log."""


class DumpMissing(OnRank, kw_only=True, frozen=True, tag="dump-missing"):
    """A rank's flight recorder is not written, and nobody notices."""
