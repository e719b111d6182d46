"""What a scenario may break: one struct a kind, with its parameters, their defaults and ranges.

`kind` in a file chooses the struct. A target that is left out is drawn by the seed: a node of the
job, then one of its GPUs with the rank and the NIC of the same index.
"""

from typing import Annotated, Final, Literal, get_args

import msgspec

from nemesis.schemas.codes import Action, FaultClass

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
Index = Annotated[int, msgspec.Meta(ge=-1, le=999)]
PerMille = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Few = Annotated[int, msgspec.Meta(ge=1, le=20)]

SPARE: Final = "spare"
"""In place of a node's name: one that the job does not use, drawn by the seed."""


class Right(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is right to conclude and to decide.

    Components may hold {gpu} {nic} {link} {port} {switch} {node} {rank} {job}: names of the target.
    """

    classes: tuple[FaultClass, ...]
    components: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Any of these is the culprit; the first is what broke."""
    actions: tuple[Action, ...]
    harmless: tuple[str, ...] = ()
    """What else may be named without harm: what went down with the culprit."""


class Planned(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind"
):
    """One thing to break."""

    after_s: Seconds
    """From the start of the run."""
    right: Right | Literal["nothing"]
    """nothing: a decoy, that must be neither blamed nor answered."""
    node: str = ""

    @property
    def kind(self) -> str:
        """As in a file."""
        return str(type(self).__struct_config__.tag)


class OnGpu(Planned, kw_only=True, frozen=True):
    """A fault of one GPU, or of the rank that runs on it."""

    gpu: Index = -1
    rank: Index = -1
    """Names node and GPU at once, by the job as it was submitted."""


class OnNic(Planned, kw_only=True, frozen=True):
    """A fault of one NIC or of what it is plugged into."""

    nic: Index = -1
    port: str = ""
    """For example leaf03/17: names node and NIC at once."""


class Xid79(OnGpu, kw_only=True, frozen=True, tag="xid79"):
    """A GPU falls off the bus."""


class Xid48(OnGpu, kw_only=True, frozen=True, tag="xid48"):
    """An uncorrectable memory error."""


class EccPrecursor(OnGpu, kw_only=True, frozen=True, tag="ecc-precursor"):
    """Corrected errors rise, rows are remapped, spare rows run out, then Xid 48."""

    fails_after_s: Annotated[float, msgspec.Meta(ge=5.0, le=86_400.0)] = 40.0
    """From the first corrected error."""
    errors_count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 600
    """Corrected until it fails; most of them come at the end."""
    remaps_count: Annotated[int, msgspec.Meta(ge=0, le=512)] = 6
    """Rows that are remapped on the way; a GPU can remap 512 (NVIDIA GPU Memory Error Management,
    docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt)."""


class GpuThrottle(OnGpu, kw_only=True, frozen=True, tag="gpu-throttle"):
    """A GPU grows hot and lowers its clock, slowly."""

    slowdown_per_mille: PerMille = 350
    """By how much a step's compute grows at worst."""
    ramp_s: Seconds = 20.0
    lasts_s: Seconds = 0.0
    """0: until the end."""
    hardware: bool = True
    """Whether the hardware slowdown sets in after the driver's own."""


class RankExit(OnGpu, kw_only=True, frozen=True, tag="rank-exit"):
    """A rank's process ends."""


class Desync(OnGpu, kw_only=True, frozen=True, tag="desync"):
    """A rank calls another collective than the others, and everybody waits for ever."""

    differs_in: Literal["operation", "size"] = "operation"


class SlowStep(OnGpu, kw_only=True, frozen=True, tag="slow-step"):
    """One rank is slow in one step."""

    delay_ms: Annotated[int, msgspec.Meta(ge=1, le=2_500)] = 1_200


class CorrectedErrors(OnGpu, kw_only=True, frozen=True, tag="corrected-errors"):
    """A few corrected memory errors, as every fleet sees them."""

    errors_count: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    spread_s: Seconds = 20.0


class NodeLost(Planned, kw_only=True, frozen=True, tag="node-lost"):
    """A whole node loses power."""


class HostContention(Planned, kw_only=True, frozen=True, tag="host-contention"):
    """Another process takes a node's CPUs: every rank of the node is late."""

    slowdown_per_mille: PerMille = 300
    pressure_ppm: Ppm = 620_000
    run_queue_wait_ppm: Ppm = 340_000
    steal_ppm: Ppm = 180_000
    ramp_s: Seconds = 3.0
    lasts_s: Seconds = 0.0
    """0: until the end."""


class KernelNoise(Planned, kw_only=True, frozen=True, tag="kernel-noise"):
    """Lines that healthy machines print."""

    lines_count: Few = 8
    spread_s: Seconds = 20.0


class NicFlap(OnNic, kw_only=True, frozen=True, tag="nic-flap"):
    """A NIC's link goes down and comes back."""

    flaps_count: Few = 3
    down_s: Annotated[float, msgspec.Meta(ge=0.1, le=600.0)] = 5.0
    up_s: Annotated[float, msgspec.Meta(ge=0.1, le=600.0)] = 6.0
    """Between two flaps."""


class NicDead(OnNic, kw_only=True, frozen=True, tag="nic-dead"):
    """A NIC stops moving data with its port up; ranks elsewhere abort before it says a word."""

    loud_count: Few = 3
    """Ranks on other nodes that abort."""
    loud_after_s: Seconds = 4.0
    line_after_s: Seconds = 6.0
    """When its driver tells, by one line."""


class PortDown(OnNic, kw_only=True, frozen=True, tag="port-down"):
    """A port of a leaf switch goes down and stays so."""


FaultPlanned = (
    Xid79
    | Xid48
    | EccPrecursor
    | GpuThrottle
    | RankExit
    | Desync
    | SlowStep
    | CorrectedErrors
    | NodeLost
    | HostContention
    | KernelNoise
    | NicFlap
    | NicDead
    | PortDown
)

KINDS: Final[tuple[str, ...]] = tuple(
    str(struct.__struct_config__.tag) for struct in get_args(FaultPlanned)
)
