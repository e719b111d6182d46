"""Which facts are one event, and is it over?

Why: a person and an archive need one thing with a beginning, a name and an end, where the log has
verdicts, predictions, decisions and deeds. How: the first fact that names an incident opens it;
what goes by another name joins it by a rule that is told (grouping.py); it closes when the job is
seen going on, or after quiet, with its outcome (closing.py), and opens again under the same name
when a later fact names it. Attribution's names stay: nothing here blames, decides or renames.
Grouping by a stated rule follows Sentry's (docs.sentry.io, event grouping).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from nemesis.processors.incident.case import NAMES_MAX, Case, Cases, Decided
from nemesis.processors.incident.closing import SECOND_NS, WORDS, outcome_of
from nemesis.processors.incident.grouping import Home, about, home_of
from nemesis.processors.incident.names import incident_named, incident_of
from nemesis.schemas.decided import Decision, QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import Attempt, AttemptCompleted, AttemptFailed
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import (
    FailurePredicted,
    FaultAttributed,
    GroupingRule,
    IncidentClosed,
    IncidentGrouped,
    IncidentOpened,
    IncidentOutcome,
    IncidentTrigger,
    JobResumed,
)
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed

LEAP_NS_MIN: Final = 3 * SECOND_NS  # more than a lost tick or two: the log was away
CAUSES_MAX: Final = 32
HOLD: Final = "pause"  # a hold is no recovery: more must follow

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Cases)
Said = list[Conclusion]


class Incident:
    """The processor."""

    name: str = "incident"
    version: int = 1

    def __init__(self) -> None:
        self._cases = Cases()
        self._answers: Final[dict[str, Callable[[Fact, Any, Said], None]]] = {
            "tick": self._on_tick,
            "inventory": self._on_inventory,
            "fault_attributed": self._on_verdict,
            "failure_predicted": self._on_prediction,
            "quiesce_decided": self._on_decision,
            "recovery_decided": self._on_decision,
            "recovery_withheld": self._on_withheld,
            "decision_approved": self._on_answer,
            "decision_vetoed": self._on_answer,
            "attempt_started": self._on_attempt,
            "attempt_completed": self._on_attempt,
            "attempt_failed": self._on_attempt,
            "attempt_outcome_unknown": self._on_attempt,
            "job_resumed": self._on_resumed,
        }
        self.reads: tuple[str, ...] = tuple(self._answers)

    def configure(self, settings: bytes) -> None:
        """It has no settings."""
        if msgspec.json.decode(settings) != {}:
            raise MalformedFactError(f"incident has no settings, got {settings[:80]!r}")

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._cases)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._cases = _decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        said: Said = []
        self._answers[fact.kind](fact, fact.data, said)
        return said

    def _on_tick(self, fact: Fact, _: Any, said: Said) -> None:
        self._cases.tick(fact.seq, fact.log_time_ns, LEAP_NS_MIN)
        for case in self._cases.open_ones():
            outcome = outcome_of(case, fact.log_time_ns)
            if outcome is not None:
                self._close(case, fact, outcome, said)

    def _on_inventory(self, _: Fact, data: Any, __: Said) -> None:
        self._cases.inventory.report(data)

    def _on_verdict(self, fact: Fact, verdict: FaultAttributed, said: Said) -> None:
        name = incident_named(verdict)
        case = self._cases.named(name)
        refuted = verdict.verdict == "no-fault"
        if refuted and (case is None or case.closed):
            return
        home = None
        if not refuted and (case is None or not case.closed):
            own = case.id if case is not None else ""
            home = home_of(self._cases, verdict, fact.log_time_ns, apart=own)
        if home is not None:
            case = self._join(home, case, name, fact, said)
        elif case is None:
            case = self._open(name, fact, "verdict", said, jobs=verdict.jobs, verdict=verdict)
        self._wake(case, fact, said)
        case.take_jobs(*verdict.jobs)
        if case.root in ("", name):
            _take_verdict(case, name, verdict)
        for evidence in verdict.evidence:
            self._cases.alias(incident_of(evidence.fact), case)

    def _join(self, home: Home, case: Case | None, name: str, fact: Fact, said: Said) -> Case:
        """Group what goes by this name with its home; of two that are open the older stays."""
        older, younger = home.case, case
        if case is not None:
            order = list(self._cases.by_id)
            older, younger = sorted((home.case, case), key=lambda each: order.index(each.id))
        member = name if younger is None else younger.id
        if younger is not None:
            self._cases.absorb(older, younger)
        else:
            self._cases.alias(name, older)
        if home.leads or not older.root:
            older.root = name
        self._group(older, member, home.rule, fact, said, component=home.component)
        return older

    def _on_prediction(self, fact: Fact, predicted: FailurePredicted, said: Said) -> None:
        name = incident_named(predicted)
        case = self._cases.named(name)
        if predicted.band == "clear":
            if case is not None and not case.closed and predicted.component == case.component:
                self._wake(case, fact, said)
                case.band = "clear"
                if not case.verdict and not case.decisions:
                    self._close(case, fact, "cleared", said)
            return
        if predicted.band == "record" and (case is None or case.closed):
            return
        if case is None:
            case = about(self._cases, predicted.component)
            if case is None:
                case = self._open(
                    name, fact, "prediction", said,
                    jobs=predicted.jobs, component=predicted.component,
                )  # fmt: skip
            else:
                self._cases.alias(name, case)
                self._group(case, name, "component", fact, said, component=predicted.component)
        self._wake(case, fact, said)
        self._introduce(case, name, fact, said)
        case.component, case.band = predicted.component, predicted.band
        case.take_jobs(*predicted.jobs)

    def _on_decision(
        self, fact: Fact, decision: QuiesceDecided | RecoveryDecided, said: Said
    ) -> None:
        case = self._case_of(fact, decision, "decision", (decision.job,), said)
        if case is None:
            return
        regroups = isinstance(decision, RecoveryDecided) and bool(decision.members)
        action = decision.action if isinstance(decision, RecoveryDecided) else HOLD
        case.decisions[decision.decision] = Decided(
            action, decision.mode, regroups, decision.deadline_ns
        )
        case.standing = ""
        self._cases.alias(decision.decision, case)
        self._group(case, decision.decision, "named", fact, said)

    def _on_withheld(self, fact: Fact, withheld: RecoveryWithheld, said: Said) -> None:
        case = self._case_of(fact, withheld, "withheld", (withheld.job,), said)
        if case is None:
            return
        case.standing = "expired" if withheld.limit in ("unanswered", "expired") else "withheld"
        for decided in case.decisions.values():
            decided.ended = True

    def _on_answer(self, fact: Fact, answer: DecisionApproved | DecisionVetoed, said: Said) -> None:
        case = self._cases.named(answer.decision)
        if case is None or case.closed or answer.decision not in case.decisions:
            return
        self._wake(case, fact, said)
        if isinstance(answer, DecisionVetoed):
            case.decisions[answer.decision].ended = True
            case.standing = "vetoed"

    def _on_attempt(self, fact: Fact, attempt: Attempt, said: Said) -> None:
        case = self._cases.named(attempt.decision)
        if case is None or case.closed or attempt.decision not in case.decisions:
            return
        self._wake(case, fact, said)
        decided = case.decisions[attempt.decision]
        if fact.kind == "attempt_started":
            return
        decided.ended = True
        if isinstance(attempt, AttemptCompleted):
            if decided.action != HOLD:
                case.standing = "completed"
            if decided.regroups:
                case.resuming = [*dict.fromkeys([*case.resuming, attempt.job])]
        elif not (isinstance(attempt, AttemptFailed) and attempt.withdrawn) and decided.regroups:
            case.standing = "failed"

    def _on_resumed(self, fact: Fact, resumed: JobResumed, said: Said) -> None:
        for case in self._cases.open_ones():
            alone = not resumed.decision and resumed.job in case.jobs and bool(case.decisions)
            if resumed.decision not in case.decisions and not alone:
                continue
            self._wake(case, fact, said)
            case.resuming = [job for job in case.resuming if job != resumed.job]
            if not case.resuming:
                self._close(case, fact, "recovered", said, confirmed=True)

    def _case_of(
        self,
        fact: Fact,
        data: Decision | RecoveryWithheld,
        trigger: IncidentTrigger,
        jobs: tuple[str, ...],
        said: Said,
    ) -> Case | None:
        """The incident that a decision names, opened where nobody named it before."""
        name = incident_named(data)
        if not name:
            return None
        case = self._cases.named(name)
        if case is None:
            case = self._open(name, fact, trigger, said, jobs=jobs)
        self._wake(case, fact, said)
        self._introduce(case, name, fact, said)
        case.take_jobs(*jobs)
        return case

    def _introduce(self, case: Case, name: str, fact: Fact, said: Said) -> None:
        """A name that is known only because a verdict cites the fact behind it is told."""
        if name != case.id:
            self._group(case, name, "cited", fact, said)

    def _open(
        self,
        id: str,
        fact: Fact,
        trigger: IncidentTrigger,
        said: Said,
        *,
        jobs: tuple[str, ...],
        component: str = "",
        verdict: FaultAttributed | None = None,
    ) -> Case:
        cause = tuple(sorted({*fact.cause[: CAUSES_MAX - 1], fact.seq}))
        case = Case(
            id=id,
            began_ns=self._cases.log_time_at(cause[0]),
            changed_ns=fact.log_time_ns,
            last_seq=fact.seq,
            component=component,
        )
        case.take_jobs(*jobs)
        self._cases.by_id[id] = case
        culprits = [each.id for each in verdict.culprits] if verdict is not None else []
        opened = IncidentOpened(
            at_ns=fact.log_time_ns,
            reason=f"{fact.kind} is the first to name it: {fact.data.reason}",
            incident=id,
            trigger=trigger,
            began_ns=case.began_ns,
            component=component or next(iter(culprits), ""),
            jobs=tuple(case.jobs),
        )
        said.append(Conclusion(data=opened, key=id, cause=cause, job=next(iter(jobs), "")))
        return case

    def _wake(self, case: Case, fact: Fact, said: Said) -> None:
        """Take note of a fact; one that is closed opens again."""
        case.changed_ns, case.last_seq = fact.log_time_ns, fact.seq
        if not case.closed:
            return
        case.closed, case.standing, case.decisions = False, "", {}
        opened = IncidentOpened(
            at_ns=fact.log_time_ns,
            reason=f"{fact.kind} names it again: {fact.data.reason}",
            incident=case.id,
            trigger="reopened",
            revision=case.revision,
            began_ns=case.began_ns,
            component=case.component or next(iter(case.culprits), ""),
            jobs=tuple(case.jobs),
        )
        said.append(self._conclusion(case, opened, fact))

    def _group(
        self,
        case: Case,
        member: str,
        rule: GroupingRule,
        fact: Fact,
        said: Said,
        *,
        component: str = "",
    ) -> None:
        if member in case.members or len(case.members) >= NAMES_MAX:
            return
        case.members.append(member)
        why = {
            "named": "it names the incident",
            "cited": "the verdict cites the fact that it is named after",
            "component": f"{component} is at fault in both",
            "victim": f"{component} suffers from what is at fault here",
            "leaf": f"both hang on {component}",
            "predicted": f"{component} was predicted to fail",
        }[rule]
        grouped = IncidentGrouped(
            at_ns=fact.log_time_ns,
            reason=f"{member} belongs to {case.id}: {why}",
            incident=case.id,
            member=member,
            rule=rule,
            component=component,
        )
        said.append(self._conclusion(case, grouped, fact))

    def _close(
        self,
        case: Case,
        fact: Fact,
        outcome: IncidentOutcome,
        said: Said,
        *,
        confirmed: bool = False,
    ) -> None:
        closed = IncidentClosed(
            at_ns=fact.log_time_ns,
            reason=f"{case.id} is over: {WORDS[outcome]}",
            incident=case.id,
            outcome=outcome,
            revision=case.revision,
            began_ns=case.began_ns,
            ended_ns=case.changed_ns,
            confirmed=confirmed,
            fault_class=case.fault_class,
            culprits=tuple(case.culprits),
            jobs=tuple(case.jobs),
            members=tuple(case.members),
        )
        said.append(self._conclusion(case, closed, fact))
        case.closed, case.resuming = True, []
        case.revision += 1
        self._cases.forget()

    def _conclusion(self, case: Case, data: msgspec.Struct, fact: Fact) -> Conclusion:
        cause = tuple(sorted({case.last_seq, fact.seq}))
        return Conclusion(data=data, key=case.id, cause=cause, job=next(iter(case.jobs), ""))


def _take_verdict(case: Case, name: str, verdict: FaultAttributed) -> None:
    """The verdict that counts says what is at fault."""
    case.root, case.verdict, case.fault_class = name, verdict.verdict, verdict.fault_class
    case.culprits = [each.id for each in verdict.culprits][:NAMES_MAX]
    case.victims = list(verdict.victims)[:NAMES_MAX]
