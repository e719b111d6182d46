"""What faults do to the simulated cluster, one struct an effect, and when: symptoms of a fault."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from nemesis.schemas.codes import Action, FaultClass, LogSource
from nemesis.sim.faults.causal import Cause, Expected

Readings = tuple[tuple[str, int], ...]
"""(channel, value)."""


class KernelLine(msgspec.Struct, frozen=True):
    """A node's kernel prints a line."""

    text: str
    priority: int


class RankStuck(msgspec.Struct, frozen=True):
    """A rank's GPU computes no more; its process lives on."""

    rank: int


class RankDies(msgspec.Struct, frozen=True):
    """A rank's process ends; returncode is negative for a signal."""

    rank: int
    returncode: int


class RankGivesUp(msgspec.Struct, frozen=True):
    """A rank's watchdog ends its process, if by then it has waited out its patience."""

    rank: int
    returncode: int
    lines: tuple[str, ...]
    """What the driver says of a process that ends in the middle of its work."""
    patience_ns: int
    """From when the job stopped; what it waits in was entered up to a step after that."""


class RankStrays(msgspec.Struct, frozen=True):
    """A rank's next collective is not that of the others."""

    rank: int
    differs_in: Literal["operation", "size", "order", "absent"]
    """absent: it never calls it; order: where its job has several groups, the one after first."""


class ContextLost(msgspec.Struct, frozen=True):
    """A rank's CUDA context is in error: nothing more is seen to complete on its GPU, and its host
    enqueues nothing more; its process lives on."""

    rank: int


LoneTask = Literal["data", "save", "evaluation", "upload", "compile", "index", "program"]
"""What a rank may do while all others wait for it, nothing being wrong."""


class RankDelayed(msgspec.Struct, frozen=True):
    """A rank's next step takes so much longer, once."""

    rank: int
    delay_ns: int
    waits_for: LoneTask | Literal[""] = ""
    """Its own timers book data and saves; "": nobody knows."""


class RankPrints(msgspec.Struct, frozen=True):
    """A rank's process writes a line."""

    rank: int
    source: LogSource
    text: str


class RankReads(msgspec.Struct, frozen=True):
    """Channels of a rank's step rows that its training code fills read so from here on."""

    rank: int
    readings: Readings


class Slowed(msgspec.Struct, frozen=True):
    """Compute on a node takes this much longer from here on; 0: as ever."""

    per_mille: int
    index: int = -1
    """Of one GPU; -1: all of the node, by its host, and unevenly."""


class GpuLost(msgspec.Struct, frozen=True):
    """NVML answers GPU_IS_LOST from here on."""

    index: int


class GpuCounted(msgspec.Struct, frozen=True):
    """Readings of a GPU rise by so much, by channel name."""

    index: int
    rises: tuple[tuple[str, int], ...]


class GpuReads(msgspec.Struct, frozen=True):
    """Gauges of a GPU read so from here on, whatever it does; none: as ever."""

    index: int
    readings: Readings


class GpuThrottled(msgspec.Struct, frozen=True):
    """A GPU runs at so much of its family's clock, for these reasons; 1,000: as ever."""

    index: int
    clock_per_mille: int
    reasons: int = 0
    """NVML's bit mask of clocks event reasons."""
    temp_mc: int = 0
    """How hot it is; 0: as its load makes it."""


class HostLoaded(msgspec.Struct, frozen=True):
    """How much a node's host is wanted by others than the job."""

    pressure_ppm: int
    run_queue_wait_ppm: int
    steal_ppm: int


class HostReads(msgspec.Struct, frozen=True):
    """Gauges of a host read about so from here on; none: as ever."""

    readings: Readings


class HostCounted(msgspec.Struct, frozen=True):
    """Counters of a host rise by so much."""

    rises: Readings


class SettingChanged(msgspec.Struct, frozen=True):
    """A setting of a component of a node is another one than everywhere else."""

    component: str
    name: str
    value: str


class LinkTurned(msgspec.Struct, frozen=True):
    """The link between a NIC and its switch port goes down or up; both ends see it."""

    nic: int
    up: bool


class NicCounted(msgspec.Struct, frozen=True):
    """Counters of a NIC rise by so much, by channel name."""

    nic: int
    rises: tuple[tuple[str, int], ...]


class NicMute(msgspec.Struct, frozen=True):
    """A NIC moves no data any more, its port stays up."""

    nic: int


class NicRises(msgspec.Struct, frozen=True):
    """Counters of a NIC rise by so much a second from here on; none: no more."""

    nic: int
    per_s: Readings


class NicReads(msgspec.Struct, frozen=True):
    """Gauges of a NIC read so from here on; none: as ever."""

    nic: int
    readings: Readings


class NicSlowed(msgspec.Struct, frozen=True):
    """Collectives that cross a NIC take this much longer from here on; 0: as ever."""

    nic: int
    per_mille: int


class PortRises(msgspec.Struct, frozen=True):
    """Counters of a switch port rise by so much a second from here on; none: no more."""

    port: str
    per_s: Readings


class PairTurned(msgspec.Struct, frozen=True):
    """What a NIC and one of another node send each other is lost, or arrives again."""

    nic: int
    peer: str
    peer_nic: int
    up: bool


class SwitchLost(msgspec.Struct, frozen=True):
    """A switch stops: its links are down, its collector reads nothing."""

    switch: str


class SwitchReturned(msgspec.Struct, frozen=True):
    """It forwards again."""

    switch: str


class DomainCut(msgspec.Struct, frozen=True):
    """The GPUs of an NVLink domain do not reach each other any more."""

    domain: str


class PortCounted(msgspec.Struct, frozen=True):
    """Error counters of the switch port of a NIC rise, by their names in PortSeen."""

    nic: int
    rises: tuple[tuple[str, int], ...]


class SamplesLost(msgspec.Struct, frozen=True):
    """So many of 1,000 samples of the node never arrive; 0: all arrive again."""

    per_mille: int


class SamplesDoubled(msgspec.Struct, frozen=True):
    """So many of 1,000 facts of the node arrive twice; 0: no more."""

    per_mille: int


class SamplesLate(msgspec.Struct, frozen=True):
    """The node is cut off for so long: it spools what it sees, and delivers it when it is back."""

    for_ns: int


class MissedPolls(msgspec.Struct, frozen=True):
    """So many of 1,000 polls are not made; 1,000 after the first poll leaves a single snapshot."""

    per_mille: int


class DevicesReadOnce(msgspec.Struct, frozen=True):
    """Devices and host were read once and are read no more; the job still tells its steps."""


class NoKernelLog(msgspec.Struct, frozen=True):
    """Nothing reads the node's kernel log from here on."""


class NoDump(msgspec.Struct, frozen=True):
    """A rank's flight recorder is not written, and nobody notices that it is missing."""

    rank: int = -1
    """-1: of every rank on the node."""


class ClockOff(msgspec.Struct, frozen=True):
    """The node's wall clock is off by so much, and its producer states an error of so much."""

    offset_ns: int
    stated_error_ns: int = 0


class NodeLost(msgspec.Struct, frozen=True):
    """Power is gone: ranks, agent and telemetry with it."""


class NodeHung(msgspec.Struct, frozen=True):
    """No process of the node runs any more, its agent and its ranks' hosts among them; the GPUs
    finish what they have, and the links stay up."""


class NodeReturned(msgspec.Struct, frozen=True):
    """Power is back: another boot, volatile counters at zero, no ranks."""


GpuEffect = GpuLost | GpuCounted | GpuReads | GpuThrottled
RankEffect = (
    RankStuck
    | RankDies
    | RankGivesUp
    | RankStrays
    | ContextLost
    | RankDelayed
    | RankPrints
    | RankReads
)
HostEffect = HostLoaded | HostReads | HostCounted
NicEffect = NicCounted | NicRises | NicReads | NicMute
"""What a NIC's own readings show."""
NetworkEffect = (
    LinkTurned
    | NicEffect
    | NicSlowed
    | DomainCut
    | PortCounted
    | PortRises
    | PairTurned
    | SwitchLost
    | SwitchReturned
)
NodeEffect = Slowed | SettingChanged | NodeLost | NodeHung | NodeReturned
EvidenceEffect = (
    SamplesLost
    | SamplesDoubled
    | SamplesLate
    | MissedPolls
    | DevicesReadOnce
    | NoKernelLog
    | NoDump
    | ClockOff
)
"""What goes wrong with the evidence and not with the cluster."""
Effect = (
    KernelLine | RankEffect | GpuEffect | HostEffect | NetworkEffect | NodeEffect | EvidenceEffect
)


class Symptom(msgspec.Struct, frozen=True):
    """Something that happens to a node, so long after the fault began."""

    after_ns: int
    node: str
    effect: Effect


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that really broke: what the ledger knows and NEMESIS does not."""

    kind: str
    began_ns: int
    """When the first of it could be seen, from the start of the run."""
    onset_ns: int
    """When it struck: later than it began only where something announced it."""
    over_ns: int
    """When its last symptom appeared."""
    node: str
    culprit: str
    """The component that it sits in, by its canonical name."""
    components: tuple[str, ...]
    """Any of these is right to name; none for a decoy."""
    harmless: tuple[str, ...]
    """What else may be named."""
    classes: tuple[FaultClass, ...]
    """Classes that are right to conclude."""
    lost_ranks: tuple[int, ...]
    """Ranks that cannot go on where they are."""
    actions: tuple[Action, ...]
    """Recoveries that are right to decide."""
    stalls: bool
    """The job stands still from its onset on."""
    symptoms: tuple[Symptom, ...]
    chain: tuple[Cause, ...] = ()
    """What caused what, the root first."""
    evidence: tuple[Expected, ...] = ()
    """What the log must show of it."""
    innocent: tuple[str, ...] = ()
    """Components that are loud though nothing is wrong with them."""
    repaired_ns: int = -1
    """When it was mended or ended by itself, from the start of the run; -1: not in this run."""
    delivered: tuple[int, ...] = ()
    """Which of its evidence reaches the log in time, by place."""
    attributable: bool | None = None
    """Whether that names the culprit; None: nobody weighed it."""

    def later(self, by_ns: int) -> "Fault":
        """The same, so much later."""
        return replace(
            self,
            began_ns=self.began_ns + by_ns,
            onset_ns=self.onset_ns + by_ns,
            over_ns=self.over_ns + by_ns,
            repaired_ns=self.repaired_ns + by_ns if self.repaired_ns >= 0 else -1,
        )
