"""The rules that a proposal of the advisor must pass: one by one, the first that refuses is named.

Asked twice: when the advisor proposes, so that it hears of it, and when the scheduler reads what
was proposed, on the state of that moment. All in whole numbers; nothing here knows who proposed,
why, or in which words.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from nemesis.processors.advice.situation import (
    Situation,
    Standing,
    case_of,
    planned,
    world_of,
)
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.parsing import BadSpecError, read
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.advised import AdvisedAct, AdvisedKind
from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, parse_nodes

SPARES_MAX: Final = 8
"""Nodes that an advisor may have held idle for one job; more is for its owner to ask."""

RULES: Final[Mapping[str, str]] = {
    "unknown_job": "the log knows no such job",
    "other_job": "advice on one job proposes nothing for another",
    "not_waiting": "only a job that waits can be placed, moved in the queue or given spares",
    "language": "a description must be in the language",
    "no_such_node": "nodes must be of the cluster, each once",
    "held": "a node on probation, protected or likely to fail is given to nobody",
    "not_free": "nodes must be free whole, no job may have any of them",
    "checker": "the type checker must accept the description; its code stands in the place of this",
    "nodes": "a job gets as many nodes as it needs, no more and no fewer",
    "shape": "the groups of a job must lie where its description says",
    "priority": "nobody may overtake a job of higher priority that could be placed",
    "same_priority": "only jobs of the same priority may change their order",
    "in_order": "the job stands before that one already",
    "spares": "an advisor may hold a few nodes at most",
    "gpus": "another description is for the same number of GPUs",
    "batch": "another description keeps the batch",
    "same": "another description must differ",
    "running": "only a job that is over gives its nodes back at an advisor's word",
}
"""What each rule means, for people."""


class Broken(msgspec.Struct, frozen=True):
    """A rule that does not let an act pass."""

    rule: str
    why: str


def judge(situation: Situation, about: str, act: AdvisedAct) -> Broken | None:
    """The first rule that an act in advice on the job `about` breaks; None where it breaks none."""
    job = situation.by_name.get(act.job)
    if act.job != about:
        return Broken("other_job", f"this advice is on {about}")
    if job is None:
        return Broken("unknown_job", f"no job {act.job}")
    return _JUDGES[act.kind](situation, job, act)


def _place(situation: Situation, job: Standing, act: AdvisedAct) -> Broken | None:
    if job.stage != "waiting":
        return Broken("not_waiting", f"{job.job} is {job.stage}")
    nodes, broken = _nodes(situation, act.nodes)
    if broken:
        return broken
    others = [name for name in dict.fromkeys(situation.pool.nodes) if name not in set(nodes)]
    chosen = situation.usable.without(others)
    try:
        case = case_of(job, situation.usable)
    except BadSpecError as error:
        return Broken("language", error.message)
    if broken := _checked(job, situation.usable, job.spec):
        return broken
    plan = planned(case, chosen)
    if not plan.seats:
        refused = [each.refused for each in plan.candidates if each.refused]
        wanted = -(-case.world // max(situation.usable.whole, default=1))
        if len(nodes) != wanted:
            return Broken("nodes", f"{len(nodes)} nodes, {job.job} needs {wanted}")
        return Broken("shape", refused[0] if refused else f"no place for {job.job} on these nodes")
    if len(plan.seats) != len(nodes):
        return Broken("nodes", f"{len(nodes)} nodes, {job.job} needs {len(plan.seats)}")
    return _overtaken(situation, job, nodes)


def _order(situation: Situation, job: Standing, act: AdvisedAct) -> Broken | None:
    other = situation.by_name.get(act.before)
    if other is None:
        return Broken("unknown_job", f"no job {act.before}")
    for each in (job, other):
        if each.stage != "waiting":
            return Broken("not_waiting", f"{each.job} is {each.stage}")
    if job.priority != other.priority:
        told = f"{job.job} has priority {job.priority}, {other.job} {other.priority}"
        return Broken("same_priority", told)
    names = [each.job for each in situation.jobs]
    if names.index(job.job) <= names.index(other.job):
        return Broken("in_order", f"{job.job} stands before {other.job}")
    return None


def _spares(situation: Situation, job: Standing, act: AdvisedAct) -> Broken | None:
    if job.stage not in ("waiting", "running"):
        return Broken("not_waiting", f"{job.job} is {job.stage}")
    nodes, broken = _nodes(situation, act.nodes)
    if broken:
        return broken
    if len(nodes) > SPARES_MAX:
        return Broken("spares", f"{len(nodes)} nodes, at most {SPARES_MAX}")
    return _overtaken(situation, job, nodes)


def _offer(situation: Situation, job: Standing, act: AdvisedAct) -> Broken | None:
    if job.stage not in ("waiting", "rejected"):
        return Broken("not_waiting", f"{job.job} is {job.stage}")
    try:
        offered = read(act.spec).spec
    except BadSpecError as error:
        return Broken("language", error.message)
    try:
        own = read(job.spec).spec
    except BadSpecError:
        own = None
    if own is not None:
        if offered == own:
            return Broken("same", "it is the description that the job has")
        if offered.global_batch != own.global_batch:
            told = f"gbs={offered.global_batch}, the job has {own.global_batch}"
            return Broken("batch", told)
    if broken := _checked(job, situation.usable, act.spec):
        return broken
    world, wanted = case_of(job, situation.usable, act.spec).world, world_of(job)
    if wanted and world != wanted:
        return Broken("gpus", f"{world} GPUs, the job is for {wanted}")
    return None


def _release(situation: Situation, job: Standing, act: AdvisedAct) -> Broken | None:
    if job.stage != "over":
        return Broken("running", f"{job.job} is {job.stage}")
    return None


_JUDGES: Final[Mapping[AdvisedKind, Callable[[Situation, Standing, AdvisedAct], Broken | None]]] = {
    "place": _place,
    "order": _order,
    "spares": _spares,
    "offer": _offer,
    "release": _release,
}


def _nodes(situation: Situation, said: Sequence[str]) -> tuple[tuple[str, ...], Broken | None]:
    """The names in node_ranges form, all of them free and allowed."""
    if not 0 < count_nodes(said) <= NODES_MAX:
        return (), Broken("no_such_node", "names no node, or too many")
    names = parse_nodes(said)
    known, free = set(situation.pool.nodes), set(situation.free_nodes)
    if len(set(names)) < len(names):
        return (), Broken("no_such_node", "a node stands there twice")
    for name in names:
        if name not in known:
            return (), Broken("no_such_node", f"{name[:60]} is none of the cluster")
        if why := situation.held.get(name):
            return (), Broken("held", f"{name}: {why}")
        if name not in free:
            owner = [each.job for each in situation.jobs if name in each.nodes]
            return (), Broken(
                "not_free", f"{name} is {owner[0]}'s" if owner else f"{name} is taken"
            )
    return names, None


def _checked(job: Standing, pool: Pool, spec: str) -> Broken | None:
    """The first error of the type checker; its code is the rule's name."""
    checked = check(case_of(job, pool, spec))
    if checked.outcome == "accepted":
        return None
    first = checked.findings[0]
    return Broken(first.code, first.text + (f"; {first.legal}" if first.legal else ""))


def _overtaken(situation: Situation, job: Standing, nodes: Sequence[str]) -> Broken | None:
    """A job of higher priority that has a place now, and none once these nodes are gone."""
    left = situation.usable.without(nodes)
    for other in situation.jobs:
        if other.stage != "waiting" or other.priority <= job.priority:
            continue
        if _has_place(other, situation.usable) and not _has_place(other, left):
            return Broken("priority", f"{other.job} has priority {other.priority} and would wait")
    return None


def _has_place(job: Standing, pool: Pool) -> bool:
    try:
        case = case_of(job, pool)
    except BadSpecError:
        return False
    return check(case).outcome == "accepted" and bool(planned(case, pool).seats)
