"""Where did a job's time go, and what did each incident cost it?

Why: goodput is the only number that a training run is paid for, and an incident that nobody can
price is not worked on. How: each job has one account (account.py) that is cut at the facts below,
in log time; the parts of a job sum to the time since its submission exactly. Accounts are told once
a minute and when an incident closes, costs when the incident closes, by the hour while they grow,
and when nothing more can follow from it. Not here: whether a job is slow (attribution), whether an
incident is over (incident).

- start: from job_submitted to the first step seen to be finished.
- productive: from a step to the next, as far as it is not one of the following.
- degraded: the share of that time that missing ranks would have done (missing / submitted), and by
  how much steps are longer than usual while a verdict says that something slows the job.
- redone: a step that had been finished before a rollback, done again.
- detection: from the last step seen to the first verdict about the job, or the first decision; and
  what the job stalled since the incident began.
- decision: from there to recovery_decided.
- recovery: from recovery_decided in act mode, or its approval, to the first step of the new
  membership.
- waiting: withheld, vetoed, shadow or not yet approved: a person is waited for.
- stalled: no step for longer than usual, and no fact says why.
- open: from the last step seen to now: which of these it is will be known later.

Time of a step is when its sample was taken, held within a tick of log time; of everything else the
log time at which it was read. The names follow the badput of Google's ml-goodput-measurement
(github.com/AI-Hypercomputer/ml-goodput-measurement) and Meta's effective training time ratio
(arXiv 2410.21680).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from nemesis.processors.goodput.account import PARTS, SECOND_NS, Account, Part
from nemesis.processors.goodput.steps import seen_in
from nemesis.processors.healer.replicas import world_of
from nemesis.processors.healer.state import ranks_of
from nemesis.processors.incident.names import incident_named, incident_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import Attempt, AttemptCompleted, MembershipReported
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import (
    FaultAttributed,
    GoodputAccounted,
    IncidentClosed,
    IncidentCosted,
    IncidentGrouped,
    IncidentOpened,
    JobResumed,
    TimeParts,
)
from nemesis.schemas.observed import SampleTaken
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed, JobEnded, JobSubmitted
from nemesis.schemas.rank_ranges import RANKS_MAX
from nemesis.schemas.scheduled import JobPlaced, begun

TELL_NS: Final = 60 * SECOND_NS
TELL_COSTS_NS: Final = 3600 * SECOND_NS  # a job that goes on with fewer ranks pays for days
NAMES_MAX: Final = 1024  # names that were grouped with another; older ones closed long ago
DECISIONS_MAX: Final = 256
SLOWING: Final = ("straggler.gpu", "straggler.host", "straggler.network", "gpu.thermal")
UNANSWERED: Final = ("withheld", "vetoed", "expired", "failed")
"""Ends of incidents after which a job that stands still goes on waiting for a person."""
Said = list[Conclusion]


class _Planned(msgspec.Struct, array_like=True):
    """A decision on a membership that is not carried out yet."""

    job: str
    incident: str
    world: int


class _State(msgspec.Struct):
    accounts: dict[str, Account] = {}
    planned: dict[str, _Planned] = {}
    names: dict[str, str] = {}
    """A member's name -> the incident that it was grouped with."""
    began_ns: dict[str, int] = {}
    """Incident -> log time of the earliest fact that it was drawn from."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_State)


class Goodput:
    """The processor."""

    name: str = "goodput"
    version: int = 1

    def __init__(self) -> None:
        self._state = _State()
        self._answers: Final[dict[str, Callable[[Fact, Any, Said], None]]] = {
            "sample": self._on_sample,
            "tick": self._on_tick,
            "job_submitted": self._on_begun,
            "job_placed": self._on_begun,
            "job_ended": self._on_ended,
            "fault_attributed": self._on_verdict,
            "quiesce_decided": self._on_hold,
            "recovery_decided": self._on_recovery,
            "recovery_withheld": self._on_withheld,
            "decision_approved": self._on_answer,
            "decision_vetoed": self._on_answer,
            "attempt_completed": self._on_attempt,
            "attempt_failed": self._on_attempt,
            "attempt_outcome_unknown": self._on_attempt,
            "membership_reported": self._on_membership,
            "incident_opened": self._on_opened,
            "incident_grouped": self._on_grouped,
            "incident_closed": self._on_closed,
        }
        self.reads: tuple[str, ...] = tuple(self._answers)

    def configure(self, settings: bytes) -> None:
        """It has no settings."""
        if msgspec.json.decode(settings) != {}:
            raise MalformedFactError(f"goodput has no settings, got {settings[:80]!r}")

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._state = _decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        said: Said = []
        self._answers[fact.kind](fact, fact.data, said)
        return said

    def _on_sample(self, fact: Fact, data: SampleTaken, said: Said) -> None:
        account = self._state.accounts.get(data.job) if data.step_count else None
        if account is None or fact.late or fact.at_ns <= account.blind_until_ns:
            return
        seen = seen_in(data)
        if seen is None or seen.step <= account.step:
            return
        at_ns = min(max(fact.at_ns, fact.log_time_ns), fact.log_time_ns + SECOND_NS)
        lost_ns = account.finish(at_ns, seen.step, seen.step_ns, data.period_ns)
        if lost_ns is not None:
            resumed = JobResumed(
                at_ns=fact.log_time_ns,
                reason=(
                    f"{account.job} finished step {seen.step} with {account.world} ranks,"
                    f" {lost_ns / SECOND_NS:.1f} s were lost"
                ),
                job=account.job,
                step=seen.step,
                world=account.world,
                decision=account.regrouped_by,
                lost_ns=lost_ns,
            )
            said.append(_of_job(account, resumed, fact))

    def _on_tick(self, fact: Fact, _: Any, said: Said) -> None:
        for account in self._state.accounts.values():
            if fact.log_time_ns - account.told_ns >= TELL_NS:
                said.append(_accounted(account, fact))
                said += _grown_costs(account, fact)

    def _on_begun(self, fact: Fact, data: JobSubmitted | JobPlaced, said: Said) -> None:
        job = begun(data)
        if job is None:
            return
        self._end(fact, data.job, said)
        world = world_of(job)
        if not 0 < world <= RANKS_MAX:
            return
        now_ns = fact.log_time_ns or fact.at_ns
        self._state.accounts[data.job] = Account(
            job=data.job,
            since_ns=now_ns,
            mark_ns=now_ns,
            told_ns=now_ns,
            costs_told_ns=now_ns,
            world_full=world,
            world=world,
            parts=dict.fromkeys(PARTS, 0),
        )

    def _on_ended(self, fact: Fact, data: JobEnded, said: Said) -> None:
        self._end(fact, data.job, said)

    def _end(self, fact: Fact, job: str, said: Said) -> None:
        account = self._state.accounts.pop(job, None)
        if account is not None:
            account.cut(fact.log_time_ns)
            said.append(_accounted(account, fact, ended=True))
            said += [_costed(account, each, fact, final=True) for each in list(account.costs)]

    def _on_verdict(self, fact: Fact, verdict: FaultAttributed, _: Said) -> None:
        incident = self._named(incident_named(verdict))
        for name in verdict.jobs:
            account = self._state.accounts.get(name)
            if account is None or verdict.late:
                continue
            if verdict.verdict == "no-fault":
                if account.incident == incident:
                    account.calm(fact.log_time_ns)
                if account.slowed_by == incident:
                    account.slowed_by = ""
                continue
            if verdict.fault_class in SLOWING:
                account.slowed_by = incident
            if account.phase == "stalled":
                account.turn(fact.log_time_ns, "decision", incident)
            if incident in self._state.began_ns:
                account.explain(self._state.began_ns[incident], incident)

    def _on_hold(self, fact: Fact, held: QuiesceDecided, _: Said) -> None:
        account = self._state.accounts.get(held.job)
        if account is None:
            return
        account.held = account.held or held.mode == "act"
        if account.phase == "stalled":
            account.turn(fact.log_time_ns, "decision", self._named(incident_named(held)))

    def _on_recovery(self, fact: Fact, decided: RecoveryDecided, _: Said) -> None:
        account = self._state.accounts.get(decided.job)
        if account is None:
            return
        incident = self._named(incident_named(decided))
        acts = decided.mode == "act" and bool(decided.members)
        account.turn(fact.log_time_ns, "recovery" if acts else "waiting", incident)
        if decided.members:
            world = decided.world or len(ranks_of(decided.members))
            self._state.planned[decided.decision] = _Planned(decided.job, incident, world)
            while len(self._state.planned) > DECISIONS_MAX:
                del self._state.planned[next(iter(self._state.planned))]

    def _on_withheld(self, fact: Fact, withheld: RecoveryWithheld, _: Said) -> None:
        account = self._state.accounts.get(withheld.job)
        if account is not None:
            account.turn(fact.log_time_ns, "waiting", self._named(incident_named(withheld)))

    def _on_answer(self, fact: Fact, answer: DecisionApproved | DecisionVetoed, _: Said) -> None:
        planned = self._state.planned.get(answer.decision)
        account = self._state.accounts.get(planned.job) if planned is not None else None
        if account is not None and planned is not None:
            phase: Part = "recovery" if isinstance(answer, DecisionApproved) else "waiting"
            account.turn(fact.log_time_ns, phase, planned.incident)

    def _on_attempt(self, fact: Fact, attempt: Attempt, _: Said) -> None:
        planned = self._state.planned.pop(attempt.decision, None)
        account = self._state.accounts.get(planned.job) if planned is not None else None
        if account is None or planned is None:
            return
        account.incident = account.incident or planned.incident
        if isinstance(attempt, AttemptCompleted):
            world = min(planned.world, account.world_full)
            account.regroup(fact.log_time_ns, world, attempt.step, attempt.decision)
        else:
            account.turn(fact.log_time_ns, "decision", account.incident)

    def _on_membership(self, fact: Fact, reported: MembershipReported, _: Said) -> None:
        account = self._state.accounts.get(reported.job)
        if account is None:
            return
        account.turn(fact.log_time_ns, "recovery", account.incident)
        world = reported.world or len(ranks_of(reported.members)) or account.world
        account.regroup(fact.log_time_ns, min(world, account.world_full), reported.step, "")

    def _on_opened(self, _: Fact, opened: IncidentOpened, __: Said) -> None:
        began = self._state.began_ns
        began[opened.incident] = opened.began_ns
        while len(began) > NAMES_MAX:
            del began[next(iter(began))]
        for job in opened.jobs:
            if (account := self._state.accounts.get(job)) is not None:
                account.explain(opened.began_ns, opened.incident)

    def _on_grouped(self, _: Fact, grouped: IncidentGrouped, __: Said) -> None:
        state = self._state
        if grouped.rule == "named":
            return  # a decision, which has no time of its own
        member, incident = incident_of(grouped.member), self._named(grouped.incident)
        state.names[member] = incident
        while len(state.names) > NAMES_MAX:
            del state.names[next(iter(state.names))]
        for account in state.accounts.values():
            account.rename(member, incident)
        for planned in state.planned.values():
            planned.incident = self._named(planned.incident)

    def _on_closed(self, fact: Fact, closed: IncidentClosed, said: Said) -> None:
        incident = self._named(closed.incident)
        for account in self._state.accounts.values():
            going_on = closed.outcome not in UNANSWERED and not account.regrouped
            if account.incident == incident and going_on:
                account.calm(fact.log_time_ns)
            if account.job not in closed.jobs and incident not in account.costs:
                continue
            account.cost_of(incident).closed = True
            said.append(_accounted(account, fact))
            final = account.is_final(incident)
            said.append(_costed(account, incident, fact, final=final))

    def _named(self, incident: str) -> str:
        return self._state.names.get(incident, incident)


def _accounted(account: Account, fact: Fact, *, ended: bool = False) -> Conclusion:
    account.told_ns = fact.log_time_ns
    until_ns = max(fact.log_time_ns, account.mark_ns)
    parts = account.told(until_ns)
    wall_ns = until_ns - account.since_ns
    share = parts.productive_ns * 1000 // wall_ns if wall_ns else 0
    data = GoodputAccounted(
        at_ns=fact.log_time_ns,
        reason=(
            f"{account.job} was productive for {parts.productive_ns / SECOND_NS:.0f} of"
            f" {wall_ns / SECOND_NS:.0f} s, {share // 10}.{share % 10} %"
        ),
        job=account.job,
        since_ns=account.since_ns,
        until_ns=until_ns,
        parts=parts,
        step=max(0, account.step_max),
        redone_count=account.redone_count,
        world=account.world,
        world_full=account.world_full,
        step_ns=account.usual_ns,
        ended=ended,
    )
    return _of_job(account, data, fact)


def _grown_costs(account: Account, fact: Fact) -> Said:
    """Costs of closed incidents: the last word where nothing more follows, the rest by the hour."""
    due = fact.log_time_ns - account.costs_told_ns >= TELL_COSTS_NS
    if due:
        account.costs_told_ns = fact.log_time_ns
    said: Said = []
    for name in [name for name, cost in account.costs.items() if cost.closed]:
        final = account.is_final(name)
        if final or due:
            said.append(_costed(account, name, fact, final=final))
    return said


def _costed(account: Account, incident: str, fact: Fact, *, final: bool) -> Conclusion:
    """What an incident cost; the last word on it takes it off the account."""
    cost = account.costs.pop(incident) if final else account.costs[incident]
    lost_ns = sum(cost.parts.values())
    data = IncidentCosted(
        at_ns=fact.log_time_ns,
        reason=(
            f"{incident} cost {account.job} {lost_ns / SECOND_NS:.1f} s"
            f" of {account.world_full} ranks{'' if final else ' so far'}"
        ),
        incident=incident,
        job=account.job,
        parts=TimeParts(**{f"{part}_ns": ns for part, ns in cost.parts.items()}),
        lost_ns=lost_ns,
        lost_gpu_ms=lost_ns // 1_000_000 * account.world_full,
        final=final,
    )
    return Conclusion(data=data, key=incident, cause=(fact.seq,), job=account.job)


def _of_job(account: Account, data: msgspec.Struct, fact: Fact) -> Conclusion:
    return Conclusion(data=data, key=account.job, cause=(fact.seq,), job=account.job)
