"""What faults of a GPU look like: Xid lines, counters, temperatures, a rank that stops or slows.

Lines have the form that the driver prints (NVIDIA/open-gpu-kernel-modules;
docs.nvidia.com/deploy/xid-errors; tests of leptonai/gpud and NVIDIA/NVSentinel); timings are of the
order of what public reports show: lines of one event within milliseconds, the process dead within
a second.
"""

from random import Random
from typing import Final

from nemesis.sim.faults.planned import EccPrecursor, GpuThrottle, Xid48, Xid79
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuHeated,
    GpuLost,
    KernelLine,
    RankDies,
    RankStuck,
    Slowed,
)
from nemesis.sim.faults.target import MS, Course, Target
from nemesis.sim.jobs.ranks import pid_of

SIGABRT: Final = 6  # std::terminate in the NCCL watchdog thread after a CUDA error
ERR: Final = 3  # KERN_ERR

# nvml.h, nvmlClocksEventReasons: the driver's own thermal slowdown sets in before the hardware's
SW_THERMAL: Final = 0x20
HW_SLOWDOWN: Final = 0x8
HW_THERMAL: Final = 0x40
# NVIDIA H100 80GB HBM3, nvidia-smi -q -d TEMPERATURE: slowdown at 89 C, maximum operating 87 C
# (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml, h100)
START_MC: Final = 58_000
SLOWDOWN_MC: Final = 88_000
CLOCK_MHZ: Final = 1_980
RAMP_STEPS: Final = 10


def xid79(planned: Xid79, target: Target, random: Random) -> Course:
    """The link goes, NVML loses the device, peers see NVSwitch links go, the rank dies."""
    course = Course(node=target.node, stalls=True, lost_ranks=(target.rank,))
    address, slot, device = target.gpu.pci, target.slot, target.gpu
    lines = [
        f"NVRM: GPU at PCI:{slot}: {device.uuid}",
        f"NVRM: GPU Board Serial Number: {device.serial}",
        f"NVRM: Xid (PCI:{slot}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        f"NVRM: GPU {address}: GPU has fallen off the bus.",
        f"NVRM: GPU {address}: GPU serial number is {device.serial}.",
        f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x2 (Node Reboot Required)",
    ]
    for at, text in enumerate(lines):
        course.at(at * MS // 2, KernelLine(text, ERR))
    course.at(0, GpuLost(target.index))
    course.at(0, RankStuck(target.rank))
    # the peers' links to the dead GPU go down a little later: fallout, not cause
    for at, switch in enumerate(target.cluster.node.nvswitches):
        text = (
            f"nvidia-nvswitch{at}: SXid (PCI:0000:{switch}): 20034, Fatal, "
            f"Link {random.randrange(64)} LTSSM Fault Up"
        )
        course.at((320 + 2 * at) * MS, KernelLine(text, ERR))
    course.at(450 * MS, RankDies(target.rank, -SIGABRT))
    return course


def xid48(planned: Xid48, target: Target, random: Random) -> Course:
    """Xid 48 with what follows it."""
    course = Course(node=target.node, stalls=True, lost_ranks=(target.rank,))
    _double_bit_error(course, 0, target, random)
    return course


def ecc_precursor(planned: EccPrecursor, target: Target, random: Random) -> Course:
    """Corrected errors come faster and faster, rows are remapped, banks run out of spares.

    Most failures of HBM announce themselves so over hours or days (arXiv 2503.11901, 2407.02362);
    here it is minutes, and every failure does, which is synthetic.
    """
    fails_ns = round(planned.fails_after_s * 1e9)
    course = Course(node=target.node, onset_ns=fails_ns, stalls=True, lost_ranks=(target.rank,))
    # the square root brings half of the errors into the last third of the time
    bursts_count = max(8, min(40, planned.errors_count))
    left_count = planned.errors_count
    for burst in range(bursts_count):
        count = left_count if burst == bursts_count - 1 else planned.errors_count // bursts_count
        left_count -= count
        at_ns = round(fails_ns * 0.97 * ((burst + 0.5) / bursts_count) ** 0.5)
        course.at(at_ns, GpuCounted(target.index, (("dram_ce_count", count),)))
    process = f"pid={pid_of(target.rank)}, name=python3"
    rate = f"NVRM: Xid (PCI:{target.slot}): 92, {process}, High single-bit ECC error rate"
    course.at(round(fails_ns * 0.45), KernelLine(rate, ERR))
    for remap in range(planned.remaps_count):
        at_ns = round(fails_ns * (0.3 + 0.6 * remap / planned.remaps_count))
        rises: list[tuple[str, int]] = [("remapped_rows_count", 1)]
        if remap * 2 >= planned.remaps_count:
            rises.append(("banks_spare_low_count", 1))
        row = random.randrange(1 << 24, 1 << 36)
        line = (
            f"NVRM: Xid (PCI:{target.slot}): 63, {process}, Row Remapper: New row ({row:#018x}) "
            "marked for remapping, reset gpu to activate."
        )
        course.at(at_ns, GpuCounted(target.index, tuple(rises)))
        course.at(at_ns + MS, KernelLine(line, ERR))
    _double_bit_error(course, fails_ns, target, random)
    return course


def gpu_throttle(planned: GpuThrottle, target: Target, random: Random) -> Course:
    """A fan or a cold plate fails: hotter step by step, the clock follows, the work with it."""
    course = Course(node=target.node)
    ramp_ns = round(planned.ramp_s * 1e9)
    top_mc = SLOWDOWN_MC + random.randrange(-1_000, 1_500)
    for step in range(1, RAMP_STEPS + 1):
        # warm first, slow from the middle on
        slow = planned.slowdown_per_mille * max(0, 2 * step - RAMP_STEPS) // RAMP_STEPS
        reasons = SW_THERMAL if slow else 0
        if planned.hardware and step == RAMP_STEPS:
            reasons |= HW_SLOWDOWN | HW_THERMAL
        heated = GpuHeated(
            index=target.index,
            temp_mc=START_MC + (top_mc - START_MC) * step // RAMP_STEPS,
            clock_mhz=CLOCK_MHZ * 1000 // (1000 + slow),
            reasons=reasons,
        )
        course.at(ramp_ns * step // RAMP_STEPS, heated)
        course.at(ramp_ns * step // RAMP_STEPS, Slowed(slow, target.index))
    if planned.lasts_s:
        over_ns = ramp_ns + round(planned.lasts_s * 1e9)
        course.at(over_ns, GpuHeated(target.index, 0, 0, 0))
        course.at(over_ns, Slowed(0, target.index))
    return course


def _double_bit_error(course: Course, at_ns: int, target: Target, random: Random) -> None:
    """48, then 171 says DRAM, 63 marks the row, 154 asks for a reset; the process ends."""
    slot, rank = target.slot, target.rank
    address = random.randrange(1 << 33, 1 << 36) & ~0x1F
    partition, half = random.randrange(10), random.randrange(2)
    process = f"pid={pid_of(rank)}, name=python3"
    lines = [
        f"NVRM: Xid (PCI:{slot}): 48, {process}, An uncorrectable double bit error (DBE) has been "
        f"detected on GPU in the framebuffer at physAddr {address:#x} partition {partition}, "
        f"subpartition {half}.",
        f"NVRM: Xid (PCI:{slot}): 171, HBM, Uncorrectable DRAM error in FBPA {partition} "
        f"subpartition {half} physAddr {address:#x}",
        f"NVRM: Xid (PCI:{slot}): 63, {process}, Row Remapper: New row ({address:#018x}) marked "
        "for remapping, reset gpu to activate.",
        f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x1 (GPU Reset Required)",
    ]
    for at, text in enumerate(lines):
        course.at(at_ns + at * MS, KernelLine(text, ERR))
    course.at(at_ns, GpuCounted(target.index, (("dram_ue_count", 1), ("remap_pending", 1))))
    if rank < 0:
        return
    course.at(at_ns, RankStuck(rank))
    # torch raises "CUDA error: uncorrectable ECC error encountered": exit status 1
    course.at(at_ns + 180 * MS, RankDies(rank, 1))
