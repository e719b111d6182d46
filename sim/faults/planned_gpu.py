"""Faults of a GPU, its memory, its driver, its links and its clocks, as a scenario plans them."""

from typing import Annotated, ClassVar, Final

import msgspec

from nemesis.sim.faults.plan import Answer, Few, OnGpu, PerMille, Right, Seconds

_WITH_IT: Final = ("{node}", "{rank}")
_MEMORY: Final = Right(
    classes=("gpu.memory",),
    components=("{gpu}",),
    actions=("drain_node", "swap_node", "shrink"),
    harmless=_WITH_IT,
)
_SLOW: Final = Right(
    classes=("straggler.gpu", "gpu.thermal"),
    components=("{gpu}",),
    actions=("cordon_node", "swap_node", "shrink"),
    harmless=_WITH_IT,
)


class Xid79(OnGpu, kw_only=True, frozen=True, tag="xid79"):
    """A GPU falls off the bus."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.off_bus",),
        components=("{gpu}",),
        actions=("shrink", "swap_node"),
        harmless=_WITH_IT,
    )


class GpuAerFatal(OnGpu, kw_only=True, frozen=True, tag="gpu-aer-fatal"):
    """A GPU falls off the bus without an Xid: the PCIe port tells of a fatal error."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.off_bus",),
        components=("{gpu}",),
        actions=("shrink", "swap_node"),
        harmless=_WITH_IT,
    )


class Xid48(OnGpu, kw_only=True, frozen=True, tag="xid48"):
    """An uncorrectable memory error."""

    RIGHT: ClassVar[Answer] = _MEMORY


class EccContained(OnGpu, kw_only=True, frozen=True, tag="ecc-contained"):
    """An uncorrectable error that the GPU kept to one process (Xid 94): that process dies."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.memory",),
        components=("{gpu}",),
        actions=("restart_rank", "restart_job", "shrink", "swap_node"),
        harmless=_WITH_IT,
    )


class EccUncontained(OnGpu, kw_only=True, frozen=True, tag="ecc-uncontained"):
    """An uncorrectable error that may have spread (Xid 95): everything on the GPU dies."""

    RIGHT: ClassVar[Answer] = _MEMORY


class RowRemapPending(OnGpu, kw_only=True, frozen=True, tag="row-remap-pending"):
    """A row is to be remapped at the next reset (Xid 63); work goes on."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.memory",),
        components=("{gpu}",),
        actions=("none", "watch", "reset_gpu"),
        harmless=_WITH_IT,
    )


class RowRemapFailed(OnGpu, kw_only=True, frozen=True, tag="row-remap-failed"):
    """No spare row is left, or the remap table was not written (Xid 64)."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.memory",),
        components=("{gpu}",),
        actions=("drain_node", "swap_node", "shrink", "replace_hardware"),
        harmless=_WITH_IT,
    )


class CorrectedStorm(OnGpu, kw_only=True, frozen=True, tag="corrected-storm"):
    """Corrected errors come by the thousand (Xid 92), and none is ever uncorrectable."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.memory",),
        components=("{gpu}",),
        actions=("none", "watch", "cordon_node"),
        harmless=_WITH_IT,
    )

    errors_count: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 16_000
    lasts_s: Seconds = 40.0


class EccPrecursor(OnGpu, kw_only=True, frozen=True, tag="ecc-precursor"):
    """Corrected errors rise, rows are remapped, spare rows run out, then Xid 48."""

    RIGHT: ClassVar[Answer] = _MEMORY

    fails_after_s: Annotated[float, msgspec.Meta(ge=5.0, le=86_400.0)] = 40.0
    """From the first corrected error."""
    errors_count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 600
    """Corrected until it fails; most of them come at the end."""
    remaps_count: Annotated[int, msgspec.Meta(ge=0, le=512)] = 6
    """Rows that are remapped on the way; a GPU can remap 512 (NVIDIA GPU Memory Error Management,
    docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt)."""


class GspHang(OnGpu, kw_only=True, frozen=True, tag="gsp-hang"):
    """The GPU's system processor answers no more (Xid 119, then 120)."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.driver",),
        components=("{gpu}",),
        actions=("reset_gpu", "reboot_node", "swap_node", "shrink"),
        harmless=_WITH_IT,
    )


class GpuThrottle(OnGpu, kw_only=True, frozen=True, tag="gpu-throttle"):
    """A GPU grows hot and lowers its clock, slowly."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("gpu.thermal", "straggler.gpu"),
        components=("{gpu}",),
        actions=("cordon_node", "swap_node", "shrink"),
        harmless=_WITH_IT,
    )

    slowdown_per_mille: PerMille = 350
    """By how much a step's compute grows at worst."""
    ramp_s: Seconds = 20.0
    lasts_s: Seconds = 0.0
    """0: until the end."""
    hardware: bool = True
    """Whether the hardware slowdown sets in after the driver's own."""


class PowerStraggler(OnGpu, kw_only=True, frozen=True, tag="power-straggler"):
    """A GPU gets less power than it asks for: a capped supply, or the brake of the board."""

    RIGHT: ClassVar[Answer] = _SLOW

    slowdown_per_mille: PerMille = 300
    brake: bool = False
    """The hardware's power brake, and not the driver's cap."""
    lasts_s: Seconds = 0.0


class ClockStraggler(OnGpu, kw_only=True, frozen=True, tag="clock-straggler"):
    """Somebody left a lower application clock set; nothing is hot."""

    RIGHT: ClassVar[Answer] = _SLOW

    slowdown_per_mille: PerMille = 250
    lasts_s: Seconds = 0.0


class PcieDegraded(OnGpu, kw_only=True, frozen=True, tag="pcie-degraded"):
    """A GPU's PCIe link trains to fewer lanes: it copies and feeds slowly, and replays."""

    RIGHT: ClassVar[Answer] = _SLOW

    lanes: Annotated[int, msgspec.Meta(ge=1, le=8)] = 4
    slowdown_per_mille: PerMille = 280
    replays_count: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 2_400
    """In the first two minutes."""


class NvlinkFlap(OnGpu, kw_only=True, frozen=True, tag="nvlink-flap"):
    """An NVLink of a Hopper retrains again and again, until an error on it is fatal (Xid 74)."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("nvlink",),
        components=("{nvlink}", "{gpu}"),
        actions=("swap_node", "shrink"),
        harmless=_WITH_IT,
    )

    flaps_count: Few = 4
    up_s: Seconds = 2.0
    fatal: bool = True
    """Else it recovers for good."""


class Nvlink5Down(OnGpu, kw_only=True, frozen=True, tag="nvlink5-down"):
    """An NVLink5 goes down with Xid 149; its peers follow with 145, louder and many."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("nvlink",),
        components=("{nvlink}", "{gpu}"),
        actions=("swap_node", "shrink", "reset_gpu"),
        harmless=_WITH_IT,
    )


class NvswitchFatal(OnGpu, kw_only=True, frozen=True, tag="nvswitch-fatal"):
    """An NVSwitch halts (a fatal SXid): every GPU of its NVLink domain loses a path and says so.

    Nobody names the switch where no node sees it as a device (B200, NVL72).
    """

    SEAT: ClassVar[str] = "nvswitch"
    RIGHT: ClassVar[Answer] = Right(
        classes=("nvlink",),
        components=("{nvswitch}",),
        actions=("swap_node", "shrink", "reboot_node"),
        harmless=("{node}", "{ranks}"),
    )


class SilentCorruption(OnGpu, kw_only=True, frozen=True, tag="silent-corruption"):
    """A GPU computes wrong values and reports nothing: its replica's parameters drift away."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("silent_corruption",),
        components=("{gpu}", "{rank}"),
        actions=("shrink", "swap_node", "cordon_node", "drain_node"),
        harmless=("{node}",),
    )
