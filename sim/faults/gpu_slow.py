"""What it looks like when a GPU is slow and not broken: clocks, reasons, lanes, one late rank."""

from random import Random
from typing import Final

from nemesis.sim.faults.course import Course
from nemesis.sim.faults.planned_gpu import ClockStraggler, GpuThrottle, PcieDegraded, PowerStraggler
from nemesis.sim.faults.symptoms import GpuCounted, GpuReads, GpuThrottled, Slowed
from nemesis.sim.faults.target import MS, Target

# nvml.h, nvmlClocksEventReasons: the driver's own thermal slowdown sets in before the hardware's
APPLICATION_CLOCKS: Final = 0x2
SW_POWER_CAP: Final = 0x4
HW_SLOWDOWN: Final = 0x8
SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
HW_POWER_BRAKE: Final = 0x80
# NVIDIA H100 80GB HBM3, nvidia-smi -q -d TEMPERATURE: slowdown at 89 C, maximum operating 87 C
# (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml, h100)
START_MC: Final = 58_000
SLOWDOWN_MC: Final = 88_000
RAMP_STEPS: Final = 10
REPLAY_SECONDS: Final = 120  # for so long replays are counted one by one


def gpu_throttle(planned: GpuThrottle, target: Target, random: Random) -> Course:
    """A fan or a cold plate fails: hotter step by step, the clock follows, the work with it."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, "is not cooled well enough")
    ramp_ns = round(planned.ramp_s * 1e9)
    top_mc = SLOWDOWN_MC + random.randrange(-1_000, 1_500)
    for step in range(1, RAMP_STEPS + 1):
        # warm first, slow from the middle on
        slow = planned.slowdown_per_mille * max(0, 2 * step - RAMP_STEPS) // RAMP_STEPS
        reasons = SW_THERMAL if slow else 0
        if planned.hardware and step == RAMP_STEPS:
            reasons |= HW_SLOWDOWN | HW_THERMAL
        temp_mc = START_MC + (top_mc - START_MC) * step // RAMP_STEPS
        hot = GpuThrottled(target.index, _clock_per_mille(slow), reasons, temp_mc)
        course.at(ramp_ns * step // RAMP_STEPS, hot)
        course.at(ramp_ns * step // RAMP_STEPS, Slowed(slow, target.index))
    _reads(course, target, ramp_ns, "temp_c", at_least=SLOWDOWN_MC // 1_000 - 2)
    _reads(course, target, ramp_ns, "clock_event_reasons", at_least=SW_THERMAL)
    _late(course, target, ramp_ns, planned.slowdown_per_mille)
    if planned.lasts_s:
        over_ns = ramp_ns + round(planned.lasts_s * 1e9)
        course.at(over_ns, GpuThrottled(target.index, 1_000))
        _over(course, target, over_ns)
    return course


def power_straggler(planned: PowerStraggler, target: Target, random: Random) -> Course:
    """A supply of the shelf fails: the GPU may draw less, and its clock follows; it grows cool."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, "may draw less power than its work needs")
    reason = HW_SLOWDOWN | HW_POWER_BRAKE if planned.brake else SW_POWER_CAP
    _clocked(course, target, planned.slowdown_per_mille, planned.lasts_s, reason)
    _reads(course, target, 0, "clock_event_reasons", at_least=min(reason, SW_POWER_CAP))
    return course


def clock_straggler(planned: ClockStraggler, target: Target, random: Random) -> Course:
    """`nvidia-smi -ac` of a benchmark was never taken back."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, "is set to a lower clock than its peers")
    _clocked(course, target, planned.slowdown_per_mille, planned.lasts_s, APPLICATION_CLOCKS)
    return course


def pcie_degraded(planned: PcieDegraded, target: Target, random: Random) -> Course:
    """A riser loses contact on some lanes: the link trains anew with fewer, and packets replay."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, f"its PCIe link comes back with {planned.lanes} lanes of 16")
    course.at(0, GpuReads(target.index, (("pcie_width", planned.lanes),)))
    _slow(course, target, planned.slowdown_per_mille)
    per_s = planned.replays_count // REPLAY_SECONDS
    for second in range(REPLAY_SECONDS if per_s else 0):
        count = max(1, per_s * random.randrange(600, 1_401) // 1_000)
        course.at(second * 1_000 * MS, GpuCounted(target.index, (("pcie_replay_count", count),)))
    _reads(course, target, 0, "pcie_width", at_most=planned.lanes)
    if planned.replays_count:
        course.reads("gpu.pcie_replay_count", shows="rises", value=1, row=target.index,
            decisive=False,
        )  # fmt: skip
    # Linux drivers/pci/pcie/aer.c: replays that timed out are correctable errors
    course.line(
        200 * MS,
        f"pcieport {target.gpu.pci}: AER: Corrected error received: {target.gpu.pci}",
        4,
        decisive=False,
    )
    return course


def _clocked(course: Course, target: Target, per_mille: int, lasts_s: float, reasons: int) -> None:
    """A lower clock from one moment to the next, which only its peers' clocks show to be low."""
    share = _clock_per_mille(per_mille)
    course.at(0, GpuThrottled(target.index, share, reasons))
    _slow(course, target, per_mille)
    course.reads(
        "gpu.sm_clock_mhz",
        shows="below_others",
        value=(1_000 - share) * 2 // 3,
        row=target.index,
        explains=True,
    )
    if lasts_s:
        over_ns = round(lasts_s * 1e9)
        course.at(over_ns, GpuThrottled(target.index, 1_000))
        _over(course, target, over_ns)


def _clock_per_mille(slow_per_mille: int) -> int:
    """Compute takes longer as the clock is lower."""
    return 1_000_000 // (1_000 + slow_per_mille)


def _slow(course: Course, target: Target, per_mille: int) -> None:
    course.at(0, Slowed(per_mille, target.index))
    _late(course, target, 0, per_mille)


def _over(course: Course, target: Target, at_ns: int) -> None:
    course.at(at_ns, Slowed(0, target.index))
    course.ends_ns = at_ns


def _reads(
    course: Course,
    target: Target,
    at_ns: int,
    channel: str,
    *,
    at_least: int = -1,
    at_most: int = -1,
) -> None:
    course.reads(
        f"gpu.{channel}",
        shows="at_least" if at_least >= 0 else "at_most",
        value=max(at_least, at_most),
        row=target.index,
        after_ns=at_ns,
        explains=True,
    )


def _late(course: Course, target: Target, at_ns: int, per_mille: int) -> None:
    """The rank enters each collective late, and all others wait for it there."""
    if target.rank < 0:
        return
    course.because(target.rank_name, "enters each collective late", at_ns)
    course.because(f"job/{target.job}", "every step takes as long as its slowest rank", at_ns)
    course.reads(
        "steps.own_ns",
        shows="above_others",
        value=per_mille * 2 // 3,
        row=target.rank,
        after_ns=at_ns,
        component=target.rank_name,
        decisive=False,
    )
