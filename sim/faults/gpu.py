"""What it looks like when a GPU fails at once: Xid lines, a device that is lost, a rank that stops.

Lines have the form that the driver prints (NVIDIA/open-gpu-kernel-modules, src/nvidia/arch/nvalloc;
docs.nvidia.com/deploy/xid-errors; tests of leptonai/gpud and NVIDIA/NVSentinel); timings are of the
order of what public reports show: lines of one event within milliseconds, the process dead within
a second.
"""

from random import Random
from typing import Final

from nemesis.sim.faults.course import Course
from nemesis.sim.faults.planned_gpu import GpuAerFatal, GspHang, SilentCorruption, Xid79
from nemesis.sim.faults.symptoms import GpuLost, RankDies, RankReads, RankStuck
from nemesis.sim.faults.target import MS, Target

SIGABRT: Final = 6  # std::terminate in the NCCL watchdog thread after a CUDA error
# "Timeout after 6s of waiting for RPC response" (NVIDIA/NVSentinel, leptonai/gpud tests)
GSP_TIMEOUT_NS: Final = 6_000 * MS


def xid79(planned: Xid79, target: Target, random: Random) -> Course:
    """The link goes, NVML loses the device, peers see NVSwitch links go, the rank dies."""
    course = Course(node=target.node, component=target.gpu_name)
    address, slot, device = target.gpu.pci, target.slot, target.gpu
    course.because(target.gpu_name, "falls off the PCIe bus")
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
        course.line(at * MS // 2, text, decisive="fallen off" in text)
    course.at(0, GpuLost(target.index))
    course.reads("gpu.temp_c", shows="unreadable", row=target.index)
    # the peers' links to the dead GPU go down a little later: fallout, not cause
    for at, switch in enumerate(target.cluster.node.nvswitches):
        text = (
            f"nvidia-nvswitch{at}: SXid (PCI:0000:{switch}): 20034, Fatal, "
            f"Link {random.randrange(64)} LTSSM Fault Up"
        )
        name = f"nvswitch/{target.node}/{at}"
        course.line((320 + 2 * at) * MS, text, component=name, decisive=False)
        course.because(name, "loses its links to that GPU", (320 + 2 * at) * MS)
        course.blames_not([name])
    stops(course, target, after_ns=0)
    dies(course, target, after_ns=450 * MS, returncode=-SIGABRT)
    return course


def gpu_aer_fatal(planned: GpuAerFatal, target: Target, random: Random) -> Course:
    """The port contains the error (Linux drivers/pci/pcie/aer.c); the GPU's driver says nothing."""
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, "its PCIe link reports a fatal error")
    pci = target.gpu.pci
    kind = random.choice(("Data Link Layer", "Transaction Layer"))
    course.line(0, f"pcieport {pci[:8]}00.0: AER: Uncorrectable (Fatal) error received: {pci}",
                decisive=False)  # fmt: skip
    course.line(MS, f"nvidia {pci}: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), "
                f"type={kind}, (Requester ID)")  # fmt: skip
    course.line(2 * MS, f"nvidia {pci}: AER: can't recover (no error_detected callback)")
    course.at(0, GpuLost(target.index))
    course.reads("gpu.temp_c", shows="unreadable", row=target.index)
    stops(course, target, after_ns=0)
    dies(course, target, after_ns=600 * MS, returncode=-SIGABRT)
    return course


def gsp_hang(planned: GspHang, target: Target, random: Random) -> Course:
    """Work on the GPU stands; six seconds later the driver gives up waiting, and again, and again.

    The process cannot be killed while the driver waits, so it hangs on.
    """
    course = Course(node=target.node, component=target.gpu_name)
    course.because(target.gpu_name, "its system processor answers no more")
    stops(course, target, after_ns=0)
    for again in range(3):
        text = (
            f"NVRM: Xid (PCI:{target.slot}): 119, {target.process}, Timeout after 6s of waiting "
            f"for RPC response from GPU{target.index} GSP! Expected function 76 (GSP_RM_CONTROL) "
            f"({random.randrange(1 << 32):#010x} {4 * random.randrange(1, 64):#x})."
        )
        course.line((again + 1) * GSP_TIMEOUT_NS, text)
    course.line(
        3 * GSP_TIMEOUT_NS + 40 * MS,
        f"NVRM: Xid (PCI:{target.slot}): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x1 (GPU Reset Required)",
        decisive=False,
    )
    return course


def silent_corruption(planned: SilentCorruption, target: Target, random: Random) -> Course:
    """One multiplier is wrong: this rank's copy of the parameters is no more that of the others."""
    course = Course(node=target.node, component=target.rank_name or target.gpu_name)
    course.because(target.gpu_name, "computes wrong values and reports nothing")
    if target.rank >= 0:
        wrong = (("state_checksum", random.getrandbits(62)),)
        course.at(0, RankReads(target.rank, wrong))
        course.because(target.rank_name, "its parameters differ from all replicas'")
        course.reads("steps.state_checksum", shows="differs", row=target.rank)
    return course


def stops(course: Course, target: Target, *, after_ns: int) -> None:
    """The rank's GPU computes no more, and with it the job."""
    if target.rank < 0:
        return
    course.stalls, course.lost_ranks = True, (target.rank,)
    course.at(after_ns, RankStuck(target.rank))
    course.because(target.rank_name, "arrives at no collective any more", after_ns)
    course.because(f"job/{target.job}", "all its ranks wait", after_ns)


def dies(course: Course, target: Target, *, after_ns: int, returncode: int) -> None:
    """The rank's process ends, as its node tells."""
    if target.rank < 0:
        return
    course.lost_ranks = (target.rank,)
    course.at(after_ns, RankDies(target.rank, returncode), node=target.node)
    course.because(target.rank_name, "its process ends", after_ns)
    course.shows(
        "process",
        "signal" if returncode < 0 else "exit_code",
        shows="at_least",
        value=abs(returncode),
        row=target.rank,
        after_ns=after_ns,
        by=target.node,
        component=target.rank_name,
        decisive=False,
    )
