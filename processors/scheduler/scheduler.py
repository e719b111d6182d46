"""Which job runs where, and when?

Why: GPUs that wait for one another's jobs are the most expensive idle machines there are, and a job
torn over switches, or put on the node that just failed, costs as much without anybody seeing it.
How: a submission without nodes is type-checked where it is decided, queued, and placed by the rules
of processors/placement on what inventories, incidents and other jobs leave. Everything is a fact:
job_rejected, job_queued with what would help, job_placed with how good the place is known to be,
job_released. What was placed counts once it is read back, so the state follows the log.

| fact | what follows |
|---|---|
| job_submitted without nodes | job_rejected, or it waits |
| job_submitted with nodes | those nodes are taken |
| job_ended | job_released; with `requeued` it waits again |
| tick, job_* | if something changed: from the top, job_placed, job_queued or job_rejected |
| inventories, verdicts, predictions, protections | what there is to be had changes |
| attempt_completed | a recovery took its job off nodes |
| placement_proposed | placed, if it is better than our own in whole numbers |
| advice_given | advice_judged: what of it passes the rules is wished for a job that waits |

Not here: starting processes (whoever reads job_placed), and what becomes of them (healer).
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

import msgspec

from nemesis.processors.scheduler import said
from nemesis.processors.scheduler.admission import admit, spec_of
from nemesis.processors.scheduler.advice_rules import Moment, take
from nemesis.processors.scheduler.explain import why
from nemesis.processors.scheduler.health import blamed_nodes
from nemesis.processors.scheduler.moves import advice
from nemesis.processors.scheduler.placing import next_relaxation_s
from nemesis.processors.scheduler.proposing import (
    better,
    proposals_in,
    request_for,
    sharpened,
    starts_of,
)
from nemesis.processors.scheduler.queue import (
    Delay,
    Ground,
    Outcome,
    Refusal,
    Start,
    advice_left_ns,
    decide,
    ground_of,
)
from nemesis.processors.scheduler.said import now_of
from nemesis.processors.scheduler.settings import SECOND_NS, Settings, decode_settings
from nemesis.processors.scheduler.state import (
    DECISIONS_MAX,
    Asked,
    Running,
    State,
    Waiting,
    unqueueable,
)
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.advised import AdviceGiven
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed, IncidentClosed
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.observed import ClockTicked, FabricInventoryReported, InventoryReported
from nemesis.schemas.operated import JobEnded, JobSubmitted, NodeProtected
from nemesis.schemas.scheduled import (
    JobFinding,
    JobPlaced,
    JobRejected,
    PlacementProposed,
    PlacementRequested,
)

SAY_NS: Final = 30 * SECOND_NS
"""A job that waits is not told more often why: an explanation asks the rules several times."""

_Read: TypeAlias = (
    ClockTicked
    | InventoryReported
    | FabricInventoryReported
    | FaultAttributed
    | FailurePredicted
    | IncidentClosed
    | NodeProtected
    | JobSubmitted
    | JobEnded
    | JobPlaced
    | JobRejected
    | PlacementProposed
    | RecoveryDecided
    | AttemptCompleted
    | ConclusionUndeliverable
    | AdviceGiven
)
_AT_ONCE: Final = ("tick", "job_submitted", "job_ended", "job_placed", "job_rejected",
                   "placement_proposed", "advice_given")  # fmt: skip
"""After these the queue is looked at; what else changed waits for the next tick."""


class Scheduler:
    """The scheduler; see the top of this file."""

    name = "scheduler"
    version = 1
    reads: tuple[str, ...] = (
        "tick",
        "inventory",
        "fabric_inventory",
        "fault_attributed",
        "failure_predicted",
        "incident_closed",
        "node_protected",
        "job_submitted",
        "job_ended",
        "job_placed",
        "job_rejected",
        "placement_proposed",
        "recovery_decided",
        "attempt_completed",
        "conclusion_undeliverable",
        "advice_given",
    )

    def __init__(self) -> None:
        self._state = State()
        self._settings = Settings()
        self._pool: Pool | None = None
        """Of what is told now; made anew when that changes."""

    def configure(self, settings: bytes) -> None:
        """Take shares and times; what was said in silence is not waited for."""
        self._settings = decode_settings(settings)
        self._state.unread = ()
        self._state.asked = None
        self._state.changed = True
        for waiting in self._state.queue.values():
            waiting.said, waiting.said_ns = ("", ()), 0

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        try:
            self._state = msgspec.msgpack.decode(snapshot, type=State)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"snapshot of scheduler: {error}") from error
        self._pool = None

    def moment(self, now_ns: int) -> Moment:
        """What is known now, for those who ask its rules without deciding anything."""
        ground = self._ground()
        return Moment(state=self._state, settings=self._settings, ground=ground, now_ns=now_ns)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Take a fact in, then look at the queue if something may start."""
        found = self._take(fact, fact.data)
        state = self._state
        asked = state.asked is not None and state.asked.is_open(now_of(fact))
        settled = now_of(fact) >= state.settled_ns
        ready = state.changed and not state.unread and not asked and settled
        if fact.kind in _AT_ONCE and ready and state.queue:
            found += self._look(fact)
        return found

    def _take(self, fact: Fact, data: _Read) -> list[Conclusion]:  # noqa: C901, PLR0912 - a table
        state = self._state
        match data:
            case ClockTicked():
                self._on_tick(fact)
            case InventoryReported():
                booted = state.health.take_boot(data, self._probation_ns(fact))
                self._on_told(fact, state.told.take_node(data), booted)
            case FabricInventoryReported():
                self._on_told(fact, state.told.take_switch(data), False)
            case FaultAttributed():
                jobs = {name: job.job for name, job in state.running.items()}
                nodes = blamed_nodes(data, state.told.nodes, jobs)
                state.changed |= state.health.take_verdict(data, nodes)
            case FailurePredicted():
                state.changed |= state.health.take_prediction(data)
            case IncidentClosed():
                state.changed |= state.health.close(data, self._probation_ns(fact))
            case NodeProtected():
                state.changed |= state.health.take_protection(data)
            case JobSubmitted():
                return self._on_submitted(fact, data)
            case JobEnded():
                return self._on_ended(fact, data)
            case JobPlaced():
                return self._on_placed(fact, data)
            case JobRejected():
                self._read(data.job)
                if data.job in state.queue and state.queue[data.job].seq in fact.cause:
                    del state.queue[data.job]
            case PlacementProposed():
                if state.asked is not None and state.asked.request == data.request:
                    state.asked.proposed = state.asked.proposed or data
                    state.changed = True
            case RecoveryDecided():
                state.decided[data.decision] = data.nodes_out
                while len(state.decided) > DECISIONS_MAX:
                    del state.decided[next(iter(state.decided))]
            case AttemptCompleted():
                self._on_recovered(data)
            case AdviceGiven():
                acts = take(self.moment(now_of(fact)), data, fact.seq)
                return [said.advised(fact, data, acts)] if acts else []
            case ConclusionUndeliverable():
                if data.name == self.name:
                    state.unread = ()
            case _:
                assert_never(data)
        return []

    def _probation_ns(self, fact: Fact) -> int:
        return now_of(fact) + self._settings.probation_ns

    def _read(self, job: str) -> None:
        """What we said of a job is in the log."""
        self._state.unread = tuple(name for name in self._state.unread if name != job)
        self._state.changed = True

    def _on_tick(self, fact: Fact) -> None:
        state = self._state
        state.changed |= state.health.pass_time(now_of(fact))
        state.changed |= 0 < state.wake_ns <= now_of(fact)
        if state.asked is not None and not state.asked.is_open(now_of(fact)):
            state.changed = True

    def _on_told(self, fact: Fact, other: bool, booted: bool) -> None:
        if other:
            self._state.settled_ns = now_of(fact) + self._settings.settle_ns
            self._pool = self._state.asked = None  # shelves have other numbers now
        self._state.changed |= other or booted

    def _on_submitted(self, fact: Fact, job: JobSubmitted) -> list[Conclusion]:
        state, name = self._state, job.job
        now_ns = now_of(fact)
        if not job.waits:
            state.queue.pop(name, None)
            state.running[name] = Running(job=job, submitted=job, since_ns=now_ns)
            return []
        findings: tuple[JobFinding, ...] = unqueueable(state, job)
        if not findings:
            ground = self._ground()
            admission = admit(job, ground.free() if ground.whole.nodes else None)
            findings = admission.findings if admission.outcome == "rejected" else ()
        if findings:
            return [said.rejected(fact, job, fact.seq, findings)]
        state.queue[name] = Waiting(job=job, seq=fact.seq, since_ns=now_ns)
        state.changed = True
        return []

    def _on_ended(self, fact: Fact, ended: JobEnded) -> list[Conclusion]:
        state, name = self._state, ended.job
        state.changed = True
        running, waiting = state.running.pop(name, None), state.queue.get(name)
        if running is None:
            if waiting is None or ended.requeued:
                return []
            del state.queue[name]
            return [said.released(fact, name, None, f"taken back by {ended.by}: {ended.reason}")]
        now_ns = now_of(fact)
        state.count(now_ns, self._settings.share_half_life_ns)
        again = ended.requeued and running.submitted.waits
        if again:
            state.queue[name] = Waiting(job=running.submitted, seq=fact.seq, since_ns=now_ns)
        what = "it waits again" if again else "it is over"
        reason = f"{what}, by {ended.by}: {ended.reason}"
        return [said.released(fact, name, running, reason, requeued=again)]

    def _on_placed(self, fact: Fact, placed: JobPlaced) -> list[Conclusion]:
        """It has its nodes, unless it was taken back before this could be read."""
        state, name = self._state, placed.job
        self._read(name)
        now_ns = now_of(fact)
        waiting = state.queue.get(name)
        if waiting is None or waiting.seq != placed.job_revision:
            return [said.released(fact, name, None, "it was taken back before it was placed")]
        del state.queue[name]
        state.count(now_ns, self._settings.share_half_life_ns)
        state.running[name] = Running(job=placed.submission, submitted=waiting.job, since_ns=now_ns)
        return []

    def _on_recovered(self, done: AttemptCompleted) -> None:
        left = self._state.decided.pop(done.decision, ())
        running = self._state.running.get(done.job)
        if left and running is not None:
            self._state.running[done.job] = Running(
                job=running.job,
                submitted=running.submitted,
                since_ns=running.since_ns,
                left=(*running.left, *left),
            )
            self._state.changed = True

    def _ground(self) -> Ground:
        if self._pool is None:
            self._pool = self._state.told.pool()
        return ground_of(self._state, self._pool)

    def _look(self, fact: Fact) -> list[Conclusion]:
        """Let jobs start, and tell those that do not why."""
        state, now_ns = self._state, now_of(fact)
        state.changed = False
        state.count(now_ns, self._settings.share_half_life_ns)
        ground = self._ground()
        proposal = state.asked.request if state.asked is not None else ""
        outcomes, request = self._decided(ground, now_ns)
        if request is not None:
            state.asked_count += 1
            state.asked = Asked(request=request.request, deadline_ns=request.deadline_ns)
            return [Conclusion(data=request, key=request.request, cause=(fact.seq,))]
        found: list[Conclusion] = []
        delays: list[Delay] = []
        given: set[str] = set()
        unread: list[str] = []
        for outcome in outcomes:
            match outcome:
                case Start():
                    waiting = state.queue[outcome.name]
                    found.append(said.placed(fact, waiting, outcome, proposal))
                    given.update((*outcome.place.nodes, *outcome.place.spares))
                    unread.append(outcome.name)
                case Refusal():
                    waiting = state.queue[outcome.name]
                    found.append(said.rejected(fact, waiting.job, waiting.seq, outcome.findings))
                    unread.append(outcome.name)
                case Delay():
                    delays.append(outcome)
                case _:
                    assert_never(outcome)
        state.unread = tuple(unread)
        rest = msgspec.structs.replace(ground, taken={*ground.taken, *given})
        wakes = [self._next_wake_ns(now_ns)]
        for delay in delays:
            again_ns = state.queue[delay.name].said_ns + SAY_NS
            if now_ns < again_ns:
                wakes.append(again_ns)
            else:
                found += self._tell(fact, rest, delay, now_ns)
        state.wake_ns = min((wake for wake in wakes if wake), default=0)
        return found

    def _decided(
        self, ground: Ground, now_ns: int
    ) -> tuple[list[Outcome], PlacementRequested | None]:
        """What becomes of whom, with a proposal where one is better; or what is asked first."""
        state, wait_ns = self._state, self._settings.solver_wait_ns
        own = decide(state, self._settings, ground, now_ns)
        starts, asked = starts_of(own), state.asked
        state.asked = None
        if asked is None and wait_ns and starts:
            return own, request_for(state, starts, ground.free(), now_ns, wait_ns)
        if asked is not None and (proposals := proposals_in(asked.proposed)):
            other = decide(state, self._settings, ground, now_ns, proposals)
            own = other if better(own, other) else own
        return (own if asked is None else sharpened(own, asked.proposed)), None

    def _tell(self, fact: Fact, ground: Ground, delay: Delay, now_ns: int) -> list[Conclusion]:
        """Why a job waits, where that is news."""
        waiting = self._state.queue[delay.name]
        told = why(self._state, ground, delay, now_ns)
        waiting.said_ns = now_ns
        if waiting.said == (told.code, told.blocked):
            return []
        waiting.said = (told.code, told.blocked)
        found = [said.queued(fact, waiting, delay.position, told)]
        moves = advice(self._state, self._settings, ground, delay, now_ns)
        if moves is not None:
            found.append(Conclusion(data=moves, key=moves.job, cause=(waiting.seq,)))
        return found

    def _next_wake_ns(self, now_ns: int) -> int:
        """When the next soft wish is given up; 0: none is waited for."""
        wakes: list[int] = []
        for waiting in self._state.queue.values():
            waited_s = max(0, now_ns - waiting.since_ns) // SECOND_NS
            if left_ns := advice_left_ns(waiting, self._settings, now_ns):
                wakes.append(now_ns + left_ns)
            if wait_s := next_relaxation_s(spec_of(waiting.job), waited_s):
                wakes.append(waiting.since_ns + wait_s * SECOND_NS)
        return min(wakes, default=0)
