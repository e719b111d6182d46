"""What healthy clusters show as well: corrected errors, noise in kernel logs, one slow step."""

from random import Random
from typing import Final

from nemesis.sim.faults.planned import CorrectedErrors, KernelNoise, SlowStep
from nemesis.sim.faults.symptoms import GpuCounted, KernelLine, RankDelayed
from nemesis.sim.faults.target import MS, Course, Target

NOISE: Final = (
    # Linux drivers/net/ethernet/mellanox/mlx5, drivers/pci/pcie/aer.c, drivers/edac, systemd, NFS:
    # as machines print them that work (leptonai/gpud and NVIDIA/NVSentinel tests)
    (4, "mlx5_core {nic}: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the "
        "PCIe slot (27W)."),
    (3, "mlx5_core {nic}: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed, "
        "status bad operation(0x2), syndrome (0x305684), err(-22)"),
    (6, "perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate "
        "to 79500"),
    (6, "pcieport 0000:15:01.0: AER: Corrected error received: 0000:15:01.0"),
    (6, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 "
        "page:0x0 offset:0x0 grain:8 syndrome:0x0)"),
    (5, "audit: type=1400 audit(1700000000.123:456): apparmor=\"ALLOWED\" operation=\"open\" "
        "profile=\"/usr/sbin/sssd\""),
    (4, "nvidia-peermem: module license 'NVIDIA' taints kernel."),
    (6, "systemd-journald[812]: Data hash table of /var/log/journal has a fill level at 75.0"),
)  # fmt: skip


def slow_step(planned: SlowStep, target: Target, random: Random) -> Course:
    """A garbage collection, a page fault: once."""
    course = Course(node=target.node)
    course.at(0, RankDelayed(target.rank, planned.delay_ms * MS))
    return course


def corrected_errors(planned: CorrectedErrors, target: Target, random: Random) -> Course:
    """Single bits that ECC put right: a GPU sees some a month and lives on for years."""
    course = Course(node=target.node)
    for _ in range(planned.errors_count):
        at_ns = round(random.random() * planned.spread_s * 1e9)
        course.at(at_ns, GpuCounted(target.index, (("dram_ce_count", 1),)))
    return course


def kernel_noise(planned: KernelNoise, target: Target, random: Random) -> Course:
    """Lines that sound like trouble and are none."""
    course = Course(node=target.node)
    for at in range(planned.lines_count):
        priority, text = NOISE[at % len(NOISE)]
        at_ns = round(random.random() * planned.spread_s * 1e9)
        course.at(at_ns, KernelLine(text.format(nic=target.nic.pci), priority))
    return course
