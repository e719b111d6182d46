"""What follows for a job from what the healer knows of it: the hold, the membership, or a refusal.

Each function says at most one decision and marks it as not read back; what it means is adopted
only when it is read from the log. The phases are in healer.py.
"""

from nemesis.processors.healer import forecasts, limits
from nemesis.processors.healer.facts import hold, is_paused, recovery, withhold
from nemesis.processors.healer.ladder import Choice, Fault, JobView, NoRung, choose, grow
from nemesis.processors.healer.playbooks import RANK_OF
from nemesis.processors.healer.replicas import world_of
from nemesis.processors.healer.state import TICK_NS, HealerState, JobState, Pending, note, ranks_of
from nemesis.processors.healer.verdicts import (
    blames_restarted,
    fault_of,
    outgrown,
    rungs_of,
    settle,
)
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    Attempt,
    AttemptCompleted,
    AttemptFailed,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.policy import PREDICTED_WORTH, REGROUPING, Policy
from nemesis.schemas.rank_ranges import format_ranks


def advance(state: HealerState, job: JobState, fact: Fact) -> list[Conclusion]:
    """Say what is due for this job, at most one decision."""
    if job.unread:
        return []
    if job.phase == "recovering" and (said := _watch(state, job, fact)):
        return said
    match job.phase:
        case "running":
            return _open(state, job, fact)
        case "holding":
            return _conclude(state, job, fact) if _is_known(state, job, fact) else []
        case _:
            return []


def _open(state: HealerState, job: JobState, fact: Fact) -> list[Conclusion]:
    """Something may be wrong with a running job: hold it, advise, or leave it."""
    fault = fault_of(state, job)
    if fault.predicted and fault.dead:
        return _conclude(state, job, fact)  # they live: nothing is held before it is decided
    known = any(
        each.known and bool(each.predicted) == bool(fault.predicted) for each in job.verdicts
    )
    first = rungs_of(state, fault)[0]
    new = fault.dead - set(job.answered)
    if new or job.broken or (known and (fault.dead or first == "reinit_communicator")):
        return [hold(state, job, fault, fact)]
    if not known:
        return _grow(state, job, fact)
    if first in REGROUPING:
        return []  # where only the kind of fault is known there is no rank to take out
    return _conclude(state, job, fact)


def _grow(state: HealerState, job: JobState, fact: Fact) -> list[Conclusion]:
    """Let ranks that are ready join, where nothing is wrong with the job."""
    out = {*_protected(state), *(node for node, is_out in state.nodes.items() if is_out)}
    choice = grow(job.view(), job.ready, out) if job.ready else None
    if choice is None:
        return []
    note(job, fact, fact.id)
    fault = fault_of(state, job)
    if limit := _limit(state, job, fault, choice, fact):
        return [withhold(job, fact, action=choice.action, target=choice.target, limit=limit)]
    return [recovery(state, job, fault, choice, fact)]


def adopt_hold(job: JobState, held: QuiesceDecided, fact: Fact) -> None:
    """A hold of ours stands in the log."""
    job.phase = "holding"
    job.pending = None
    job.opened_ns = job.opened_ns or max(1, fact.log_time_ns)
    job.holds = held.mode == "act"
    job.hold = held.decision if job.holds else ""
    job.hold_deadline_ns = held.deadline_ns


def take_hold(state: HealerState, job: JobState, attempt: Attempt, fact: Fact) -> None:
    """The hold that is waited for was begun, so its outcome is waited for too, or it ended."""
    if isinstance(attempt, AttemptStarted):
        wait_ns = state.policy.hold_timeout_ns + TICK_NS
        job.hold_deadline_ns = max(job.hold_deadline_ns, fact.log_time_ns + wait_ns)
    else:
        job.hold = ""


def _is_known(state: HealerState, job: JobState, fact: Fact) -> bool:
    """Whether cause and extent are known, or were waited for long enough."""
    policy, now_ns = state.policy, fact.log_time_ns
    if job.hold and now_ns < job.hold_deadline_ns:
        return False
    answered = bool(job.failed or job.vetoed)
    if answered or not any(each.known and not each.predicted for each in job.verdicts):
        return answered or now_ns >= job.opened_ns + _verdict_wait_ns(policy, job)
    return job.holds or now_ns >= job.opened_ns + policy.gather_ns


def _verdict_wait_ns(policy: Policy, job: JobState) -> int:
    """How long a verdict is waited for: longer where ranks of several nodes ended."""
    view = job.view()
    nodes = {view.node_of(rank) for rank in job.exited}
    return policy.doubt_wait_ns if len(nodes) > 1 else policy.silence_wait_ns


def _conclude(state: HealerState, job: JobState, fact: Fact) -> list[Conclusion]:
    """Plan the membership, once, from all that is known."""
    fault, limit = fault_of(state, job), ""
    failed = any(each.known and not (each.predicted and job.broken) for each in job.verdicts)
    if not fault.dead and not failed:
        if not job.holds and not job.failed:
            close(job)
            return []
        is_tried = "reinit_communicator" in job.failed
        choice: Choice | NoRung = _chosen(state, job, fault) if is_tried else _lifted(job)
    else:
        choice = _chosen(state, job, fault)
    if isinstance(choice, NoRung):
        limit = "vetoed" if job.vetoed else "no_rung"
    else:
        limit = _limit(state, job, fault, choice, fact)
    if limit and fault.by_cost:
        choice, limit = forecasts.refused(choice, fault, limit), ""
    if isinstance(choice, NoRung) or limit:
        action, target = (
            (choice.wanted, fault.target)
            if isinstance(choice, NoRung)
            else (choice.action, choice.target)
        )
        return [
            withhold(job, fact, action=action, target=target, limit=limit, refused=choice.refused)
        ]
    return [recovery(state, job, fault, choice, fact, spares=_usable(state, job).spares)]


def _limit(state: HealerState, job: JobState, fault: Fault, choice: Choice, fact: Fact) -> str:
    """What forbids to do this now, or nothing; a shadow decision is never forbidden.

    After a veto only a rung that waits for a person too is offered: what acts by itself would come
    as a surprise to somebody who has just said no.
    """
    mode = state.policy.mode_of(choice.action, by_cost=fault.by_cost)
    if job.vetoed and (mode != "approve" or choice.action in job.vetoed):
        return "vetoed"
    if not choice.regroups or mode == "shadow":
        return ""
    if is_paused(state, job, {*choice.nodes_out, *choice.joined, *fault.bad_nodes}):
        return "paused"
    return limits.exceeded(state, job, choice, fact.log_time_ns, by_cost=fault.by_cost)


def adopt_recovery(state: HealerState, job: JobState, decided: RecoveryDecided, fact: Fact) -> None:
    """A recovery of ours stands in the log."""
    job.ready = tuple(rank for rank in job.ready if rank not in ranks_of(decided.members))
    fault = fault_of(state, job)
    about = PREDICTED_WORTH if decided.by_cost else fault.predicted
    if not decided.members:
        settle(state, job, decided.action, answers=about)
        _after_advice(job, decided)
        return
    if decided.mode == "shadow":
        if not about:  # who lives is to be answered for when it ends
            job.answered = tuple(sorted(fault.dead))
        settle(state, job, decided.action, answers=about)
        close(job)
        return
    limits.count(state, job, decided, fact.log_time_ns)
    job.phase = "recovering"
    job.hold = ""
    job.epoch_planned = decided.epoch
    job.pending = Pending(
        decision=decided.decision,
        action=decided.action,
        mode=decided.mode,
        epoch=decided.epoch,
        deadline_ns=decided.deadline_ns,
        members=decided.members,
        removed=decided.removed_ranks,
        started=decided.started,
        joined=decided.joined_nodes,
        placements=decided.placements,
        nodes_out=decided.nodes_out,
        by_cost=decided.by_cost,
    )


def adopt_withheld(state: HealerState, job: JobState, withheld: RecoveryWithheld) -> None:
    """A refusal of ours stands in the log; a claim that came before it makes it void.

    A job that nothing has happened to goes on as before: it must be answered when something does.
    """
    pending = job.pending
    if pending is not None and pending.claim_deadline_ns:
        return
    if withheld.limit == "protected":
        job.phase, job.pending = "holding", None  # another rung may leave that node alone
        return
    limits.trip(state, job, withheld.limit)
    fault = fault_of(state, job)
    if not job.holds and (fault.predicted or not fault.dead):
        settle(state, job, withheld.action, answers=fault.predicted)
        close(job)
        job.ready = ()
        return
    job.phase, job.pending = "waiting", None
    job.withheld_for = withheld.limit


def _after_advice(job: JobState, decided: RecoveryDecided) -> None:
    """A decision for people: a job that stands still waits for them, any other goes on."""
    if job.exited or job.silent or job.holds:
        job.phase, job.pending, job.withheld_for = "waiting", None, decided.action
    else:
        close(job)


def _watch(state: HealerState, job: JobState, fact: Fact) -> list[Conclusion]:
    """A membership is being carried out: does it still fit, and does anybody do it?"""
    pending, now_ns = job.pending, fact.log_time_ns
    assert pending is not None, f"{job.submitted.job} recovers without a decision"
    if forecasts.makes_way(job, fact):
        return []
    going_on = ranks_of(pending.members) - ranks_of(pending.started)
    if outgrown(state, job, pending.action, going_on) or _is_in_vain(state, job, pending):
        job.phase, job.pending, job.opened_ns = "holding", None, max(1, now_ns)
        if pending.claim_deadline_ns:  # who was to leave may have left
            left = ranks_of(job.members).intersection(pending.removed)
            job.exited = tuple(sorted({*job.exited, *left}))
        return []
    is_up = now_ns > max(pending.deadline_ns, pending.claim_deadline_ns)
    if pending.claim_deadline_ns:
        if is_up:
            give_up(job, pending)
        return []
    unapproved = pending.mode == "approve" and not pending.approved
    limit = "expired" if unapproved else "unanswered"
    if pending.touches(_protected(state)):
        limit = "protected"
    elif not is_up:
        return []
    return [
        withhold(
            job,
            fact,
            action=pending.action,
            target=f"job/{job.submitted.job}",
            limit=limit,
            decision=pending.decision,
        )
    ]


def _is_in_vain(state: HealerState, job: JobState, pending: Pending) -> bool:
    """Whether it starts ranks anew where they cannot run, as a verdict says that came after it.

    What it was decided on is known no more; but a decision that knew the verdict would have been
    the same as today's, and so is never taken back for a lesser one or for itself.
    """
    if not blames_restarted(state, job, pending):
        return False
    choice = _chosen(state, job, fault_of(state, job))
    return isinstance(choice, Choice) and RANK_OF[choice.action] > RANK_OF[pending.action]


def _chosen(state: HealerState, job: JobState, fault: Fault) -> Choice | NoRung:
    usable = _usable(state, job)
    return choose(
        fault,
        usable,
        state.policy,
        protected=_protected(state),
        failed=job.failed,
        vetoed=job.vetoed,
        nodes_out=sum(state.nodes.values()),
    )


def take_outcome(state: HealerState, job: JobState, attempt: Attempt) -> bool:
    """What became of the membership that is pending; whether it did not work."""
    pending = job.pending
    if pending is None or attempt.decision != pending.decision:
        return False
    match attempt:
        case AttemptStarted():
            pending.claim_deadline_ns = max(pending.claim_deadline_ns, attempt.deadline_ns)
        case AttemptCompleted():
            regroup(state, job, pending)
        case AttemptFailed(withdrawn=True):
            job.phase, job.pending = "holding", None
        case _:
            give_up(job, pending)
            return True
    return False


def regroup(state: HealerState, job: JobState, done: Pending) -> None:
    """The job goes on in the new epoch; sound nodes that it left are spares from now on."""
    replaced = done.replaced()
    before = _nodes_of(job)
    job.epoch, job.members = done.epoch, done.members
    job.moved = done.placements
    idle = [node for node in sorted(before - _nodes_of(job)) if not state.nodes.get(node, False)]
    used = {*done.joined, *_nodes_of(job)}
    job.spares = (*(spare for spare in job.spares if spare not in used), *idle)
    job.exited = tuple(rank for rank in job.exited if rank not in replaced)
    job.silent = tuple(rank for rank in job.silent if rank not in replaced)
    job.answered = ()  # by shadows of before; whoever goes on now is alive
    job.ahead = {}
    untouched = job.view().members - replaced
    settle(state, job, done.action, untouched=untouched)
    close(job)
    if job.verdicts:  # what it did not cure is answered next
        job.incident, job.cause = job.verdicts[0].incident, (job.verdicts[0].seq,)


def adopt_membership(job: JobState, reported: MembershipReported) -> None:
    """The agents regrouped while the log was away: what was planned before is over.

    Ranks that the job never had are none of it, whatever its agents say.

    Who died in the epoch that they made, and was heard of before it, is still to be answered.
    """
    ended = {rank for rank, epoch in job.ahead.items() if epoch >= reported.epoch}
    incident, cause = job.incident, job.cause
    members = ranks_of(reported.members).intersection(range(world_of(job.submitted)))
    job.epoch, job.members = reported.epoch, format_ranks(members)
    job.epoch_planned = max(job.epoch_planned, reported.epoch)
    job.exited = tuple(sorted(ended & members))
    job.silent, job.answered, job.ahead = (), (), {}
    close(job)
    if job.exited:
        job.incident, job.cause = incident, cause


def take_veto(job: JobState, pending: Pending) -> None:
    """A person forbade this rung before anybody had begun with it; what is begun is ended."""
    if not pending.claim_deadline_ns:
        job.vetoed = (*job.vetoed, pending.action)
        job.phase, job.pending = "holding", None


def give_up(job: JobState, pending: Pending) -> None:
    """This rung did not work, or nobody knows: the next one, never the same again."""
    job.failed = (*job.failed, pending.action)
    job.phase, job.pending = "holding", None


def close(job: JobState) -> None:
    """Nothing is open any more."""
    job.phase, job.pending = "running", None
    job.incident, job.opened_ns, job.cause, job.broken = "", 0, (), False
    job.hold, job.holds, job.hold_deadline_ns = "", False, 0
    job.failed, job.vetoed, job.withheld_for = (), (), ""
    job.unattached, job.step = False, -1


def _lifted(job: JobState) -> Choice:
    """Nothing is wrong after all: everyone goes on."""
    return Choice(
        action="reinit_communicator",
        target=f"job/{job.submitted.job}",
        regroups=True,
        members=tuple(sorted(ranks_of(job.members))),
        placements=job.moved,
    )


def _protected(state: HealerState) -> set[str]:
    """Nodes that are left alone, by hand or by policy."""
    return {*state.protected, *state.policy.protected_nodes}


def _nodes_of(job: JobState) -> set[str]:
    view = job.view()
    return {view.node_of(rank) for rank in view.members}


def _usable(state: HealerState, job: JobState) -> JobView:
    """The job with the spares that may be used now."""
    forbidden = {*_protected(state), *state.suspects.values()}
    spares = tuple(
        spare
        for spare in job.spares
        if spare not in forbidden and not state.nodes.get(spare, False)
    )
    doubted = set(state.doubted.values())
    return job.view(tuple(sorted(spares, key=lambda spare: spare in doubted)))
