"""Which jobs would have to move so that one that waits finds a place, and is it worth it?

Free nodes that are scattered hold no gang that must lie together. The plan with the fewest moves is
looked for: one job that runs is taken off, then two; who waits is placed first, then those that
were taken off, each by its own description. It is advice: a move costs the job a save and a
restart, and whether that may be asked of it is for its owner. Cost and gain are node-seconds:
nodes of the moved jobs times `move_ns`; nodes of who waits times the time that it starts earlier.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.scheduler.queue import Delay, Ground, fitted
from nemesis.processors.scheduler.settings import SECOND_NS, Settings
from nemesis.processors.scheduler.state import Running, State, Waiting
from nemesis.schemas.node_ranges import format_nodes
from nemesis.schemas.scheduled import MoveAdvised, MovesAdvised

MOVED_MAX: Final = 2
"""Jobs that one plan moves; more are a reshuffle that nobody carries out by hand."""
TRIED_MAX: Final = 24
"""Plans that are looked at, those that move fewest nodes first."""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: who leaves its nodes for which others."""

    jobs: tuple[tuple[str, tuple[str, ...]], ...]
    """(job, its nodes then)."""


def advice(
    state: State, settings: Settings, ground: Ground, delay: Delay, now_ns: int
) -> MovesAdvised | None:
    """Moves that let the first of the queue start now and are worth it; None: there are none."""
    waiting, own = state.queue[delay.name], delay.reservation
    if own is None or own.name != delay.name:
        return None
    if len(ground.free().whole_nodes) < len(own.nodes):
        return None  # who moves takes as many nodes as he leaves
    found = _fewest(state, ground, waiting, now_ns)
    if found is None:
        return None
    moved = sum(len(state.running[name].nodes) for name, _ in found.jobs)
    cost_s = moved * settings.move_ns // SECOND_NS
    gain_s = len(own.nodes) * ((own.start_ns - now_ns) // SECOND_NS)
    if gain_s <= cost_s:
        return None
    names = " and ".join(name for name, _ in found.jobs)
    return MovesAdvised(
        at_ns=now_ns,
        reason=f"moving {names} costs {cost_s} node-seconds and lets {delay.name} start "
        f"{(own.start_ns - now_ns) // SECOND_NS} s earlier, {gain_s} node-seconds",
        job=delay.name,
        moves=tuple(
            MoveAdvised(
                job=name,
                nodes_from=format_nodes(state.running[name].job.node_names),
                nodes_to=format_nodes(nodes),
            )
            for name, nodes in found.jobs
        ),
        cost_node_s=cost_s,
        gain_node_s=gain_s,
    )


def _fewest(state: State, ground: Ground, waiting: Waiting, now_ns: int) -> Moves | None:
    movable = sorted(
        (job for job in state.running.values() if job.submitted.waits),
        key=lambda job: (len(job.nodes), job.job.job),
    )[:TRIED_MAX]
    tried = [set_ for count in range(1, MOVED_MAX + 1) for set_ in combinations(movable, count)]
    tried.sort(key=lambda jobs: (len(jobs), sum(len(job.nodes) for job in jobs)))
    for jobs in tried[:TRIED_MAX]:
        plan = _plan(state, ground, waiting, jobs, now_ns)
        if plan is not None:
            return plan
    return None


def _plan(
    state: State, ground: Ground, waiting: Waiting, jobs: Sequence[Running], now_ns: int
) -> Moves | None:
    """Who waits is placed first, then these jobs, the largest first; None: not all of them are."""
    off = {node for job in jobs for node in job.nodes}
    rest = replace(ground, taken=[node for node in ground.taken if node not in off])
    first = fitted(state, rest, waiting, (), now_ns)
    if first is None:
        return None
    taken = {*first[1].nodes, *first[1].spares}
    found: list[tuple[str, tuple[str, ...]]] = []
    for job in sorted(jobs, key=lambda job: -len(job.nodes)):
        again = Waiting(job=replace(job.submitted, model={}), seq=0, since_ns=0)
        place = fitted(state, rest, again, taken, now_ns)
        if place is None:
            return None
        taken |= {*place[1].nodes, *place[1].spares}
        found.append((job.job.job, place[1].nodes))
    return Moves(jobs=tuple(found))
