"""What faults of the network look like: link lines, error counters at either end, a silent NIC.

Lines as mlx5 prints them (Linux drivers/net/ethernet/mellanox/mlx5/core: en_main.c, events.c,
health.c); counters as in Documentation/ABI/stable/sysfs-class-infiniband. Receive errors are
counted where they are received: by the NIC if its end is bad, by the switch if the other one is.
"""

from random import Random
from typing import Final

from nemesis.sim.faults.gpu import SIGABRT
from nemesis.sim.faults.planned import NicDead, NicFlap, PortDown
from nemesis.sim.faults.symptoms import (
    KernelLine,
    LinkTurned,
    NicCounted,
    NicMute,
    PortCounted,
    RankGivesUp,
)
from nemesis.sim.faults.target import MS, Course, Target
from nemesis.sim.jobs.ranks import pid_of

ERR: Final = 3
INFO: Final = 6
INTERFACE: Final = "enp{bus}s0np0"
"""systemd names a port by its PCI bus, in decimal."""


def nic_flap(planned: NicFlap, target: Target, random: Random) -> Course:
    """A bad transceiver: symbol errors, link down, link up, again and again."""
    course = Course(node=target.node, stalls=target.rank >= 0)
    down_ns, up_ns = round(planned.down_s * 1e9), round(planned.up_s * 1e9)
    for flap in range(planned.flaps_count):
        at_ns = flap * (down_ns + up_ns)
        errors = (("symbol_error_count", random.randrange(40, 400)),)
        course.at(at_ns, NicCounted(target.index, errors))
        _turn(course, at_ns, target, up=False)
        back_ns = at_ns + down_ns + random.randrange(-200, 200) * MS
        _turn(course, back_ns, target, up=True)
        course.at(back_ns, NicCounted(target.index, (("link_error_recovery_count", 1),)))
    return course


def port_down(planned: PortDown, target: Target, random: Random) -> Course:
    """A lane of the switch's port fails: the switch counts errors, the NIC none; it goes down."""
    lost_ranks = (target.rank,) if target.rank >= 0 else ()
    course = Course(node=target.node, stalls=bool(lost_ranks), lost_ranks=lost_ranks)
    errors_count = random.randrange(200, 2_000)
    rises = (("symbol_error_count", errors_count), ("crc_error_count", errors_count // 40))
    course.at(0, PortCounted(target.index, rises))
    _turn(course, 0, target, up=False)
    return course


def nic_dead(planned: NicDead, target: Target, random: Random) -> Course:
    """Its firmware hangs: data stops, the port stays up, and health polling needs seconds to tell.

    The ranks that wait for it give up before: NCCL's watchdog aborts their processes, and the
    driver says of each what it says of every process that ends in the middle of a kernel.
    """
    cluster = target.cluster
    course = Course(node=target.node, stalls=True, lost_ranks=(target.rank,))
    course.at(0, NicMute(target.index))
    nodes = [node for node in cluster.job_nodes if node != target.node]
    for loud in range(min(planned.loud_count, len(nodes))):
        node = nodes.pop(random.randrange(len(nodes)))
        index = random.randrange(cluster.ranks_per_node)
        other = Target(cluster, node, index)
        at_ns = round(planned.loud_after_s * 1e9) + loud * random.randrange(20, 200) * MS
        process = f"pid={pid_of(other.rank)}, name=pt_main_thread"
        lines = (
            f"NVRM: Xid (PCI:{other.slot}): 43, {process}, Ch {random.randrange(64):08x}",
            f"NVRM: Xid (PCI:{other.slot}): 45, {process}, Ch {random.randrange(64):08x}",
        )
        gives_up = RankGivesUp(other.rank, -SIGABRT, lines, round(planned.loud_after_s * 1e9))
        course.at(at_ns, gives_up, node=node)
    line = (
        f"mlx5_core {target.nic.pci}: poll_health:852:(pid 0): device's health compromised - "
        "reached miss count"
    )
    course.at(round(planned.line_after_s * 1e9), KernelLine(line, ERR))
    return course


def _turn(course: Course, at_ns: int, target: Target, *, up: bool) -> None:
    pci = target.nic.pci
    interface = INTERFACE.format(bus=int(pci.split(":")[1], 16))
    course.at(at_ns, LinkTurned(target.index, up))
    line = f"mlx5_core {pci} {interface}: Link {'up' if up else 'down'}"
    course.at(at_ns + 2 * MS, KernelLine(line, INFO))
