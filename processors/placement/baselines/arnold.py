"""Arnold's placement: communication groups over minipods, by an integer program of its own.

arXiv 2509.15940, section 4: a job is a matrix, its rows the groups that talk pipeline, its columns
those that talk data parallel. The program spreads the chosen groups over as few minipods as can be:
minimise alpha x (minipods used) + beta x (minipods of the group that is spread most). Inside a
minipod nodes are packed leaf by leaf.
"""

from collections.abc import Sequence

from nemesis.processors.placement.counts import Answer
from nemesis.processors.placement.ground import Gang, Ground, Placement
from nemesis.processors.placement.mip import Building, Mip
from nemesis.processors.placement.subtree import best_fit
from nemesis.processors.topology.pool import sums


def arnold_program(
    ground: Ground, groups: Sequence[Gang], *, alpha: int = 1, beta: int = 1, level: int = 1
) -> Mip:
    """Variables: nodes of each group in each minipod, group after group; then what is used.

    `level`: which tier the minipods are.
    """
    room = _room(ground, level)
    building = Building()
    counts = [[building.variable(min(most, gang.nodes)) for most in room] for gang in groups]
    touched = [[building.variable(1) for _ in room] for _ in groups]
    used = [building.variable(1, alpha) for _ in room]
    worst = building.variable(len(room), beta)
    for gang, own, marks in zip(groups, counts, touched, strict=True):
        building.row(own, [1] * len(own), low=gang.nodes, high=gang.nodes)
        building.row([*marks, worst], [1] * len(marks) + [-1], high=0)
        for count, mark, most in zip(own, marks, room, strict=True):
            building.row([count, mark], [1, -min(most, gang.nodes)], high=0)
    for minipod, most in enumerate(room):
        column = [own[minipod] for own in counts]
        building.row([*column, used[minipod]], [1] * len(column) + [-most], high=0)
    return building.built()


def arnold_placements(
    ground: Ground, groups: Sequence[Gang], answer: Answer, *, level: int = 1
) -> tuple[Placement, ...]:
    """The nodes of each group, leaf by leaf inside the minipods that the program chose."""
    minipods = sorted(set(ground.levels[level]))
    if not answer.values:
        return ()
    found: list[Placement] = []
    for number, _ in enumerate(groups):
        parts: Placement = ()
        for at, minipod in enumerate(minipods):
            nodes = answer.values[number * len(minipods) + at]
            if nodes:
                inside = Ground(
                    tuple(
                        free if own == minipod else 0
                        for free, own in zip(ground.free, ground.levels[level], strict=True)
                    ),
                    ground.tiers,
                )
                parts += best_fit(inside, Gang(nodes))
        found.append(parts)
        ground = ground.less(parts)
    return tuple(found)


def _room(ground: Ground, level: int) -> list[int]:
    """Free nodes of each minipod, in the order of their numbers."""
    room = sums(ground.levels[level], ground.free)
    return [room[minipod] for minipod in sorted(room)]
