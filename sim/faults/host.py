"""What a host that is slow or gone looks like: pressure, steal, remote memory, huge pages, silence.

Sources of the readings: Linux /proc/pressure, /proc/<pid>/task/<tid>/schedstat, /proc/stat steal,
numa_maps, /proc/vmstat (thp_fault_fallback, compact_stall). No GPU of such a host shows anything.
"""

from random import Random
from typing import Final

from nemesis.schemas.components import node as node_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.network import port_shows
from nemesis.sim.faults.planned_host import (
    ClockSkew,
    CpuSteal,
    HostContention,
    HostHang,
    NodeLost,
    NumaMisplaced,
    ThpFallback,
)
from nemesis.sim.faults.planned_network import RackPower
from nemesis.sim.faults.symptoms import (
    ClockOff,
    HostCounted,
    HostLoaded,
    HostReads,
    NodeHung,
    NodeReturned,
    Readings,
    Slowed,
)
from nemesis.sim.faults.symptoms import NodeLost as PowerLost
from nemesis.sim.faults.target import MS, Target

RAMP_STEPS: Final = 3
MARGIN: Final = 2, 3  # of what a scenario asks for: readings of hosts jitter by a tenth


def node_lost(planned: NodeLost, target: Target, random: Random) -> Course:
    """From one moment to the next nothing is heard of a node."""
    course = Course(node=target.node, component=node_name(target.node))
    course.because(node_name(target.node), "loses power")
    _goes_dark(course, target, 0)
    course.lost_ranks = target.cluster.ranks_of(target.node)
    return course


def host_hang(planned: HostHang, target: Target, random: Random) -> Course:
    """All CPUs wait for one lock with interrupts off: no line is written, nothing is sent.

    What its GPUs have enqueued they finish; its NICs keep their links, so the switch sees nothing.
    """
    course = Course(node=target.node, component=node_name(target.node))
    course.because(node_name(target.node), "hangs: no process of it runs")
    course.at(0, NodeHung())
    _falls_silent(course, target, 0)
    course.lost_ranks = target.cluster.ranks_of(target.node)
    port_shows(course, target, "up", 0, shows="at_least", value=1, decisive=False)
    return course


def rack_power(planned: RackPower, target: Target, random: Random) -> Course:
    """A shelf's supplies trip: every node of the rack is gone in the same moment."""
    rack, nodes = target.rack, target.rack_nodes
    course = Course(node=target.node, component=rack)
    course.because(rack, "loses power")
    course.named({
        "rack": [rack],
        "rack_nodes": [node_name(node) for node in nodes],
        "rack_ranks": [
            name
            for node in nodes
            for name in Target(target.cluster, node, 0).names()["ranks"]
        ],
    })  # fmt: skip
    ranks: list[int] = []
    for node in nodes:
        _goes_dark(course, Target(target.cluster, node, 0), 0)
        ranks += target.cluster.ranks_of(node)
        if planned.returns_s:
            course.ends_ns = round(planned.returns_s * 1e9)
            course.at(course.ends_ns, NodeReturned(), node=node)
    course.stalls, course.lost_ranks = bool(ranks), tuple(ranks)
    return course


def host_contention(planned: HostContention, target: Target, random: Random) -> Course:
    """The trainer's threads wait for a CPU: pressure, run queue, steal, every rank late.

    A spinning thread with four others on two CPUs waits 765 ms of each second (measured:
    /proc/<pid>/task/<tid>/schedstat).
    """
    course = _course(target, "another process takes its CPUs")
    ramp_ns = round(planned.ramp_s * 1e9)
    for step in range(1, RAMP_STEPS + 1):
        at_ns = ramp_ns * step // RAMP_STEPS
        loaded = HostLoaded(
            pressure_ppm=planned.pressure_ppm * step // RAMP_STEPS,
            run_queue_wait_ppm=planned.run_queue_wait_ppm * step // RAMP_STEPS,
            steal_ppm=planned.steal_ppm * step // RAMP_STEPS,
        )
        course.at(at_ns, loaded)
        course.at(at_ns, Slowed(planned.slowdown_per_mille * step // RAMP_STEPS))
    _shows(course, "cpu_pressure_ppm", planned.pressure_ppm, ramp_ns)
    _shows(course, "run_queue_wait_ppm", planned.run_queue_wait_ppm, ramp_ns)
    _late(course, target, ramp_ns, planned.slowdown_per_mille)
    if planned.lasts_s:
        course.ends_ns = ramp_ns + round(planned.lasts_s * 1e9)
        course.at(course.ends_ns, HostLoaded(0, 0, 0))
        course.at(course.ends_ns, Slowed(0))
    return course


def cpu_steal(planned: CpuSteal, target: Target, random: Random) -> Course:
    """Steal alone: the guest's own run queue is short, its threads simply do not run."""
    course = _course(target, "its hypervisor gives its CPUs to other guests")
    course.at(0, HostLoaded(0, 0, planned.steal_ppm))
    _shows(course, "cpu_steal_ppm", planned.steal_ppm)
    _slow(course, target, planned.slowdown_per_mille, planned.lasts_s, HostLoaded(0, 0, 0))
    return course


def numa_misplaced(planned: NumaMisplaced, target: Target, random: Random) -> Course:
    """Pinned buffers lie on the other socket: each copy crosses it, each rank is late."""
    course = _course(target, "its processes' memory lies on the other socket")
    course.at(0, HostReads((("numa_remote_ppm", planned.remote_ppm),)))
    _shows(course, "numa_remote_ppm", planned.remote_ppm)
    _slow(course, target, planned.slowdown_per_mille, planned.lasts_s, HostReads(()))
    return course


def thp_fallback(planned: ThpFallback, target: Target, random: Random) -> Course:
    """Each allocation compacts memory or falls back to small pages; threads stall while it does."""
    course = _course(target, "its memory is too fragmented for huge pages")
    seconds = max(1, round(planned.lasts_s))
    for second in range(seconds):
        count = planned.fallbacks_count // seconds * random.randrange(600, 1_401) // 1_000
        rises: Readings = (
            ("thp_fault_fallback_count", max(1, count)),
            ("compact_stall_count", max(1, count // 8)),
        )
        course.at(second * 1_000 * MS, HostCounted(rises))
    course.at(0, HostReads((("memory_pressure_ppm", 220_000),)))
    # healthy hosts fall back as well, some times a second at most
    least = max(1, planned.fallbacks_count // 4)
    for channel, value in (
        ("thp_fault_fallback_count", least),
        ("compact_stall_count", least // 8),
    ):
        course.reads(f"host.{channel}", shows="rises", value=max(1, value), row=0, explains=True)
    _slow(course, target, planned.slowdown_per_mille, planned.lasts_s, HostReads(()))
    return course


def clock_skew(planned: ClockSkew, target: Target, random: Random) -> Course:
    """chronyd has no source: the clock runs away, all that the node says is dated by it."""
    course = _course(target, "its clock follows no time server")
    offset_ns = planned.offset_ms * MS
    course.at(0, ClockOff(offset_ns, abs(offset_ns)))
    course.at(0, HostReads((("clock_offset_ns", offset_ns),)))
    course.reads(
        "host.clock_offset_ns",
        shows="at_least" if offset_ns >= 0 else "at_most",
        value=offset_ns * MARGIN[0] // MARGIN[1],
        row=0,
    )
    course.sets(0, f"service/{target.node}/chronyd", "reference", "none")
    return course


def _course(target: Target, root: str) -> Course:
    course = Course(node=target.node, component=node_name(target.node))
    course.because(node_name(target.node), root)
    return course


def _goes_dark(course: Course, target: Target, at_ns: int) -> None:
    course.at(at_ns, PowerLost(), node=target.node)
    _falls_silent(course, target, at_ns)


def _falls_silent(course: Course, target: Target, at_ns: int) -> None:
    course.shows(
        "sample",
        "", shows="silent", after_ns=at_ns, by=target.node,
        component=node_name(target.node),
    )  # fmt: skip
    if target.rank >= 0:
        course.stalls = True
        course.because(f"job/{target.job}", f"all its ranks wait for those of {target.node}", at_ns)


def _shows(course: Course, channel: str, ppm: int, after_ns: int = 0) -> None:
    if ppm:
        value = ppm * MARGIN[0] // MARGIN[1]
        course.reads(
            f"host.{channel}",
            shows="at_least",
            value=value,
            row=0,
            after_ns=after_ns,
            explains=True,
        )


def _slow(
    course: Course, target: Target, per_mille: int, lasts_s: float, over: HostLoaded | HostReads
) -> None:
    course.at(0, Slowed(per_mille))
    _late(course, target, 0, per_mille)
    if lasts_s:
        course.ends_ns = round(lasts_s * 1e9)
        course.at(course.ends_ns, Slowed(0))
        course.at(course.ends_ns, over)


def _late(course: Course, target: Target, at_ns: int, per_mille: int) -> None:
    """Every rank of the host enters its collectives late, unevenly."""
    for each in target.names()["ranks"][:1]:
        course.because(each, "enters each collective late, as all ranks of the node", at_ns)
        course.reads(
            "steps.own_ns",
            shows="above_others",
            value=per_mille // 2,
            row=target.cluster.ranks_of(target.node)[0],
            after_ns=at_ns,
            component=each,
            decisive=False,
        )
    if target.rank >= 0:
        course.because(f"job/{target.job}", "every step takes as long as its slowest rank", at_ns)
        course.blames_not([gpu for gpu in target.gpu_names()])
