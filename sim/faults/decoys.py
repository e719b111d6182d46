"""What healthy clusters show as well: corrected errors, noise in kernel logs, one slow step."""

from random import Random
from typing import Final

from nemesis.sim.faults.course import ERR, Course
from nemesis.sim.faults.planned_decoys import (
    CorrectedErrors,
    KernelNoise,
    LoneWork,
    MaintenanceReboot,
    NicNoise,
    NoisyNeighbour,
    SlowStep,
    TeardownXids,
    UserXid,
)
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuThrottled,
    HostLoaded,
    NodeLost,
    NodeReturned,
    RankDelayed,
)
from nemesis.sim.faults.target import MS, Target

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
    course = Course(node=target.node, component=target.rank_name)
    course.because(course.component, "is slow in one step")
    course.at(0, RankDelayed(target.rank, planned.delay_ms * MS))
    return course


def lone_work(planned: LoneWork, target: Target, random: Random) -> Course:
    """A save, an evaluation, a compilation on one rank: what a barrier after it is there for."""
    course = Course(node=target.node, component=target.rank_name)
    course.because(course.component, f"is busy alone with its {planned.does}")
    course.at(0, RankDelayed(target.rank, round(planned.lasts_s * 1e9), planned.does))
    course.blames_not([target.rank_name, target.gpu_name])
    return course


def corrected_errors(planned: CorrectedErrors, target: Target, random: Random) -> Course:
    """Single bits that ECC put right: a GPU sees some a month and lives on for years."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(course.component, "corrects some bits")
    for _ in range(planned.errors_count):
        at_ns = round(random.random() * planned.spread_s * 1e9)
        course.at(at_ns, GpuCounted(target.index, (("dram_ce_count", 1),)))
    course.reads("gpu.dram_ce_count", shows="rises", value=1, row=target.index)
    course.blames_not([target.gpu_name])
    return course


def kernel_noise(planned: KernelNoise, target: Target, random: Random) -> Course:
    """Lines that mean nothing."""
    course = Course(node=target.node, component=f"node/{target.node}")
    course.because(course.component, "its kernel prints what healthy ones print")
    for _ in range(planned.lines_count):
        priority, text = random.choice(NOISE)
        at_ns = round(random.random() * planned.spread_s * 1e9)
        course.line(at_ns, text.format(nic=target.nic.pci), priority)
    course.blames_not([course.component, target.nic_name])
    return course


def user_xid(planned: UserXid, target: Target, random: Random) -> Course:
    """Xid 13 or 31 with a user's process, then 43: "the application" in NVIDIA's catalogue."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(course.component, "a user's test reads beyond its memory")
    process = f"pid={random.randrange(100_000, 400_000)}, name=cuda_test"
    address = random.randrange(1 << 40, 1 << 46)
    first = random.choice((
        f"13, {process}, Graphics SM Warp Exception on (GPC {random.randrange(8)}, TPC "
        f"{random.randrange(9)}, SM {random.randrange(2)}): Out Of Range Address",
        f"31, {process}, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 "
        f"faulted @ 0x{address >> 32:x}_{address & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE "
        "ACCESS_TYPE_VIRT_READ",
    ))  # fmt: skip
    course.line(0, f"NVRM: Xid (PCI:{target.slot}): {first}", ERR)
    course.line(2 * MS, f"NVRM: Xid (PCI:{target.slot}): 43, {process}, Ch 00000008", ERR)
    course.blames_not([target.gpu_name, f"node/{target.node}"])
    return course


def teardown_xids(planned: TeardownXids, target: Target, random: Random) -> Course:
    """Preemptive removal of channels: what is printed when somebody presses Ctrl-C."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(
        f"node/{target.node}", "a user's processes are ended in the middle of their work"
    )
    first = random.randrange(100_000, 400_000)
    for index in range(target.cluster.ranks_per_node):
        each = Target(target.cluster, target.node, index)
        process = f"pid={first + index}, name=python3"
        text = f"NVRM: Xid (PCI:{each.slot}): 45, {process}, Ch {random.randrange(64):08x}"
        course.line(index * MS, text, ERR, component=each.gpu_name)
        course.blames_not([each.gpu_name, f"node/{target.node}"])
    return course


def nic_noise(planned: NicNoise, target: Target, random: Random) -> Course:
    """Once at each poll of a counter that the firmware does not have."""
    course = Course(node=target.node, component=target.nic_name)
    course.because(course.component, "its driver asks for a register that is not there")
    nic = target.nic.pci
    lines = [text.format(nic=nic) for _, text in NOISE if "mlx5_core" in text]
    lines.append(f"mlx5_core {nic}: Port module event: module 1, Cable unplugged")
    for at, text in enumerate(lines):
        course.line(at * 900 * MS, text, 4)
    course.blames_not([target.nic_name, target.link_name, f"node/{target.node}"])
    return course


def noisy_neighbour(planned: NoisyNeighbour, target: Target, random: Random) -> Course:
    """A benchmark of somebody else: hot GPUs and a full run queue where no rank of the job is."""
    course = Course(node=target.node, component=f"node/{target.node}")
    course.because(course.component, "is used hard by somebody else")
    over_ns = round(planned.lasts_s * 1e9)
    loaded = HostLoaded(planned.pressure_ppm, planned.pressure_ppm // 2, planned.pressure_ppm // 8)
    course.at(0, loaded)
    course.at(over_ns, HostLoaded(0, 0, 0))
    for index in range(target.cluster.ranks_per_node):
        each = Target(target.cluster, target.node, index)
        course.at(0, GpuThrottled(index, 962, 0x4, 79_000 + random.randrange(3_000)))
        course.at(over_ns, GpuThrottled(index, 1_000))
        course.blames_not([each.gpu_name])
    value = planned.pressure_ppm * 2 // 3
    course.reads("host.cpu_pressure_ppm", shows="at_least", value=value, row=0)
    course.blames_not([course.component])
    course.ends_ns = over_ns
    return course


def maintenance_reboot(planned: MaintenanceReboot, target: Target, random: Random) -> Course:
    """systemd says that it goes down, the node is silent, and comes back with another boot id."""
    course = Course(node=target.node, component=f"node/{target.node}")
    course.because(course.component, "is rebooted on purpose")
    course.line(0, "systemd-shutdown[1]: Syncing filesystems and block devices.", 5)
    course.line(200 * MS, "reboot: Restarting system", 5)
    course.at(1_500 * MS, NodeLost())
    course.ends_ns = 1_500 * MS + round(planned.down_s * 1e9)
    course.at(course.ends_ns, NodeReturned())
    course.blames_not([course.component])
    return course
