"""What goes wrong with evidence while the cluster works: late, lost, double, dated wrong, missing.

Nothing of it is anybody's fault: whatever is concluded from it alone is a false alarm. Beside a
real fault it decides what of that one's evidence arrives.
"""

from random import Random

from nemesis.schemas.components import node as node_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.planned_decoys import (
    ClockOffset,
    DumpMissing,
    EvidenceDoubled,
    EvidenceLate,
    EvidenceLost,
    NoKernelLines,
    PollsMissed,
    SingleSnapshot,
)
from nemesis.sim.faults.symptoms import (
    ClockOff,
    EvidenceEffect,
    MissedPolls,
    NoDump,
    NoKernelLog,
    SamplesDoubled,
    SamplesLate,
    SamplesLost,
)
from nemesis.sim.faults.target import MS, Target


def clock_offset(planned: ClockOffset, target: Target, random: Random) -> Course:
    """As bad as a skewed clock that is known, and unknown."""
    return _of_node(target, ClockOff(planned.offset_ms * MS), "its clock is off, unknown to it")


def evidence_late(planned: EvidenceLate, target: Target, random: Random) -> Course:
    """The cut is of the management network: training goes on over the other one."""
    course = Course(node=target.node, component=f"switch/{target.switch}")
    course.because(course.component, "its nodes' management network is cut")
    for_ns = round(planned.for_s * 1e9)
    below = {each.node: each for each in target.on_switch()}
    nodes = list(below) if planned.whole_switch else [target.node]
    for node in nodes:
        course.at(0, SamplesLate(for_ns), node=node)
        course.shows("spool", "", after_ns=for_ns, by=node, component=node_name(node))
        course.blames_not([node_name(node)])
    course.blames_not([course.component])
    course.ends_ns = for_ns
    return course


def evidence_lost(planned: EvidenceLost, target: Target, random: Random) -> Course:
    """A full buffer somewhere on the way."""
    return _of_node(target, SamplesLost(planned.per_mille), "some of its samples get lost")


def evidence_doubled(planned: EvidenceDoubled, target: Target, random: Random) -> Course:
    """An answer got lost, and what was sent is sent again."""
    return _of_node(target, SamplesDoubled(planned.per_mille), "some of its facts come twice")


def polls_missed(planned: PollsMissed, target: Target, random: Random) -> Course:
    """Its producer gets no CPU in time."""
    return _of_node(target, MissedPolls(planned.per_mille), "its producer misses polls")


def single_snapshot(planned: SingleSnapshot, target: Target, random: Random) -> Course:
    """One reading of each counter: what it counted before or since nobody knows."""
    return _of_node(target, MissedPolls(1_000), "it is polled no more")


def no_kernel_lines(planned: NoKernelLines, target: Target, random: Random) -> Course:
    """kernel.dmesg_restrict, and a producer without CAP_SYSLOG."""
    return _of_node(target, NoKernelLog(), "nothing may read its kernel log")


def dump_missing(planned: DumpMissing, target: Target, random: Random) -> Course:
    """No room on the disk where it would have been written."""
    course = Course(node=target.node, component=target.rank_name)
    course.because(course.component, "its flight recorder is not written")
    course.at(0, NoDump(target.rank))
    return course


def _of_node(target: Target, effect: EvidenceEffect, what: str) -> Course:
    course = Course(node=target.node, component=node_name(target.node))
    course.because(course.component, what)
    course.at(0, effect)
    return course
