"""What faults of a host or of a program look like: pressure, a process that ends, another call."""

from random import Random
from typing import Final

from nemesis.sim.faults.gpu import SIGABRT
from nemesis.sim.faults.planned import Desync, HostContention, NodeLost, RankExit
from nemesis.sim.faults.symptoms import HostLoaded, RankDies, RankStrays, Slowed
from nemesis.sim.faults.symptoms import NodeLost as PowerLost
from nemesis.sim.faults.target import Course, Target

SIGKILL: Final = 9
RAMP_STEPS: Final = 3


def rank_exit(planned: RankExit, target: Target, random: Random) -> Course:
    """A process is killed, aborts or returns 1; no log says why."""
    course = Course(node=target.node, stalls=True, lost_ranks=(target.rank,))
    course.at(0, RankDies(target.rank, random.choice((-SIGKILL, -SIGABRT, 1))))
    return course


def node_lost(planned: NodeLost, target: Target, random: Random) -> Course:
    """From one moment to the next nothing is heard of a node."""
    lost_ranks = target.cluster.ranks_of(target.node)
    course = Course(node=target.node, stalls=True, lost_ranks=lost_ranks)
    course.at(0, PowerLost())
    return course


def host_contention(planned: HostContention, target: Target, random: Random) -> Course:
    """The trainer's threads wait for a CPU: pressure, run queue, steal, every rank late.

    A spinning thread with four others on two CPUs waits 765 ms of each second (measured:
    /proc/<pid>/task/<tid>/schedstat).
    """
    course = Course(node=target.node)
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
    if planned.lasts_s:
        over_ns = ramp_ns + round(planned.lasts_s * 1e9)
        course.at(over_ns, HostLoaded(0, 0, 0))
        course.at(over_ns, Slowed(0))
    return course


def desync(planned: Desync, target: Target, random: Random) -> Course:
    """A branch that one rank alone took: its next collective is another one."""
    course = Course(node=target.node, stalls=True)
    course.at(0, RankStrays(target.rank, planned.differs_in))
    return course
