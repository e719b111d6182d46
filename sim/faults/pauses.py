"""What priority flow control does when it goes wrong: who pauses first, who is paused, in a ring.

A device that sends pause is the congested one; who receives it is its victim. Pause spreads hop by
hop against the flow, from the receiver that cannot keep up through its leaf to every sender
("RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, sections 4.2 and 6.2; ethtool's
{rx,tx}_prio3_pause_duration, in microseconds). A watchdog tells a deadlock after 200 ms
(sonic-utilities, pfcwd).
"""

from random import Random
from typing import Final

from nemesis.sim.faults.course import Course
from nemesis.sim.faults.network import nic_shows, port_shows
from nemesis.sim.faults.planned_network import PauseDeadlock, PauseStorm
from nemesis.sim.faults.symptoms import (
    HostReads,
    NicMute,
    NicRises,
    NicSlowed,
    PortCounted,
    PortRises,
)
from nemesis.sim.faults.target import MS, Target

STORM_US_PER_S: Final = 900_000  # paused for nine tenths of the time
SPREAD_US_PER_S: Final = 600_000  # what its victims see
HOP_NS: Final = 120 * MS  # until buffers one hop further are full, in the granularity of polls
WATCHDOG_NS: Final = 400 * MS


def pause_storm(planned: PauseStorm, target: Target, random: Random) -> Course:
    """The NIC pauses its leaf, the leaf pauses every NIC that sends to it: all slow, no error."""
    course = Course(node=target.node, component=target.nic_name)
    is_host = planned.origin == "receiver"
    root = f"node/{target.node}" if is_host else target.nic_name
    course.because(root, "takes in less than it is sent")
    if is_host:
        # back pressure of PCIe: the memory of a busy host answers late
        course.at(0, HostReads((("memory_pressure_ppm", 450_000), ("numa_remote_ppm", 600_000))))
        course.reads("host.memory_pressure_ppm", shows="at_least", value=300_000, row=0,
            component=root, decisive=False,
        )  # fmt: skip
    own = (("tx_pause_duration_us", STORM_US_PER_S), ("discard_count", 40 if is_host else 0))
    course.at(0, NicRises(target.nic_index, own))
    course.at(0, PortRises(target.port, (("rx_pause_us", STORM_US_PER_S),)))
    nic_shows(course, target, "tx_pause_duration_us", 0, value=STORM_US_PER_S // 2)
    port_shows(course, target, "rx_pause_us", 0, value=STORM_US_PER_S // 2)
    victims = [each for each in target.on_switch() if each != target]
    for each in victims:
        per_s = SPREAD_US_PER_S * random.randrange(700, 1_301) // 1_000
        course.at(HOP_NS, PortRises(each.port, (("tx_pause_us", per_s),)))
        course.at(
            HOP_NS, NicRises(each.nic_index, (("rx_pause_duration_us", per_s),)), node=each.node
        )
        course.blames_not([each.nic_name, each.port])
    for each in victims[:1]:
        nic_shows(course, each, "rx_pause_duration_us", HOP_NS, decisive=False)
        course.because(each.nic_name, "is paused by its leaf, as all others there are", HOP_NS)
    course.at(0, NicSlowed(target.nic_index, planned.slowdown_per_mille))
    course.because(
        f"job/{target.job}", "every collective takes as long as its slowest link", HOP_NS
    )
    if planned.lasts_s:
        _calm(course, [target, *victims], round(planned.lasts_s * 1e9))
        if is_host:
            course.at(course.ends_ns, HostReads(()))
    return course


def pause_deadlock(planned: PauseDeadlock, target: Target, random: Random) -> Course:
    """Each port of the ring waits for the next one's buffer: paused for good, nothing moves."""
    switch = f"switch/{target.switch}"
    course = Course(node=target.node, component=switch)
    course.because(switch, "a routing loop lets buffers wait for each other")
    ports = target.on_switch()
    count = min(planned.ring_count, len(ports))
    first = ports.index(target)
    ring = [ports[(first + at) % len(ports)] for at in range(count)]
    course.named({"ring_ports": [each.port for each in ring]})
    for each in ring:
        both = (("rx_pause_us", 1_000_000), ("tx_pause_us", 1_000_000))
        course.at(0, PortRises(each.port, both))
        course.at(
            0, NicRises(each.nic_index, (("rx_pause_duration_us", 1_000_000),)), node=each.node
        )
        course.at(
            WATCHDOG_NS, PortCounted(each.nic_index, (("pfc_deadlock_count", 1),)), node=each.node
        )
        course.at(0, NicMute(each.nic_index), node=each.node)
        for field in ("rx_pause_us", "tx_pause_us", "pfc_deadlock_count"):
            port_shows(course, each, field, WATCHDOG_NS, value=1)
        course.blames_not([each.nic_name])
        course.because(each.port, "is paused by the next one of the ring, and pauses the last")
    course.stalls = True
    course.lost_ranks = tuple(sorted({each.rank for each in ring if each.rank >= 0}))
    course.because(f"job/{target.job}", "all its ranks wait", WATCHDOG_NS)
    return course


def _calm(course: Course, places: list[Target], at_ns: int) -> None:
    course.ends_ns = at_ns
    for each in places:
        course.at(at_ns, NicRises(each.nic_index, ()), node=each.node)
        course.at(at_ns, PortRises(each.port, ()))
        course.at(at_ns, NicSlowed(each.nic_index, 0), node=each.node)
