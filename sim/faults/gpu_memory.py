"""What errors of a GPU's memory look like: counters, rows that are remapped, the Xids in between.

Order and words: NVIDIA GPU Memory Error Management
(docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt),
comments of NVIDIA/open-gpu-kernel-modules for Xid 94 and 95, the workflow of Xid 48
(docs.nvidia.com/deploy/xid-errors), NVIDIA/NVSentinel's and Google Cloud's recorded lines for 63
and 64.
"""

from random import Random

from nemesis.sim.faults.course import Course
from nemesis.sim.faults.gpu import SIGABRT, dies, stops
from nemesis.sim.faults.planned_gpu import (
    CorrectedStorm,
    EccContained,
    EccPrecursor,
    EccUncontained,
    RowRemapFailed,
    RowRemapPending,
    Xid48,
)
from nemesis.sim.faults.symptoms import GpuCounted
from nemesis.sim.faults.target import MS, Target

SECOND_NS = 1_000 * MS


def xid48(planned: Xid48, target: Target, random: Random) -> Course:
    """Xid 48 with what follows it."""
    course = _course(target, "a word of its memory is beyond correction")
    _double_bit_error(course, 0, target, random)
    return course


def ecc_contained(planned: EccContained, target: Target, random: Random) -> Course:
    """48 is not said where 94 is: the channel that read the word dies, and its process alone."""
    course = _course(target, "a word of its memory is beyond correction, and poisoned in time")
    _count(course, 0, target, ("dram_ue_count", 1), ("remap_pending", 1))
    _line(course, 0, target, 94, f", {target.process}, Contained: CE User Channel (0x9). RST: No, "
          "D-RST: No")  # fmt: skip
    _remap(course, 2 * MS, target, random)
    stops(course, target, after_ns=0)
    # torch raises "CUDA error: uncorrectable ECC error encountered": exit status 1
    dies(course, target, after_ns=180 * MS, returncode=1)
    return course


def ecc_uncontained(planned: EccUncontained, target: Target, random: Random) -> Course:
    """In the level-two cache: what read it is not known, so all of the GPU's work is lost."""
    course = _course(target, "an error in its cache may have spread to any process")
    _count(course, 0, target, ("sram_ue_count", 1))
    part = random.randrange(10)
    _line(course, 0, target, 95, f", {target.process}, Uncontained: LTC TAG (0x{part:x},0x0). RST: "
          "Yes, D-RST: No")  # fmt: skip
    _line(course, 4 * MS, target, 154, ", GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
          "Reset Required)", decisive=False)  # fmt: skip
    stops(course, target, after_ns=0)
    dies(course, target, after_ns=200 * MS, returncode=-SIGABRT)
    return course


def row_remap_pending(planned: RowRemapPending, target: Target, random: Random) -> Course:
    """A second correctable error at one address: the row is taken out at the next reset."""
    course = _course(target, "a row fails again and again and is to be replaced")
    _count(
        course, 0, target, ("dram_ce_count", 2), ("remap_pending", 1), ("remapped_rows_count", 1)
    )
    _remap(course, MS, target, random)
    return course


def row_remap_failed(planned: RowRemapFailed, target: Target, random: Random) -> Course:
    """All spare rows of a bank are used up: the failing row stays in use."""
    course = _course(target, "a row fails and no spare is left for it")
    _count(
        course, 0, target, ("dram_ue_count", 1), ("remap_failed", 1), ("banks_spare_low_count", 1)
    )
    _line(course, MS, target, 64, f", {target.process}, Row Remapper: Failed to remap row "
          f"({random.randrange(1 << 24, 1 << 36):#018x}), no spare row is left.")  # fmt: skip
    stops(course, target, after_ns=0)
    dies(course, target, after_ns=180 * MS, returncode=1)
    return course


def corrected_storm(planned: CorrectedStorm, target: Target, random: Random) -> Course:
    """A weak cell that is read all the time: a storm for as long as that buffer lives."""
    course = _course(target, "one weak cell is read all the time, and corrected each time")
    ends_ns = round(planned.lasts_s * SECOND_NS)
    seconds = max(1, ends_ns // SECOND_NS)
    for second in range(seconds):
        count = planned.errors_count // seconds * random.randrange(700, 1_301) // 1_000
        _count(
            course, second * SECOND_NS, target, ("dram_ce_count", max(1, count)), expect=not second
        )
    _line(course, min(3, seconds - 1) * SECOND_NS, target, 92, f", {target.process}, High single-"
          "bit ECC error rate")  # fmt: skip
    course.ends_ns = ends_ns
    return course


def ecc_precursor(planned: EccPrecursor, target: Target, random: Random) -> Course:
    """Corrected errors come faster and faster, rows are remapped, banks run out of spares.

    Most failures of HBM announce themselves so over hours or days (arXiv 2503.11901, 2407.02362);
    here it is minutes, and every failure does, which is synthetic.
    """
    fails_ns = round(planned.fails_after_s * 1e9)
    course = _course(target, "its cells fail one after the other")
    course.onset_ns = fails_ns
    # the square root brings half of the errors into the last third of the time
    bursts_count = max(8, min(40, planned.errors_count))
    left_count = planned.errors_count
    for burst in range(bursts_count):
        count = left_count if burst == bursts_count - 1 else planned.errors_count // bursts_count
        left_count -= count
        at_ns = round(fails_ns * 0.97 * ((burst + 0.5) / bursts_count) ** 0.5)
        _count(course, at_ns, target, ("dram_ce_count", count), expect=False)
    course.reads(
        "gpu.dram_ce_count",
        shows="rises",
        value=max(1, planned.errors_count * 9 // 10),
        row=target.index,
        decisive=False,
    )
    rate = f", {target.process}, High single-bit ECC error rate"
    _line(course, round(fails_ns * 0.45), target, 92, rate, decisive=False)
    for remap in range(planned.remaps_count):
        at_ns = round(fails_ns * (0.3 + 0.6 * remap / planned.remaps_count))
        rises: list[tuple[str, int]] = [("remapped_rows_count", 1)]
        if remap * 2 >= planned.remaps_count:
            rises.append(("banks_spare_low_count", 1))
        _count(course, at_ns, target, *rises, expect=False)
        _remap(course, at_ns + MS, target, random)
    course.because(target.gpu_name, "a word is beyond correction", fails_ns)
    _double_bit_error(course, fails_ns, target, random)
    return course


def _course(target: Target, root: str) -> Course:
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, root)
    return course


def _count(
    course: Course, at_ns: int, target: Target, *rises: tuple[str, int], expect: bool = True
) -> None:
    course.at(at_ns, GpuCounted(target.index, rises))
    for channel, rise in rises if expect else ():
        course.reads(
            f"gpu.{channel}",
            shows="rises",
            value=rise,
            row=target.index,
            after_ns=at_ns,
            decisive=channel != "dram_ce_count",
        )


def _line(
    course: Course, at_ns: int, target: Target, xid: int, says: str, *, decisive: bool = True
) -> None:
    course.line(at_ns, f"NVRM: Xid (PCI:{target.slot}): {xid}{says}", decisive=decisive)


def _remap(course: Course, at_ns: int, target: Target, random: Random) -> None:
    row = random.randrange(1 << 24, 1 << 36)
    _line(course, at_ns, target, 63, f", {target.process}, Row Remapper: New row ({row:#018x}) "
          "marked for remapping, reset gpu to activate.")  # fmt: skip


def _double_bit_error(course: Course, at_ns: int, target: Target, random: Random) -> None:
    """48, then 171 says DRAM, 63 marks the row, 154 asks for a reset; the process ends."""
    address = random.randrange(1 << 33, 1 << 36) & ~0x1F
    partition, half = random.randrange(10), random.randrange(2)
    lines = [
        (48, f", {target.process}, An uncorrectable double bit error (DBE) has been detected on "
             f"GPU in the framebuffer at physAddr {address:#x} partition {partition}, subpartition "
             f"{half}."),
        (171, f", HBM, Uncorrectable DRAM error in FBPA {partition} subpartition {half} physAddr "
              f"{address:#x}"),
        (63, f", {target.process}, Row Remapper: New row ({address:#018x}) marked for remapping, "
             "reset gpu to activate."),
        (154, ", GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    ]  # fmt: skip
    for at, (xid, says) in enumerate(lines):
        _line(course, at_ns + at * MS, target, xid, says, decisive=xid != 154)
    _count(course, at_ns, target, ("dram_ue_count", 1), ("remap_pending", 1))
    stops(course, target, after_ns=at_ns)
    # torch raises "CUDA error: uncorrectable ECC error encountered": exit status 1
    dies(course, target, after_ns=at_ns + 180 * MS, returncode=1)
