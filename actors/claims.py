"""Which decisions are an actor's to carry out: a fold over what it has read back from the log.

Why: an actor that acts on what is void, vetoed, paused, superseded or taken by another copy does
harm. How: records go in by sequence; a decision is due when it is effective, not expired, newest
of its job, and either unclaimed or claimed by a copy whose time is up (or that is an earlier life
of this one). Claims of one decision form a chain: the first expects that its subject is empty,
the next expects the sequence of the one before, so of two copies that try at once one is refused.
Pure: no clock (log time comes from ticks), no network. Not here: claiming and acting (attempt.py).
"""

from typing import Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.processors.healer.replicas import world_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    Attempt,
    AttemptCompleted,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import (
    DecisionApproved,
    DecisionVetoed,
    JobEnded,
    JobSubmitted,
    NodeProtected,
    PauseSet,
    PolicyApplied,
)
from nemesis.schemas.plans import Placement
from nemesis.schemas.policy import Policy, decode_policy
from nemesis.schemas.rank_ranges import RANKS_MAX, format_ranks
from nemesis.schemas.registry import EVENTS
from nemesis.schemas.scheduled import JobPlaced, begun

Effective = QuiesceDecided | RecoveryDecided


class Standing(msgspec.Struct, kw_only=True):
    """A job as far as its membership is known to be in force."""

    submitted: JobSubmitted
    begun_seq: int
    """Of the fact with which it began."""
    epoch: int = 0
    members: str
    placements: tuple[Placement, ...] = ()
    made_by: RecoveryDecided | None = None
    """The decision that gave it this membership."""


class Known(msgspec.Struct, kw_only=True):
    """A decision and what became of it."""

    decision: Effective
    seq: int
    void: bool
    approved: bool = False
    vetoed: bool = False
    lapsed: bool = False
    """The healer withdrew it: nobody had claimed or approved it in time."""
    claim_seq: int = 0
    begun_ns: int = 0
    """Log time of its first claim."""
    attempt: int = 0
    claimed_by: str = ""
    claim_deadline_ns: int = 0
    ended: bool = False


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that this actor may claim now."""

    decision: Effective
    expected_seq: int
    """Last sequence of the claim's subject: 0, or that of the claim that is taken over."""
    attempt: int


class Claims:
    """What one copy of the job actor knows."""

    def __init__(self, actor: str) -> None:
        self.actor: Final = actor
        self.seq = 0
        self.log_time_ns = 0
        self.jobs: Final[dict[str, Standing]] = {}
        self.policy = Policy()
        self._decisions: Final[dict[str, dict[str, Known]]] = {}
        """Per job and name: those that may still matter."""
        self._revisions: Final[dict[str, int]] = {}
        self._paused: Final[set[str]] = set()
        self._protected: Final[set[str]] = set()

    def take(self, item: Input) -> None:  # noqa: C901 - a table, one line a case
        """Read one record; those of one reader must come in order."""
        data = item.decoded()
        if isinstance(data, ClockTicked):  # may come by a reader of its own: no position
            self.log_time_ns = max(self.log_time_ns, data.at_ns)
            return
        self.seq = max(self.seq, item.record.seq)
        match data:
            case QuiesceDecided() | RecoveryDecided():
                self._on_decision(data, item.record.seq)
            case RecoveryWithheld():
                self._on_withheld(data)
            case Attempt():
                self._on_attempt(data, item.record.seq)
            case DecisionApproved() | DecisionVetoed():
                self._on_answer(data)
            case MembershipReported():
                self._on_membership(data)
            case JobSubmitted() | JobPlaced() | JobEnded():
                self._on_job(data, item.record.seq)
            case PauseSet():
                _put(self._paused, data.scope, data.paused)
            case NodeProtected():
                _put(self._protected, data.node, data.protected)
            case PolicyApplied():
                self._on_policy(data)
            case _:
                pass
        kind = EVENTS.get(item.token)
        job = getattr(data, "job", "")
        if kind is not None and kind.certainty in ("decided", "done") and job:
            self._revisions[job] = item.record.seq

    def due(self) -> list[Due]:
        """Decisions to claim now, by job."""
        return [due for job in sorted(self._decisions) for due in self._due_of(job)]

    def holds(self, decision: Effective, claim_seq: int) -> bool:
        """Whether this claim is the newest on a decision that has no outcome yet."""
        known = self._decisions.get(decision.job, {}).get(decision.decision)
        return known is not None and not known.ended and known.claim_seq == claim_seq

    def claimed(self, decision: Effective) -> tuple[int, int]:
        """(log time of the first claim, log time up to which the newest holds) of a decision."""
        known = self._decisions.get(decision.job, {}).get(decision.decision)
        return (known.begun_ns, known.claim_deadline_ns) if known is not None else (0, 0)

    def forbids(self, decision: Effective) -> str:
        """Why nothing may be begun for a decision, or nothing."""
        known = self._decisions.get(decision.job, {}).get(decision.decision)
        return "the job is over" if known is None else self._forbids(known)

    def overtaken(self, decision: Effective) -> str:
        """What has happened to the job since that makes a decision moot, or nothing."""
        known = self._decisions.get(decision.job, {})
        newest = [each.decision.decision for each in known.values() if _is_effective(each)]
        if newest and newest[-1] != decision.decision:
            return f"{newest[-1]} came after it"
        standing = self.jobs.get(decision.job)
        if standing is None:
            return "the job is over"
        first_epoch = standing.epoch + isinstance(decision, RecoveryDecided)
        return f"the job is in epoch {standing.epoch}" if decision.epoch < first_epoch else ""

    def at_boundary(self, decision: Effective) -> bool:
        """Whether a membership is for ranks that all train on: nobody was told to hold before."""
        if isinstance(decision, QuiesceDecided) or decision.started:
            return False
        standing = self.jobs.get(decision.job)
        if standing is None or decision.epoch != standing.epoch + 1:
            return False  # a membership was begun in between, and ranks may be on their way to it
        known = self._decisions.get(decision.job, {}).values()
        return not any(
            isinstance(each.decision, QuiesceDecided)
            and each.decision.epoch == decision.epoch - 1
            and _is_effective(each)
            for each in known
        )

    def plans_in_force(self, job: str) -> list[Effective]:
        """Decisions whose plans an agent of this job must know: those in force and those begun."""
        standing = self.jobs[job]
        begun = [
            known.decision
            for known in self._decisions.get(job, {}).values()
            if known.claim_seq and not known.void
        ]
        made: list[Effective] = [standing.made_by] if standing.made_by else []
        return [
            *made,
            *(each for each in begun if each.epoch >= standing.epoch and each not in made),
        ]

    def _due_of(self, job: str) -> list[Due]:
        standing = self.jobs.get(job)
        if standing is None:
            return []
        for known in reversed(self._decisions[job].values()):
            if not _is_effective(known):
                continue
            if known.ended or self._forbids(known):
                return []
            if known.claim_seq == 0:
                fresh = self.log_time_ns <= known.decision.deadline_ns
                return [self._next(known)] if fresh else []
            up = self.log_time_ns > known.claim_deadline_ns
            return [self._next(known)] if up or known.claimed_by == self.actor else []
        return []

    def _next(self, known: Known) -> Due:
        return Due(decision=known.decision, expected_seq=known.claim_seq, attempt=known.attempt + 1)

    def _forbids(self, known: Known) -> str:
        decision = known.decision
        if known.void:
            return "it is void"
        if known.vetoed:
            return "it was vetoed"
        if known.lapsed:
            return "it has expired"
        if decision.mode == "shadow" or (decision.mode == "approve" and not known.approved):
            return "nobody let it act"
        if what := self.overtaken(decision):
            return what
        nodes: set[str] = set()
        if isinstance(decision, RecoveryDecided):
            nodes = {*decision.nodes_out, *decision.joined_nodes}
        scopes = {"ALL", f"job/{decision.job}", *(f"node/{node}" for node in nodes)}
        if paused := sorted(scopes & self._paused):
            return f"{paused[0]} is paused"
        if protected := sorted(nodes & (self._protected | set(self.policy.protected_nodes))):
            return f"node {protected[0]} is protected"
        return ""

    def _on_decision(self, decision: Effective, seq: int) -> None:
        if decision.job not in self.jobs or not _regroups_or_holds(decision):
            return
        void = decision.job_revision != self._revisions.get(decision.job, 0)
        known = self._decisions[decision.job]
        known[decision.decision] = Known(decision=decision, seq=seq, void=void)
        settled = [name for name, each in known.items() if each.ended or each.void]
        for name in settled[:-8]:  # late facts about the latest of them still find their decision
            del known[name]

    def _on_withheld(self, withheld: RecoveryWithheld) -> None:
        known = self._decisions.get(withheld.job, {}).get(withheld.decision)
        if known is not None and not known.claim_seq:
            known.lapsed = True

    def _on_attempt(self, attempt: Attempt, seq: int) -> None:
        known = self._decisions.get(attempt.job, {}).get(attempt.decision)
        if known is None:
            return
        if isinstance(attempt, AttemptStarted):
            known.claim_seq, known.claimed_by = seq, attempt.actor
            known.begun_ns = known.begun_ns or attempt.at_ns
            known.attempt, known.claim_deadline_ns = attempt.attempt, attempt.deadline_ns
            return
        known.ended = True
        done = known.decision
        if isinstance(attempt, AttemptCompleted) and isinstance(done, RecoveryDecided):
            standing = self.jobs.get(done.job)
            if standing is not None and done.epoch > standing.epoch:
                standing.epoch, standing.members = done.epoch, done.members
                standing.placements, standing.made_by = done.placements, done

    def _on_membership(self, reported: MembershipReported) -> None:
        standing = self.jobs.get(reported.job)
        if standing is not None and reported.epoch > standing.epoch:
            standing.epoch, standing.members = reported.epoch, reported.members
            standing.made_by = None

    def _on_answer(self, answer: DecisionApproved | DecisionVetoed) -> None:
        for decisions in self._decisions.values():
            known = decisions.get(answer.decision)
            if known is None:
                continue
            if isinstance(answer, DecisionVetoed):
                known.vetoed = known.vetoed or not known.claim_seq  # what is begun is ended
            elif self.log_time_ns <= known.decision.deadline_ns:
                known.approved = True

    def _on_job(self, event: JobSubmitted | JobPlaced | JobEnded, seq: int) -> None:
        job = begun(event)
        if job is None and not isinstance(event, JobEnded):
            return
        self.jobs.pop(event.job, None)
        self._decisions.pop(event.job, None)
        if job is not None and world_of(job) <= RANKS_MAX:
            members = format_ranks(range(world_of(job)))
            self.jobs[event.job] = Standing(submitted=job, begun_seq=seq, members=members)
            self._decisions[event.job] = {}
        self._revisions[event.job] = seq

    def _on_policy(self, applied: PolicyApplied) -> None:
        try:
            self.policy = decode_policy(bytes(applied.policy))
        except MalformedFactError:
            return  # the healer says so, loudly; the one before holds


def _regroups_or_holds(decision: Effective) -> bool:
    return isinstance(decision, QuiesceDecided) or bool(decision.members)


def _is_effective(known: Known) -> bool:
    return not known.void and known.decision.mode != "shadow"


def _put(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)
