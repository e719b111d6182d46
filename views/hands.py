"""What waits for a person, and what people said: decisions, pauses, protections, breakers, policy.

A pure reader of events: what a decision has come to follows from the order of the log alone, by the
rules that healer and actors follow.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.decided import Mode, QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    Attempt,
    AttemptCompleted,
    AttemptFailed,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Record
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import (
    BreakerReset,
    DecisionApproved,
    DecisionVetoed,
    JobEnded,
    JobSubmitted,
    NodeProtected,
    Operation,
    PauseSet,
    PolicyApplied,
)
from nemesis.schemas.policy import JOB_LIMITS, LIMITS, Policy, decode_policy
from nemesis.schemas.registry import EVENTS
from nemesis.schemas.scheduled import JobPlaced, begun

State = Literal[
    "advice",
    "recorded",
    "void",
    "waiting",
    "approved",
    "due",
    "under way",
    "done",
    "failed",
    "withdrawn",
    "unknown",
    "vetoed",
    "expired",
    "superseded",
]
"""advice: for a person, no actor does it; recorded: in shadow; waiting: for a person's word; due:
nobody has begun; unknown: nobody can say whether it took place."""
OPEN: Final = ("waiting", "approved", "due")
"""Nobody has begun with it."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Who said something, why and when."""

    by: str = ""
    reason: str = ""
    at_ns: int = 0
    seq: int = 0


class Decided(msgspec.Struct, kw_only=True):
    """A decision and what it has come to."""

    decision: str
    action: str
    """A hold is one too."""
    target: str
    job: str
    incident: str
    mode: Mode
    state: State
    reason: str
    seq: int
    decided_ns: int
    deadline_ns: int
    epoch: int = 0
    members: str = ""
    world: int = 0
    nodes: tuple[str, ...] = ()
    """That it takes out or lets in."""
    answer: Said = Said()
    """Who approved or vetoed it."""

    def state_at(self, log_time_ns: int) -> State:
        """The same, where its time may be up without anybody having said so yet."""
        if self.state in OPEN and log_time_ns > self.deadline_ns:
            return "expired"
        return self.state


class Tripped(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that was reached and holds until it is reset."""

    limit: str
    job: str
    """The job that reached it."""
    incident: str
    at_ns: int
    seq: int


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery that is due and not done: a person must look."""

    job: str
    action: str
    limit: str
    incident: str
    reason: str
    at_ns: int
    seq: int
    decision: str = ""


class Hands:
    """All of it, as of the last event seen."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.seq = 0
        self.log_time_ns = 0
        """Of the last tick seen."""
        self.decisions: Final[dict[str, Decided]] = {}
        self.paused: Final[dict[str, Said]] = {}
        self.protected: Final[dict[str, Said]] = {}
        self.tripped: Final[dict[tuple[str, str], Tripped]] = {}
        """Per limit and, where it is a limit on one job, job."""
        self.withheld: Final[dict[str, Withheld]] = {}
        """Per job: what stands in the way now."""
        self.jobs: Final[dict[str, JobSubmitted]] = {}
        self.nodes: Final[set[str]] = set()
        """Those that jobs name."""
        self.policy = Policy()
        self.policy_said = Said()
        self._revisions: Final[dict[str, int]] = {}
        for record in records:
            self.see(record)

    def see(self, record: Record) -> None:
        """Take note of an event or a tick; anything else is passed over."""
        self.take(Input(record))

    def take(self, item: Input) -> None:
        """The same, for a record that others read too."""
        record = item.record
        data = item.decoded() if item.space == "events" or item.token == "tick" else None
        if data is None:
            return
        if isinstance(data, ClockTicked):
            self.log_time_ns = max(self.log_time_ns, data.at_ns)
            return
        self.seq = max(self.seq, record.seq)
        match data:
            case QuiesceDecided() | RecoveryDecided():
                self._on_decision(data, record.seq)
            case RecoveryWithheld():
                self._on_withheld(data, record.seq)
            case Attempt():
                self._on_attempt(data)
            case JobPlaced():
                self._on_job(data, record.seq)
            case MembershipReported():
                self._supersede(data.job, below_epoch=data.epoch + 1)
                self.withheld.pop(data.job, None)
            case Operation():
                self._on_operation(data, record.seq)
            case _:
                pass
        job = getattr(data, "job", "")
        if EVENTS[item.token].certainty in ("decided", "done") and job:
            self._revisions[job] = record.seq

    def waiting(self) -> list[Decided]:
        """Decisions that wait for a person, the one whose time is up first before the others."""
        found = [
            each for each in self.decisions.values() if each.state_at(self.log_time_ns) == "waiting"
        ]
        return sorted(found, key=lambda each: (each.deadline_ns, each.seq))

    def forget(self, decisions_max: int) -> None:
        """Let go of the oldest decisions that are answered, so that at most so many are known."""
        answered = (d.decision for d in self.decisions.values() if d.state not in OPEN)
        for name in list(islice(answered, max(0, len(self.decisions) - decisions_max))):
            del self.decisions[name]

    def pauses(self, decided: Decided) -> list[str]:
        """The pauses that keep it from being done."""
        scopes = {"ALL", f"job/{decided.job}", *(f"node/{node}" for node in decided.nodes)}
        return sorted(scopes & self.paused.keys())

    def _on_decision(self, data: QuiesceDecided | RecoveryDecided, seq: int) -> None:
        void = data.job_revision != self._revisions.get(data.job, 0)
        acts = isinstance(data, QuiesceDecided) or bool(data.members)
        state: State = "void"
        if not acts:
            state = "advice"
        elif data.mode == "shadow":
            state = "recorded"
        elif not void:
            self._supersede(data.job)
            self.withheld.pop(data.job, None)
            state = "waiting" if data.mode == "approve" else "due"
        decided = Decided(
            decision=data.decision,
            action="hold",
            target=f"job/{data.job}",
            job=data.job,
            incident=data.incident,
            mode=data.mode,
            state=state,
            reason=data.reason,
            seq=seq,
            decided_ns=data.at_ns,
            deadline_ns=data.deadline_ns,
            epoch=data.epoch,
        )
        if isinstance(data, RecoveryDecided):
            decided.action, decided.target = data.action, data.target
            decided.members, decided.world = data.members, data.world
            decided.nodes = (*data.nodes_out, *data.joined_nodes)
        self.decisions[data.decision] = decided

    def _supersede(self, job: str, *, below_epoch: int | None = None) -> None:
        for each in self.decisions.values():
            before = below_epoch is None or each.epoch < below_epoch
            if each.job == job and each.state in OPEN and before:
                each.state = "superseded"

    def _on_withheld(self, data: RecoveryWithheld, seq: int) -> None:
        decided = self.decisions.get(data.decision)
        if decided is not None and decided.state == "under way":
            return  # the claim came first
        if decided is not None and decided.state in OPEN:
            decided.state = "expired"
        if data.limit in LIMITS:
            job = data.job if data.limit in JOB_LIMITS else ""
            self.tripped.setdefault(
                (data.limit, job),
                Tripped(
                    limit=data.limit,
                    job=data.job,
                    incident=data.incident,
                    at_ns=data.at_ns,
                    seq=seq,
                ),
            )
        self.withheld[data.job] = Withheld(
            job=data.job,
            action=data.action,
            limit=data.limit,
            incident=data.incident,
            reason=data.reason,
            at_ns=data.at_ns,
            seq=seq,
            decision=data.decision,
        )

    def _on_attempt(self, attempt: Attempt) -> None:
        decided = self.decisions.get(attempt.decision)
        if decided is None:
            return
        match attempt:
            case AttemptStarted():
                decided.state = "under way"
            case AttemptCompleted():
                decided.state = "done"
            case AttemptFailed():
                decided.state = "withdrawn" if attempt.withdrawn else "failed"
            case _:
                decided.state = "unknown"

    def _on_operation(self, data: Operation, seq: int) -> None:
        said = Said(by=data.by, reason=data.reason, at_ns=data.at_ns, seq=seq)
        match data:
            case DecisionApproved() | DecisionVetoed():
                self._on_answer(data, said)
            case PauseSet():
                _put(self.paused, data.scope, said, there=data.paused)
            case NodeProtected():
                _put(self.protected, data.node, said, there=data.protected)
            case BreakerReset():
                for limit, job in list(self.tripped):
                    if limit == data.limit:
                        del self.tripped[limit, job]
            case PolicyApplied():
                self._on_policy(data, said)
            case JobSubmitted() | JobEnded():
                self._on_job(data, seq)
            case _:
                pass

    def _on_answer(self, answer: DecisionApproved | DecisionVetoed, said: Said) -> None:
        decided = self.decisions.get(answer.decision)
        if decided is None:
            return
        if isinstance(answer, DecisionApproved) and decided.state == "waiting":
            decided.state, decided.answer = "approved", said
        elif isinstance(answer, DecisionVetoed) and decided.state in OPEN:
            decided.state, decided.answer = "vetoed", said

    def _on_policy(self, applied: PolicyApplied, said: Said) -> None:
        try:
            self.policy = decode_policy(bytes(applied.policy))
        except MalformedFactError:
            return  # the healer says so, loudly; the one before holds
        self.policy_said = said

    def _on_job(self, event: JobSubmitted | JobPlaced | JobEnded, seq: int) -> None:
        job = begun(event)
        if job is None and not isinstance(event, JobEnded):
            return
        self.jobs.pop(event.job, None)
        self.withheld.pop(event.job, None)
        self._supersede(event.job)
        for key in [key for key in self.tripped if key[1] == event.job]:
            del self.tripped[key]
        if job is not None:
            self.jobs[event.job] = job
            self.nodes.update(job.node_names, job.spares)
        self._revisions[event.job] = seq


def _put(kept: dict[str, Any], name: str, said: Said, *, there: bool) -> None:
    if there:
        kept.setdefault(name, said)
    else:
        kept.pop(name, None)
