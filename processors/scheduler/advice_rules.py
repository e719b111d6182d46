"""The rules that a proposal of the advisor must pass: one by one, the first that refuses is named.

Asked twice: when the advisor proposes, so that it hears of it, and when the scheduler reads what
was proposed, on the state of that moment. All in whole numbers; nothing here knows who proposed,
why, or in which words.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.parallelism.parsing import BadSpecError, read
from nemesis.processors.scheduler.admission import admit
from nemesis.processors.scheduler.following import Broken
from nemesis.processors.scheduler.queue import Ground, fit, kept_before, ordered
from nemesis.processors.scheduler.settings import Settings
from nemesis.processors.scheduler.state import Advised, State, team_of
from nemesis.schemas.advised import WHY_CHARS_MAX, AdviceGiven, AdvisedAct, AdvisedKind
from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, parse_nodes
from nemesis.schemas.operated import JobSubmitted

RULES: Final[Mapping[str, str]] = {
    "off": "this cell records advice and does not follow it",
    "no_nodes": "only a job that has nodes gives them back",
    "other_job": "advice on one job proposes nothing for another",
    "not_waiting": "only a job that waits can be placed, moved in the queue or given spares",
    "language": "a description must be in the language",
    "no_such_node": "nodes must be of the cluster, each once",
    "held": "a node at fault, protected, on probation or likely to fail is given to nobody",
    "not_free": "nodes must be free whole, no job may have any of them",
    "turn": "what is kept for a job that stands before it is not taken",
    "no_place": "a job that has no place yet waits",
    "nodes": "a job gets as many nodes as it needs, no more and no fewer",
    "shape": "the groups of a job must lie where its description says",
    "worse": "no step gets more than 5 % longer, no wish is lost, no more switches are touched",
    "spares": "a job gets as many spares as its description says",
    "spares_role": "spares can stand in for as many of the job's nodes as others could",
    "spares_near": "spares lie away from the job where such are free",
    "same_priority": "only jobs of the same priority may change their order",
    "share": "only jobs of one team may: between teams counts what they had",
    "in_order": "the job stands before that one already",
    "gpus": "another description is for the same number of GPUs",
    "batch": "another description keeps the batch",
    "same": "another description must differ",
    "running": "the nodes of a job are its own until its time is over",
}
"""What each rule means, for people; a description is refused by a code of the type checker."""


FOLLOWED: Final = frozenset({"place", "order", "spares"})
"""Acts that the scheduler itself takes up; the others are for people."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler at one moment."""

    state: State
    settings: Settings
    ground: Ground
    now_ns: int


def judge(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    """What is wished for the job once an act in advice on it is taken, or the rule that it breaks.

    `before`: what was wished until then, by this advice too.
    """
    if act.job != about.job:
        return Broken("other_job", f"this advice is on {about.job}")
    return _JUDGES[act.kind](moment, about, act, before)


def take(moment: Moment, advice: AdviceGiven, seq: int) -> tuple[AdvisedAct, ...]:
    """Wish for a job that waits what passes of an advice; its acts, with rules that refuse them.

    Acts that were refused when they were proposed are left out, and what is for people: another
    description, the end of a job.
    """
    state = moment.state
    waiting = state.queue.get(advice.job)
    found: list[AdvisedAct] = []
    wished = replace(waiting.advised if waiting else Advised(), advice=advice.advice, seq=seq)
    for act in advice.acts:
        if act.rule or act.kind not in FOLLOWED:
            continue
        came: Advised | Broken = Broken("off", RULES["off"])
        if waiting is None:
            came = _does_not_wait(advice.job)
        elif moment.settings.follow_advice:
            came = judge(moment, waiting.job, act, wished)
        if isinstance(came, Broken):
            found.append(replace(act, rule=came.rule, refusal=came.why[:WHY_CHARS_MAX]))
        else:
            wished = came
            found.append(act)
    if waiting is not None:
        waiting.advised, state.changed = wished, True
    return tuple(found)


def _place(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    named = _nodes(moment, act.nodes, held={**moment.ground.doubtful, **moment.ground.barred})
    if isinstance(named, Broken):
        return named
    return _fitting(moment, about, replace(before, nodes=named), named)


def _spares(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    named = _nodes(moment, act.nodes, held=moment.ground.barred)
    if isinstance(named, Broken):
        return named
    return _fitting(moment, about, replace(before, spares=named), named)


def _fitting(
    moment: Moment, about: JobSubmitted, wished: Advised, named: tuple[str, ...]
) -> Advised | Broken:
    """The wish, if it could start so now with what is kept for those before it left alone."""
    waiting = moment.state.queue.get(about.job)
    if waiting is None:
        return _does_not_wait(about.job)
    kept = kept_before(moment.state, moment.settings, moment.ground, moment.now_ns, about.job)
    for name in named:
        if name in kept:
            return Broken("turn", f"{name} is kept for {kept[name]}, which stands before it")
    trial = replace(waiting, advised=wished)
    found = fit(moment.state, moment.ground, trial, kept, moment.now_ns)
    if found is None:
        return Broken("no_place", f"{about.job} has no place yet")
    return found.broken or wished


def _order(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    queue = moment.state.queue
    if about.job not in queue:
        return _does_not_wait(about.job)
    if act.before not in queue:
        return _does_not_wait(act.before)
    own, other = queue[about.job].job, queue[act.before].job
    if own.priority != other.priority:
        told = f"{own.job} has priority {own.priority}, {other.job} {other.priority}"
        return Broken("same_priority", told)
    if team_of(own) != team_of(other):
        return Broken("share", f"{own.job} is of {team_of(own)}, {other.job} of {team_of(other)}")
    names = ordered(moment.state, moment.settings)
    if names.index(own.job) < names.index(other.job) or own.job == other.job:
        return Broken("in_order", f"{own.job} stands before {other.job}")
    return replace(before, turn=queue[other.job].turn[0])


def _offer(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    if about.job in moment.state.running:
        return _does_not_wait(about.job)
    offered = read(act.spec).spec  # printed from one that was read
    try:
        own = read(about.spec).spec
    except BadSpecError:
        own = None
    if own == offered:
        return Broken("same", "it is the description that the job has")
    if own is not None and own.global_batch != offered.global_batch:
        return Broken("batch", f"gbs={offered.global_batch}, the job has {own.global_batch}")
    pool = moment.ground.free() if moment.ground.whole.nodes else None
    admission = admit(replace(about, spec=act.spec), pool)
    if admission.outcome == "rejected":
        first = admission.findings[0]
        return Broken(first.code, first.text + (f"; {first.legal}" if first.legal else ""))
    wanted = admit(about, pool).gpu_count
    if wanted and admission.gpu_count != wanted:
        return Broken("gpus", f"{admission.gpu_count} GPUs, the job is for {wanted}")
    return before


def _release(
    moment: Moment, about: JobSubmitted, act: AdvisedAct, before: Advised
) -> Advised | Broken:
    """It passes to people: only job_ended ends a job."""
    running = moment.state.running.get(about.job)
    if running is None:
        return Broken("no_nodes", f"{about.job} has none")
    said_ns = running.submitted.runtime_ns
    if not said_ns or moment.now_ns < running.since_ns + said_ns:
        return Broken("running", f"{about.job} runs, and its time is not over")
    return before


_JUDGES: Final[
    Mapping[AdvisedKind, Callable[[Moment, JobSubmitted, AdvisedAct, Advised], Advised | Broken]]
] = {
    "place": _place,
    "order": _order,
    "spares": _spares,
    "offer": _offer,
    "release": _release,
}


def _does_not_wait(job: str) -> Broken:
    return Broken("not_waiting", f"{job[:60]} does not wait")


def _nodes(
    moment: Moment, said: tuple[str, ...], *, held: Mapping[str, str]
) -> tuple[str, ...] | Broken:
    """The names in node_ranges form: each once, of the cluster, and nobody's."""
    if not 0 < count_nodes(said) <= NODES_MAX:
        return Broken("no_such_node", "names no node, or too many")
    names = parse_nodes(said)
    known = set(moment.ground.whole.nodes)
    if len(set(names)) < len(names):
        return Broken("no_such_node", "a node stands there twice")
    for name in names:
        if name not in known:
            return Broken("no_such_node", f"{name[:60]} is none of the cluster")
        if name in held:
            return Broken("held", f"{name}: {held[name]}")
        if name in moment.ground.taken:
            owners = [job for job, own in moment.state.running.items() if name in own.nodes]
            return Broken("not_free", f"{name} is {owners[0]}'s" if owners else f"{name} is taken")
    return names
