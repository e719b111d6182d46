"""What failures of NVLink and NVSwitch look like: who says it first, and who says it loudest.

Lines: Xid 74 (forums.developer.nvidia.com/t/292539), Xid 144-150 (leptonai/gpud, components/
accelerator/nvidia/xid; NVIDIA/TensorRT-LLM#4816), SXids (NVIDIA Fabric Manager User Guide,
appendix D). On NVLink5 the end that went down prints 149 and every peer that had packets under
way prints 145: the initiating Xid names the link (docs.nvidia.com/deploy/xid-errors,
"NVLink5 errors").
"""

from random import Random
from typing import Final

from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.gpu import SIGABRT, dies, stops
from nemesis.sim.faults.planned_gpu import Nvlink5Down, NvlinkFlap, NvswitchFatal
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import DomainCut, GpuCounted, Slowed
from nemesis.sim.faults.target import MS, Target

LINKS: Final = 18  # NVLinks of a Hopper or Blackwell GPU
REPLAYS_MAX: Final = 5_000
DOWN: Final = 0x0215C5C6
"""intrinfo of a link that went down: sub-code 33, bits 20-25 (leptonai/gpud, xid tests)."""


def nvlink_flap(planned: NvlinkFlap, target: Target, random: Random) -> Course:
    """Replays, a retraining, again and again; each costs a moment; the last error is fatal."""
    link = random.randrange(LINKS)
    course = _course(target, link, "loses bits and trains anew, again and again")
    up_ns = round(planned.up_s * 1e9)
    for flap in range(planned.flaps_count):
        at_ns = flap * up_ns
        rises = (
            ("nvlink_replay_count", random.randrange(200, REPLAYS_MAX)),
            ("nvlink_crc_count", random.randrange(20, 400)),
            ("nvlink_recovery_count", 1),
        )
        course.at(at_ns, GpuCounted(target.index, rises))
        course.at(at_ns, Slowed(150, target.index))
        course.at(at_ns + up_ns // 2, Slowed(0, target.index))
    for channel in ("nvlink_replay_count", "nvlink_recovery_count"):
        course.reads(f"gpu.{channel}", shows="rises", value=1, row=target.index)
    last_ns = planned.flaps_count * up_ns
    if not planned.fatal:
        course.ends_ns = last_ns
        return course
    course.onset_ns = last_ns
    registers = "0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"
    text = (
        f"NVRM: Xid (PCI:{target.slot}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error "
        f"detected on link {link}({registers})"
    )
    course.line(last_ns, text)
    stops(course, target, after_ns=last_ns)
    dies(course, target, after_ns=last_ns + 400 * MS, returncode=-SIGABRT)
    return course


def nvlink5_down(planned: Nvlink5Down, target: Target, random: Random) -> Course:
    """149 once on one GPU; milliseconds later 145 on all its peers, several links each."""
    link = random.randrange(LINKS)
    course = _course(target, link, "goes down")
    zeros = " ".join(["0x00000000"] * 5)
    course.line(
        0,
        f"NVRM: Xid (PCI:{target.slot}): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} "
        f"({DOWN:#010x} {zeros})",
    )
    course.line(
        3 * MS,
        f"NVRM: Xid (PCI:{target.slot}): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x1 (GPU Reset Required)",
        decisive=False,
    )
    loud: list[str] = []
    for at, peer in enumerate(_peers(target)):
        loud.append(peer.gpu_name)
        course.because(peer.gpu_name, "a request over that link never comes back", (4 + at) * MS)
        for number in range(random.randrange(1, 4)):
            status = 1 << random.randrange(8)
            text = (
                f"NVRM: Xid (PCI:{peer.slot}): 145, RLW_REMAP Nonfatal XC{number % 2} i0 Link "
                f"{random.randrange(LINKS):02d} (0x00000004 {status:#010x} 0x00000000 0x00000000 "
                "0x00000000 0x00000000)"
            )
            at_ns = (4 + at) * MS + number
            course.line(at_ns, text, node=peer.node, component=peer.gpu_name, decisive=False)
    course.blames_not(loud)
    stops(course, target, after_ns=0)
    dies(course, target, after_ns=350 * MS, returncode=-SIGABRT)
    return course


def nvswitch_fatal(planned: NvswitchFatal, target: Target, random: Random) -> Course:
    """The switch's link controller halts (SXid 22003): its links die, each GPU of the domain tells.

    Where a node sees its NVSwitches as PCI devices, its kernel names the switch. Where it does not
    (B200; a rack, whose switches are hosts of their own), no line of any node does: GPUs lose links
    to one switch among several, all at once.

    Raises:
        BadScenarioError: GPUs of these nodes are linked to each other without a switch.
    """
    cluster = target.cluster
    if not cluster.nvswitch_count:
        raise BadScenarioError(f"fault.kind: nvswitch-fatal: {cluster.node.model} has no NVSwitch")
    domain = cluster.nvlink_of(target.node)
    nodes = cluster.nodes_of_nvlink(domain)
    at = random.randrange(cluster.nvswitch_count)
    name = f"nvswitch/{domain}/{at}"
    course = Course(node=target.node, component=name, stalls=True)
    ranks = tuple(rank for node in nodes for rank in cluster.ranks_of(node))
    course.named(
        {
            "nvswitch": [name],
            "node": [node_name(each) for each in nodes],
            "ranks": [rank_name(target.job, each) for each in ranks],
        }
    )
    course.because(name, "halts")
    if cluster.node.nvswitches:
        _switch_says(course, at, cluster.node.nvswitches[at], random)
    course.at(0, DomainCut(domain))
    places = [Target(cluster, node, at) for node in nodes for at in range(cluster.ranks_per_node)]
    for number, each in enumerate(places):
        _loses_switch(course, each, random, after_ns=(20 + number) * MS)
    course.because(f"job/{target.job}", "all its ranks wait", 20 * MS)
    course.blames_not([each.gpu_name for each in places])
    course.lost_ranks = ranks
    return course


def _switch_says(course: Course, at: int, slot: str, random: Random) -> None:
    """What the driver of the switch prints."""
    pci = f"0000:{slot.removeprefix('0000:')}"
    course.line(0, f"nvidia-nvswitch{at}: SXid (PCI:{pci}): 22003, Fatal, Link 00 Minion Halt")
    for number in range(3):
        link = random.randrange(1, 64)
        course.line(
            (2 + number) * MS,
            f"nvidia-nvswitch{at}: SXid (PCI:{pci}): 20034, Fatal, Link {link:02d} LTSSM Fault Up",
            decisive=False,
        )


def _loses_switch(course: Course, place: Target, random: Random, *, after_ns: int) -> None:
    """A GPU tells of its links to the switch, and its rank's process ends."""
    link = random.randrange(LINKS)
    if place.cluster.node.nvswitches:
        text = (
            f"NVRM: Xid (PCI:{place.slot}): 74, pid='<unknown>', name=<unknown>, NVLink: fatal "
            f"error detected on link {link}(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
        )
    else:
        text = (
            f"NVRM: Xid (PCI:{place.slot}): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} "
            f"({DOWN:#010x} {' '.join(['0x00000000'] * 5)})"
        )
    course.line(after_ns, text, node=place.node, component=place.gpu_name, decisive=False)
    if place.rank >= 0:
        course.because(place.rank_name, "arrives at no collective any more", after_ns)
    dies(course, place, after_ns=after_ns + 480 * MS, returncode=-SIGABRT)


def _course(target: Target, link: int, root: str) -> Course:
    nvlink = f"nvlink/{target.node}/{target.gpu.pci}/{link}"
    course = Course(node=target.node, component=target.gpu_name)
    course.named({"nvlink": [nvlink]})
    course.because(nvlink, root)
    return course


def _peers(target: Target) -> list[Target]:
    """The other GPUs of the node; where a rack is one NVLink domain, one of each other node too."""
    cluster, width = target.cluster, target.cluster.ranks_per_node
    domain = cluster.nodes_of_nvlink(cluster.nvlink_of(target.node))
    far = [Target(cluster, node, target.index) for node in domain if node != target.node]
    return far + [
        Target(target.cluster, target.node, index)
        for index in range(width)
        if index != target.index
    ]
