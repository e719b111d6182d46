"""What faults of a NIC or its cable look like: link lines, error counters at either end, silence.

Lines as mlx5 prints them (Linux drivers/net/ethernet/mellanox/mlx5/core: en_main.c, events.c,
health.c); counters as in Documentation/ABI/stable/sysfs-class-infiniband and `ethtool -S`
(Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst). Receive errors are
counted where they are received: by the NIC if its end is bad, by the switch if the other one is.
"""

from random import Random
from typing import Final

from nemesis.schemas.components import rank as rank_name
from nemesis.sim.faults.course import ERR, Course
from nemesis.sim.faults.gpu import SIGABRT
from nemesis.sim.faults.planned_network import NicDead, NicDown, NicFlap, OpticDegraded, PortDown
from nemesis.sim.faults.symptoms import (
    LinkTurned,
    NicCounted,
    NicMute,
    NicRises,
    NicSlowed,
    PortCounted,
    PortRises,
    RankGivesUp,
)
from nemesis.sim.faults.target import MS, Target
from nemesis.sim.jobs.ranks import pid_of

INFO: Final = 6
INTERFACE: Final = "enp{bus}s0np0"
"""systemd names a port by its PCI bus, in decimal."""
RAMP_STEPS: Final = 5
# IEEE 802.3ck links of 400 Gbit/s run at a pre-FEC error ratio of some 1e-9 when healthy: hundreds
# of corrected bits a second; a fading one corrects a million times that before words are lost
CORRECTED_PER_S: Final = 40_000_000
LOST_PER_S: Final = 30


def nic_flap(planned: NicFlap, target: Target, random: Random) -> Course:
    """A bad transceiver: symbol errors, link down, link up, again and again."""
    course = Course(node=target.node, component=target.link_name)
    course.because(target.link_name, "a transceiver loses the light again and again")
    stalls(course, target, 0)
    course.lost_ranks = ()
    down_ns, up_ns = round(planned.down_s * 1e9), round(planned.up_s * 1e9)
    for flap in range(planned.flaps_count):
        at_ns = flap * (down_ns + up_ns)
        errors = (("symbol_error_count", random.randrange(40, 400)),)
        course.at(at_ns, NicCounted(target.nic_index, errors))
        turn(course, at_ns, target, up=False)
        back_ns = at_ns + down_ns + random.randrange(-200, 200) * MS
        turn(course, back_ns, target, up=True)
        course.at(back_ns, NicCounted(target.nic_index, (("link_error_recovery_count", 1),)))
        course.ends_ns = back_ns
    for channel in ("link_downed_count", "symbol_error_count"):
        nic_shows(course, target, channel, 0, value=planned.flaps_count)
    return course


def port_down(planned: PortDown, target: Target, random: Random) -> Course:
    """A lane of the switch's port fails: the switch counts errors, the NIC none; it goes down."""
    course = Course(node=target.node, component=target.port)
    course.because(target.port, "a lane fails")
    errors_count = random.randrange(200, 2_000)
    rises = (("symbol_error_count", errors_count), ("crc_error_count", errors_count // 40))
    course.at(0, PortCounted(target.nic_index, rises))
    for field, rise in rises:
        port_shows(course, target, field, 0, value=rise)
    turn(course, 0, target, up=False)
    stalls(course, target, 0)
    return course


def nic_dead(planned: NicDead, target: Target, random: Random) -> Course:
    """Its firmware hangs: data stops, the port stays up, and health polling needs seconds to tell.

    The ranks that wait for it give up before: NCCL's watchdog aborts their processes, and the
    driver says of each what it says of every process that ends in the middle of a kernel.
    """
    course = Course(node=target.node, component=target.nic_name)
    course.because(target.nic_name, "its firmware hangs, data stops")
    course.at(0, NicMute(target.nic_index))
    stalls(course, target, 0)
    others = target.others(random, planned.loud_count)
    give_up(course, others, round(planned.loud_after_s * 1e9), random)
    line = (
        f"mlx5_core {target.nic.pci}: poll_health:852:(pid 0): device's health compromised - "
        "reached miss count"
    )
    course.line(round(planned.line_after_s * 1e9), line, ERR)
    return course


def nic_down(planned: NicDown, target: Target, random: Random) -> Course:
    """A firmware assertion: the driver prints its syndrome and takes the port down."""
    course = Course(node=target.node, component=target.nic_name)
    course.because(target.nic_name, "its firmware fails")
    pci = target.nic.pci
    course.line(
        0, f"mlx5_core {pci}: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error"
    )
    course.line(4 * MS, f"mlx5_core {pci}: Health issue observed, unrecoverable hardware error, "
                "severity(2) CRITICAL")  # fmt: skip
    # that both ends are down tells of the link: a cut cable and a dead port show the same
    turn(course, 10 * MS, target, up=False, decisive=False)
    course.at(900 * MS, NicCounted(target.nic_index, (("retries_exceeded_count", 4),)))
    nic_shows(course, target, "port_up", 10 * MS, shows="at_most", decisive=False)
    port_shows(course, target, "up", 10 * MS, shows="at_most", decisive=False)
    stalls(course, target, 0)
    return course


def optic_degraded(planned: OpticDegraded, target: Target, random: Random) -> Course:
    """Corrected bits first, then words that are lost, retransmissions, and slow collectives."""
    course = Course(node=target.node, component=target.link_name)
    by_nic = planned.end == "nic"
    course.because(target.link_name, "a transceiver fades")
    ramp_ns = round(planned.ramp_s * 1e9)
    for step in range(1, RAMP_STEPS + 1):
        at_ns = ramp_ns * (step - 1) // RAMP_STEPS
        lost = LOST_PER_S * max(0, 2 * step - RAMP_STEPS) // RAMP_STEPS
        corrected = ("fec_corrected_bits_count", CORRECTED_PER_S * step // RAMP_STEPS)
        words = ("fec_uncorrectable_count", lost)
        again = ("packet_seq_err_count", lost // 3), ("local_ack_timeout_count", lost // 15)
        seen_by_nic = (corrected, words, ("crc_error_count", lost // 2)) if by_nic else ()
        course.at(at_ns, NicRises(target.nic_index, (*seen_by_nic, *again)))
        if not by_nic:
            port = (words, ("crc_error_count", lost // 2), ("symbol_error_count", lost))
            course.at(at_ns, PortRises(target.port, port))
        slow = planned.slowdown_per_mille * max(0, 2 * step - RAMP_STEPS) // RAMP_STEPS
        course.at(at_ns, NicSlowed(target.nic_index, slow))
    late_ns = ramp_ns * (RAMP_STEPS - 1) // RAMP_STEPS
    if by_nic:
        nic_shows(course, target, "fec_uncorrectable_count", late_ns)
    else:
        port_shows(course, target, "fec_uncorrectable_count", late_ns)
    nic_shows(course, target, "packet_seq_err_count", late_ns, decisive=False)
    course.because(f"job/{target.job}", "collectives over it are sent again and take longer")
    return course


def stalls(course: Course, target: Target, at_ns: int) -> None:
    """The ranks behind the NIC reach no other node, and with them the job stands."""
    ranks = target.ranks_of_nic()
    if not ranks:
        return
    course.stalls, course.lost_ranks = True, ranks
    for rank in ranks:
        course.because(rank_name(target.job, rank), "reaches no other node", at_ns)
    course.because(f"job/{target.job}", "all its ranks wait", at_ns)


def give_up(course: Course, others: list[Target], after_ns: int, random: Random) -> None:
    """Ranks elsewhere abort after their patience; the driver says of each what it always says."""
    for loud, other in enumerate(others):
        at_ns = after_ns + loud * random.randrange(20, 200) * MS
        process = f"pid={pid_of(other.rank)}, name=pt_main_thread"
        lines = (
            f"NVRM: Xid (PCI:{other.slot}): 43, {process}, Ch {random.randrange(64):08x}",
            f"NVRM: Xid (PCI:{other.slot}): 45, {process}, Ch {random.randrange(64):08x}",
        )
        course.at(at_ns, RankGivesUp(other.rank, -SIGABRT, lines, after_ns), node=other.node)
        course.because(other.rank_name, "its watchdog aborts it while it waits", at_ns)
        course.blames_not([other.rank_name, other.gpu_name, f"node/{other.node}"])


def turn(course: Course, at_ns: int, target: Target, *, up: bool, decisive: bool = True) -> None:
    """The link goes down or comes back, and the kernel says so."""
    course.at(at_ns, LinkTurned(target.nic_index, up))
    link_line(course, at_ns, target, up=up, decisive=decisive)


def link_line(
    course: Course, at_ns: int, target: Target, *, up: bool, decisive: bool = True
) -> None:
    """What the driver prints of a link."""
    pci = target.nic.pci
    interface = INTERFACE.format(bus=int(pci.split(":")[1], 16))
    line = f"mlx5_core {pci} {interface}: Link {'up' if up else 'down'}"
    course.line(
        at_ns + 2 * MS,
        line,
        INFO,
        node=target.node,
        component=target.link_name,
        decisive=decisive and not up,
    )


def nic_shows(
    course: Course,
    target: Target,
    channel: str,
    after_ns: int,
    *,
    shows: str = "rises",
    value: int = 0,
    decisive: bool = True,
) -> None:
    """A reading of the NIC that the log must hold."""
    course.reads(
        f"nic.{channel}",
        shows="rises" if shows == "rises" else "at_most" if shows == "at_most" else "at_least",
        value=value or int(shows == "rises"),
        row=target.nic_index,
        after_ns=after_ns,
        by=target.node,
        component=target.nic_name,
        decisive=decisive,
    )


def port_shows(
    course: Course,
    target: Target,
    field: str,
    after_ns: int,
    *,
    shows: str = "rises",
    value: int = 0,
    decisive: bool = True,
) -> None:
    """A reading of the switch's port that the log must hold."""
    course.shows(
        "fabric",
        field,
        shows="rises" if shows == "rises" else "at_most" if shows == "at_most" else "at_least",
        value=value or int(shows == "rises"),
        after_ns=after_ns,
        by=target.switch,
        component=target.port,
        decisive=decisive,
    )
