"""What the healer makes of verdicts: which are news, what they say together, which are answered.

A later revision of an incident replaces the earlier one; after it was answered, only one that
asks for a higher rung is news. Several incidents of one job are answered by one recovery: the
ranks of all of them, the rung of the gravest.
"""

from typing import Final

from nemesis.processors.healer_state import (
    SETTLED_MAX,
    VERDICTS_MAX,
    HealerState,
    JobState,
    Verdict,
    bounded,
)
from nemesis.processors.ladder import Fault
from nemesis.processors.playbooks import RANK_OF, job_rungs
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
    first = name == verdict.jobs[0]
    return Verdict(
        incident=verdict.incident,
        revision=verdict.revision,
        known=verdict.verdict in ("attributed", "class-only"),
        fault_class=verdict.fault_class,
        signature=verdict.signature,
        target=verdict.culprits[0].id if verdict.culprits else f"job/{name}",
        ranks=verdict.ranks if first else tuple(sorted(job.view().ranks_on(bad))),
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
    return verdict.revision > revision and _first_rung(policy, verdict) > rung


def keep(job: JobState, verdict: Verdict) -> None:
    """The newest revision of each incident, the earliest incidents."""
    others = [known for known in job.verdicts if known.incident != verdict.incident]
    job.verdicts = [*others, verdict][:VERDICTS_MAX]


def fault_of(state: HealerState, job: JobState) -> Fault:
    """Everything that is wrong with a job, as one fault: the gravest verdict names the class."""
    view = job.view()
    playbooks = state.policy.playbooks
    dead = set(job.exited) | set(job.silent)
    bad: set[str] = set()
    worst: Verdict | None = None
    for verdict in job.verdicts:
        if not verdict.known:
            continue
        rungs = job_rungs(verdict.fault_class, verdict.signature, playbooks)
        ranks = set(verdict.ranks)
        if not _ON_NODES.isdisjoint(rungs):
            bad |= set(verdict.bad_nodes)
            if verdict.bad_nodes:  # ranks that left the bad node are well
                ranks &= view.ranks_on(verdict.bad_nodes)
        if any(rung in REGROUPING for rung in rungs):
            dead |= ranks
        if worst is None or _gravity(verdict, state.policy) > _gravity(worst, state.policy):
            worst = verdict
    return Fault(
        fault_class="unknown" if worst is None else worst.fault_class,
        signature="" if worst is None else worst.signature,
        target=f"job/{job.submitted.job}" if worst is None else worst.target,
        dead=frozenset(dead) & view.members,
        bad_nodes=frozenset(bad),
        silent_nodes=frozenset(view.node_of(rank) for rank in job.silent),
    )


def _first_rung(policy: Policy, verdict: Verdict) -> int:
    """The place on the ladder of the first rung that would answer a verdict."""
    if not verdict.known:
        return RANK_OF["collect_more"]
    return _gravity(verdict, policy)


def _gravity(verdict: Verdict, policy: Policy) -> int:
    return RANK_OF[job_rungs(verdict.fault_class, verdict.signature, policy.playbooks)[0]]


def settle(job: JobState, action: Action, left: frozenset[int]) -> None:
    """The verdicts that an action answers: all without a rank among `left`."""
    for verdict in job.verdicts:
        if verdict.known and left.isdisjoint(verdict.ranks):
            job.settled[verdict.incident] = (verdict.revision, RANK_OF[action])
    job.verdicts = [
        each for each in job.verdicts if each.known and each.incident not in job.settled
    ]
    bounded(job.settled, SETTLED_MAX)


def verdict_ranks(job: JobState) -> set[int]:
    """All ranks that a known verdict names."""
    return {rank for verdict in job.verdicts if verdict.known for rank in verdict.ranks}
