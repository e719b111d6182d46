"""What is the smallest safe recovery of a job that something happened to, and may it be done?

Why: between a fault and the next useful step every GPU of the job waits; a restart of everything
is the slow answer, and a wrong or doubled answer is worse than none.
How: in two steps. A dead rank, or a verdict that demands a new membership, is answered at once
with a hold of the survivors; when cause and extent are known (a verdict, and the hold reported
complete; at most `silence_wait_ns` of log time without a verdict, or `doubt_wait_ns` where ranks
of several nodes ended, at most `hold_timeout_ns` without a report) the membership is planned once,
by the ladder, within the limits of the policy.
Whatever comes between joins that one plan. What was decided counts from the moment it is read
back from the log and was not void; until then nothing else is decided for that job. So state
follows the log and not what this copy believes to have said.

| phase | what | becomes | and says |
|---|---|---|---|
| running | rank lost, verdict that needs a new membership | holding * | quiesce_decided |
| running | ranks gave up their group, and nobody says why | holding * | quiesce_decided |
| running | a rank that was left out is started and ready | recovering * | recovery_decided |
| running | verdict that needs none | running | recovery_decided, for people |
| running | failure likely, a rank should leave in time | recovering * | recovery_decided |
| running | the same, but no safe rung, a limit, a pause, a veto | running | recovery_withheld |
| running | failure unlikely, but costs speak for a move | recovering * | recovery_decided |
| recovering | a move by cost, unclaimed, and anything more comes | running | |
| holding | exit, report, verdict, attempt on the hold | holding | |
| holding | cause and extent known, or waited for | recovering * | recovery_decided |
| holding | nothing is wrong after all | recovering * | recovery_decided, lifts the hold |
| holding | no safe rung, a limit, a pause | waiting * | recovery_withheld |
| recovering | the decision is shadow | running | |
| recovering | attempt_completed | running, new epoch | |
| recovering | attempt_failed, outcome unknown, claim out of time | holding | |
| recovering | another member lost | holding | |
| recovering | a node that it touches is protected now | holding * | recovery_withheld |
| recovering | a verdict: what is started anew cannot run there | holding | |
| recovering | nobody claimed or approved it in time | waiting * | recovery_withheld |
| recovering | decision_vetoed before anybody claimed it | holding, then: | |
| holding | vetoed, and the next rung waits for a person too | recovering * | recovery_decided |
| holding | vetoed, and the next rung would act by itself | waiting * | recovery_withheld |
| waiting | a verdict that names something, policy, breaker reset, pause lifted | holding | |
* when it is read back, and unless it was void: then the same is concluded again.

This file takes facts in and keeps what is known of each job; what follows from it is said by
decisions.py, which rung by ladder.py, how much of it by limits.py; actors/ carry it out.
The order hold, abort, regroup follows torchft's and NCCL's published experience with shrinking:
survivors must be told, they do not notice by themselves (github.com/pytorch/pytorch/issues/194679).
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, assert_never

import msgspec

from nemesis.processors.healer import decisions, groups, limits
from nemesis.processors.healer.facts import on_part
from nemesis.processors.healer.forecasts import read_prediction, suspect
from nemesis.processors.healer.state import (
    HealerState,
    is_elsewhere,
    is_history,
    note,
    number_of,
    ranks_of,
)
from nemesis.processors.healer.verdicts import (
    is_news,
    keep,
    read_verdict,
)
from nemesis.schemas.decided import PolicyRefused, QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    Attempt,
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.observed import (
    ClockTicked,
    GroupBroken,
    InventoryReported,
    ProcessExited,
    RankReady,
)
from nemesis.schemas.operated import (
    BreakerReset,
    DecisionApproved,
    DecisionVetoed,
    JobEnded,
    JobSubmitted,
    NodeProtected,
    PauseSet,
    PolicyApplied,
)
from nemesis.schemas.policy import Policy, decode_policy
from nemesis.schemas.saved import CheckpointWritten
from nemesis.schemas.scheduled import JobPlaced

_Read: TypeAlias = (
    ClockTicked
    | ProcessExited
    | GroupBroken
    | RankReady
    | CheckpointWritten
    | InventoryReported
    | FaultAttributed
    | FailurePredicted
    | JobSubmitted
    | JobPlaced
    | JobEnded
    | PolicyApplied
    | DecisionApproved
    | DecisionVetoed
    | PauseSet
    | NodeProtected
    | BreakerReset
    | QuiesceDecided
    | RecoveryDecided
    | RecoveryWithheld
    | AttemptStarted
    | AttemptCompleted
    | AttemptFailed
    | AttemptOutcomeUnknown
    | MembershipReported
    | ConclusionUndeliverable
)


class Healer:
    """The healer; see the top of this file."""

    name = "healer"
    version = 1
    reads: tuple[str, ...] = (
        "tick",
        "process",
        "group_broken",
        "rank_ready",
        "checkpoint",
        "inventory",
        "fault_attributed",
        "failure_predicted",
        "job_submitted",
        "job_placed",
        "job_ended",
        "policy_applied",
        "decision_approved",
        "decision_vetoed",
        "pause_set",
        "node_protected",
        "breaker_reset",
        "quiesce_decided",
        "recovery_decided",
        "recovery_withheld",
        "attempt_started",
        "attempt_completed",
        "attempt_failed",
        "attempt_outcome_unknown",
        "membership_reported",
        "conclusion_undeliverable",
    )

    def __init__(self) -> None:
        self._state = HealerState(policy=Policy())

    def configure(self, settings: bytes) -> None:
        """No settings: what it may do is policy. What was said in silence is not waited for."""
        if settings.strip() not in (b"", b"{}"):
            raise MalformedFactError("healer: takes no settings, its policy is policy_applied")
        for job in self._state.jobs.values():
            job.unread = ""

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        try:
            self._state = msgspec.msgpack.decode(snapshot, type=HealerState)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"snapshot of healer: {error}") from error

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Take a fact in, then say what follows for each job that it touches."""
        said: list[Conclusion] = []
        for name in self._take(fact, fact.data, said):
            job = self._state.jobs.get(name)
            if job is not None:
                said += decisions.advance(self._state, job, fact)
        return said

    def _take(  # noqa: C901, PLR0912 - a table, one line a case
        self, fact: Fact, data: _Read, said: list[Conclusion]
    ) -> Iterable[str]:
        """Keep what the fact says; the jobs for which something may follow from it."""
        state = self._state
        match data:
            case ClockTicked():
                state.bear_leap(fact.log_time_ns)
                return [name for name, job in state.jobs.items() if job.is_open]
            case ProcessExited():
                return self._on_exit(fact, data)
            case GroupBroken() | RankReady() | CheckpointWritten():
                return groups.take(state, fact, data)
            case MembershipReported():
                return self._on_membership(fact, data)
            case FaultAttributed():
                return self._on_verdict(fact, data, said)
            case FailurePredicted():
                return self._on_prediction(fact, data)
            case QuiesceDecided() | RecoveryDecided():
                return self._on_decision(fact, data)
            case RecoveryWithheld():
                return self._on_withheld(fact, data)
            case AttemptStarted() | AttemptCompleted() | AttemptFailed() | AttemptOutcomeUnknown():
                return self._on_attempt(fact, data)
            case DecisionApproved() | DecisionVetoed():
                return self._on_answer(data)
            case JobSubmitted() | JobPlaced() | JobEnded():
                state.take_job(data, fact.seq)
                return ()
            case InventoryReported():
                state.nodes.setdefault(fact.key, False)
                return ()
            case PolicyApplied():
                return self._on_policy(fact, data, said)
            case PauseSet() | NodeProtected() | BreakerReset():
                return self._on_hand(data)
            case ConclusionUndeliverable():
                return self._on_undeliverable(data)
            case _:
                assert_never(data)

    def _on_exit(self, fact: Fact, exit: ProcessExited) -> Iterable[str]:
        job = self._state.jobs.get(exit.job)
        if job is None:
            return ()
        job.ready = tuple(rank for rank in job.ready if rank != exit.rank)
        if exit.rank in job.exited or exit.rank not in ranks_of(job.members):
            return ()
        meant = exit.exit_code == 0 and exit.signal == 0
        before = 0 <= exit.epoch < job.epoch  # a process that was replaced since
        if meant or before or is_elsewhere(job, exit):
            return ()
        if job.phase == "running" and is_history(job, fact, exit):
            return ()
        job.exited = tuple(sorted((*job.exited, exit.rank)))
        if exit.epoch > job.epoch:
            job.ahead[exit.rank] = exit.epoch
        if self._state.policy.acts:  # the shadow that answered a mere suspicion stopped nothing
            job.answered = tuple(rank for rank in job.answered if rank != exit.rank)
        note(job, fact, fact.id)
        return (exit.job,)

    def _on_membership(self, fact: Fact, reported: MembershipReported) -> Iterable[str]:
        job = self._state.jobs.get(reported.job)
        if job is None:
            return ()
        job.revision = fact.seq
        if reported.epoch > job.epoch:
            decisions.adopt_membership(job, reported)
        return (reported.job,)

    def _on_verdict(
        self, fact: Fact, verdict: FaultAttributed, said: list[Conclusion]
    ) -> Iterable[str]:
        state = self._state
        touched = [name for name in verdict.jobs if name in state.jobs]
        if not touched:
            if not verdict.jobs and not verdict.late:
                said += on_part(state, verdict, fact)
            return ()
        for name in touched:
            job = state.jobs[name]
            if verdict.late and job.phase == "running" and not job.unread:
                continue
            taken = read_verdict(job, verdict, fact)
            if is_news(state.policy, job, taken):
                keep(job, taken)
                note(job, fact, verdict.incident)
                waits = job.phase == "waiting" and job.withheld_for != "vetoed"
                if waits and taken.known:  # what names nothing is no reason to take over again
                    job.phase = "holding"
        return touched

    def _on_prediction(self, fact: Fact, predicted: FailurePredicted) -> Iterable[str]:
        """A part is likely to fail, or no longer; what follows waits for what has failed."""
        state, incident = self._state, predicted.incident
        suspect(state, predicted)
        touched = [name for name in predicted.jobs if name in state.jobs]
        for name in touched:
            job = state.jobs[name]
            job.verdicts = [each for each in job.verdicts if each.incident != incident]
            taken = read_prediction(state.policy, job, predicted, fact)
            if taken is not None and is_news(state.policy, job, taken):
                keep(job, taken)
                note(job, fact, incident)
        return touched

    def _on_decision(self, fact: Fact, decision: QuiesceDecided | RecoveryDecided) -> Iterable[str]:
        job = self._state.jobs.get(decision.job)
        if job is None:
            return ()
        void = decision.job_revision != job.revision
        job.revision = fact.seq
        number = number_of(decision.decision)
        job.count = max(job.count, number)
        if job.unread and number >= number_of(job.unread):
            job.unread = ""
        if not void:
            if isinstance(decision, QuiesceDecided):
                decisions.adopt_hold(job, decision, fact)
            else:
                decisions.adopt_recovery(self._state, job, decision, fact)
        return (decision.job,)

    def _on_withheld(self, fact: Fact, withheld: RecoveryWithheld) -> Iterable[str]:
        job = self._state.jobs.get(withheld.job)
        if job is not None:
            job.revision = fact.seq
            job.unread = ""
            decisions.adopt_withheld(self._state, job, withheld)
        return (withheld.job,)

    def _on_attempt(self, fact: Fact, attempt: Attempt) -> Iterable[str]:
        job = self._state.jobs.get(attempt.job)
        if job is None:
            return ()
        job.revision = fact.seq
        if attempt.decision == job.hold:
            decisions.take_hold(self._state, job, attempt, fact)
        gone = job.take_losses(attempt)
        failed = decisions.take_outcome(self._state, job, attempt)
        if failed or not gone.isdisjoint((*job.exited, *job.silent)):
            note(job, fact, fact.id)  # after a completed one closed the incident before
        return (attempt.job,)

    def _on_answer(self, answer: DecisionApproved | DecisionVetoed) -> Iterable[str]:
        for name, job in self._state.jobs.items():
            pending = job.pending
            if pending is not None and pending.decision == answer.decision:
                if isinstance(answer, DecisionVetoed):
                    decisions.take_veto(job, pending)
                else:
                    pending.approved = True
                return (name,)
        return ()

    def _on_policy(
        self, fact: Fact, applied: PolicyApplied, said: list[Conclusion]
    ) -> Iterable[str]:
        try:
            self._state.policy = decode_policy(bytes(applied.policy))
        except MalformedFactError as error:
            refused = PolicyRefused(
                at_ns=fact.log_time_ns,
                reason=f"The policy of {applied.by} is not one, the one before it holds.",
                broken=error.message[:2000],
            )
            said.append(Conclusion(data=refused, key="policy", cause=(fact.seq,), urgent=True))
            return ()
        return self._state.reconsider(lambda limit: limit != "vetoed")

    def _on_hand(self, hand: PauseSet | NodeProtected | BreakerReset) -> Iterable[str]:
        state = self._state
        match hand:
            case PauseSet():
                state.paused = _with(state.paused, hand.scope, hand.paused)
                held_up = ("paused", "unanswered", "expired")
                return () if hand.paused else state.reconsider(lambda limit: limit in held_up)
            case NodeProtected():
                state.protected = _with(state.protected, hand.node, hand.protected)
                return () if hand.protected else state.reconsider(lambda limit: limit == "no_rung")
            case BreakerReset():
                limits.reset(state, hand.limit)
                return state.reconsider(lambda limit: limit == hand.limit)
            case _:
                assert_never(hand)

    def _on_undeliverable(self, undeliverable: ConclusionUndeliverable) -> Iterable[str]:
        """The log could not hold a decision of ours: which one it does not say."""
        if undeliverable.name == self.name:
            for job in self._state.jobs.values():
                if job.unread:
                    job.unread, job.phase, job.withheld_for = "", "waiting", "undeliverable"
        return ()


def _with(names: tuple[str, ...], name: str, there: bool) -> tuple[str, ...]:
    return tuple(sorted({*names, name} if there else {*names} - {name}))
