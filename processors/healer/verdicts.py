"""What the healer makes of verdicts: which are news, what they say together, which are answered.

A later revision of an incident replaces the earlier one; after it was answered, only one that
asks for a higher rung is news. Several incidents of one job are answered by one recovery: the
ranks of all of them, the rung of the gravest.
"""

from typing import Final

from nemesis.processors.healer.ladder import Fault, steps_of
from nemesis.processors.healer.playbooks import RANK_OF, playbook_of
from nemesis.processors.healer.state import (
    SETTLED_MAX,
    VERDICTS_MAX,
    HealerState,
    JobState,
    Pending,
    Verdict,
    bounded,
    ranks_of,
)
from nemesis.schemas.codes import Action
from nemesis.schemas.components import node_of
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.policy import REGROUPING, Policy

_ON_NODES: Final = frozenset({"swap_node", "drain_node"})
"""A class that one of these cures is a fault of a node's part."""


def read_verdict(job: JobState, verdict: FaultAttributed, fact: Fact) -> Verdict:
    """A verdict as it concerns one job; ranks are named for the first of its jobs only."""
    bad = sorted({node for each in verdict.culprits if (node := node_of(each.id))})
    name = job.submitted.job
    ranks = verdict.ranks if name == verdict.jobs[0] else ()
    if any(each.kind == "port" for each in verdict.culprits):
        # a port serves the node whose ranks are named with it
        view = job.view()
        bad = sorted({*bad, *(view.node_of(rank) for rank in view.members.intersection(ranks))})
    if any(each.kind == "rack" for each in verdict.culprits):
        bad = sorted({node for each in verdict.victims if (node := node_of(each))})
    if not ranks and any(each.kind in ("node", "rack") for each in verdict.culprits):
        ranks = tuple(sorted(job.view().ranks_on(bad)))
    return Verdict(
        incident=verdict.incident,
        revision=verdict.revision,
        known=verdict.verdict in ("attributed", "class-only"),
        fault_class=verdict.fault_class,
        signature=verdict.signature,
        target=verdict.culprits[0].id if verdict.culprits else f"job/{name}",
        ranks=ranks,
        bad_nodes=tuple(bad),
        seq=fact.seq,
    )


def is_news(policy: Policy, job: JobState, verdict: Verdict) -> bool:
    """Whether this revision says more than what was answered or is known already."""
    for known in job.verdicts:
        if known.incident == verdict.incident:
            return verdict.revision > known.revision
    settled = job.settled.get(verdict.incident)
    if settled is None:
        return True
    revision, rung = settled
    # a forecast that became surer is, though its rung may be a lower one
    more = bool(verdict.predicted) or first_rung(policy, verdict) > rung
    return verdict.revision > revision and more


def keep(job: JobState, verdict: Verdict) -> None:
    """The newest revision of each of the latest incidents."""
    others = [known for known in job.verdicts if known.incident != verdict.incident]
    job.verdicts = [*others, verdict][-VERDICTS_MAX:]


def fault_of(state: HealerState, job: JobState) -> Fault:
    """Everything that is wrong with a job, as one fault: the gravest verdict names the class.

    What has failed comes first, then what likely will, then what only its costs speak for; each is
    answered by a rung of its own.
    """
    view = job.view()
    dead = set(job.exited) | set(job.silent)
    bad: set[str] = set()
    worst: Verdict | None = None
    failed = (
        bool(dead) or job.broken or any(each.known and not each.predicted for each in job.verdicts)
    )
    sure = failed or any(each.known and not each.by_cost for each in job.verdicts)
    for verdict in job.verdicts:
        if not verdict.known or (verdict.predicted and failed) or (verdict.by_cost and sure):
            continue
        rungs = _rungs(state.policy, verdict)
        if not _ON_NODES.isdisjoint(rungs):
            bad |= set(verdict.bad_nodes)
        if _regroups(state.policy, verdict) and not _spares_ranks(rungs, job):
            dead |= _blamed(job, verdict)
        if worst is None or first_rung(state.policy, verdict) > first_rung(state.policy, worst):
            worst = verdict
    advice = [each for each in job.verdicts if each.known and not _regroups(state.policy, each)]
    if not dead and advice and not (worst and worst.predicted):
        # a fault without a rank to take out waits for one, and keeps no advice from people
        worst = max(advice, key=lambda each: first_rung(state.policy, each))
    return Fault(
        fault_class="unknown" if worst is None else worst.fault_class,
        signature="" if worst is None else worst.signature,
        target=f"job/{job.submitted.job}" if worst is None else worst.target,
        dead=frozenset(dead) & view.members,
        predicted="" if worst is None else worst.predicted,
        chance_ppm=0 if worst is None else worst.chance_ppm,
        bad_nodes=frozenset(bad),
        silent_nodes=frozenset(view.node_of(rank) for rank in job.silent),
    )


def rungs_of(state: HealerState, fault: Fault) -> tuple[Action, ...]:
    """The rungs that would be enough for it."""
    return tuple(step.action for step in steps_of(fault, state.policy))


def outgrown(state: HealerState, job: JobState, action: Action, going_on: frozenset[int]) -> bool:
    """Whether an action under way leaves something in the job that it does not cure.

    What asks for less is answered after it; not so of a rank that stands still and is to go on as
    it is, for then it never ends. Ranks that were blamed before do not go on, unless spared.
    """
    if not going_on.isdisjoint((*job.exited, *job.silent)):
        return True
    return any(
        _is_pressing(state.policy, verdict)
        and (
            first_rung(state.policy, verdict) > RANK_OF[action]
            or (
                verdict.fault_class == "app.stall"
                and not _spares_ranks(_rungs(state.policy, verdict), job)
            )
        )
        and _blamed(job, verdict) & going_on
        for verdict in job.verdicts
    )


def blames_restarted(state: HealerState, job: JobState, pending: Pending) -> bool:
    """Whether a verdict names ranks that an action under way does not cure and starts in place."""
    view = job.view()
    moves = {rank: each.node for each in pending.placements for rank in ranks_of(each.ranks)}
    in_place = {
        rank
        for rank in ranks_of(pending.started) & view.members
        if moves.get(rank, view.node_of(rank)) == view.node_of(rank)
    }
    return any(
        _is_pressing(state.policy, verdict)
        and first_rung(state.policy, verdict) > RANK_OF[pending.action]
        and not _blamed(job, verdict).isdisjoint(in_place)
        for verdict in job.verdicts
    )


def first_rung(policy: Policy, verdict: Verdict) -> int:
    """The place on the ladder of the first rung that would answer a verdict."""
    return RANK_OF[_rungs(policy, verdict)[0] if verdict.known else "collect_more"]


def settle(
    state: HealerState,
    job: JobState,
    action: Action,
    *,
    answers: str | None = None,
    untouched: frozenset[int] = frozenset(),
) -> None:
    """Put away the verdicts that an action answers: those that it cures, and those whose ranks
    left the job or the bad node. `answers`: where it was only said, all of the kind that it was
    said about (`Fault.predicted`); the others wait for an answer of their own. A failure to come is
    cured by leaving alone: a greater recovery leaves the rank where it is. Nor is a fault cured
    whose ranks go on `untouched`: it came after the recovery had been decided. What is for people
    to do is said to them, unless whom it is about has left."""
    left: list[Verdict] = []
    for verdict in job.verdicts:
        asked = first_rung(state.policy, verdict)
        blamed = _blamed(job, verdict)
        met = RANK_OF[action] >= asked and not verdict.predicted
        replaces = asked >= RANK_OF["restart_rank"] and not blamed.isdisjoint(untouched)
        cured = (met and not replaces) or not blamed
        if answers is None and not _regroups(state.policy, verdict):
            cured = bool(verdict.ranks) and not blamed
        if verdict.known and (cured if answers is None else verdict.predicted == answers):
            job.settled.pop(verdict.incident, None)
            job.settled[verdict.incident] = (verdict.revision, max(asked, RANK_OF[action]))
        elif verdict.known:
            left.append(verdict)
    bounded(job.settled, SETTLED_MAX)
    job.verdicts = left


def _rungs(policy: Policy, verdict: Verdict) -> tuple[Action, ...]:
    name = verdict.predicted or verdict.fault_class
    return tuple(step.action for step in playbook_of(name, verdict.signature, policy.playbooks))


def _regroups(policy: Policy, verdict: Verdict) -> bool:
    """Whether some step for it gives the job a new membership; else it is all advice."""
    return any(rung in REGROUPING for rung in _rungs(policy, verdict))


def _is_pressing(policy: Policy, verdict: Verdict) -> bool:
    """Whether a membership under way must change for it; advice and what may come can wait."""
    return verdict.known and not verdict.predicted and _regroups(policy, verdict)


def _spares_ranks(rungs: tuple[Action, ...], job: JobState) -> bool:
    """Whether the ranks that a verdict names live on: their link is back."""
    return rungs[0] == "reinit_communicator" and rungs[0] not in job.failed


def _blamed(job: JobState, verdict: Verdict) -> frozenset[int]:
    """The members that a verdict names and that are still where it found them."""
    view = job.view()
    there = view.ranks_on(verdict.bad_nodes) if verdict.bad_nodes else view.members
    return there.intersection(verdict.ranks)
