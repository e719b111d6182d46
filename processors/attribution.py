"""Which component is at fault, and which only suffer?

Why: a fault shows in many places at once (the kernel log of one node, the watchdogs of all ranks),
and blaming a healthy part is worse than saying that the evidence does not suffice. How: evidence
about one node or one job within two minutes is one incident; certain evidence is answered at once,
the rest after a hold-back in which its context arrives, sorted so that the order of arrival does
not matter; each change of the verdict is a revision. Not here: what a kernel line means
(kernel_messages.py), what it proves (kernel_findings.py), who waits for whom (collectives.py).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nemesis.processors import silences
from nemesis.processors.exits import is_own_death, signal_of
from nemesis.processors.findings import MEMORY_LOST, OFF_BUS, RANK_EXITED, Proof
from nemesis.processors.incidents import Clue, Exit, Incident
from nemesis.processors.inventory import Inventory
from nemesis.processors.kernel_messages import KernelMessage, parse
from nemesis.processors.kernel_rules import DOUBLE_BIT_XID, role_of
from nemesis.processors.open_incidents import HOLD_NS, JOIN_NS, SECOND_NS, Incidents
from nemesis.processors.recorders import Recorders
from nemesis.processors.recoveries import Recoveries
from nemesis.processors.verdicts import verdict_of
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed

# 94, which says that a 48 was contained, follows in the same second
SHORT_HOLD_NS: Final = SECOND_NS // 2
QUIET_NS: Final = 600 * SECOND_NS  # an incident without news for so long is over
CONTEXT_MAX: Final = 32  # messages without weight of their own kept of one node
CONTEXT_NS: Final = 60 * SECOND_NS


class _Pending(msgspec.Struct, array_like=True):
    """Evidence in its hold-back."""

    due_ns: int
    at_ns: int
    late: bool
    clue: Clue | None
    exited: Exit | None

    def order(self) -> tuple[int, str]:
        evidence = self.clue or self.exited
        assert evidence is not None
        return (self.at_ns, evidence.proof.fact)


class _State(msgspec.Struct):
    log_time_ns: int = 0
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    recoveries: Recoveries = msgspec.field(default_factory=Recoveries)
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    hearing: silences.Hearing = msgspec.field(default_factory=silences.Hearing)
    pending: list[_Pending] = []
    context: dict[str, list[tuple[int, Clue]]] = {}
    """Per node: (log time, message) of what has no weight of its own."""
    incidents: Incidents = msgspec.field(default_factory=Incidents)


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(_State)


class Attribution:
    """The processor."""

    name: str = "attribution"
    version: int = 1
    reads: tuple[str, ...] = (
        "sample",
        "kernel",
        "process",
        "collective",
        "inventory",
        "spool",
        "tick",
        "job_submitted",
        "job_ended",
        "recovery_decided",
        "attempt_completed",
    )

    def __init__(self) -> None:
        self._state = _State()

    def configure(self, settings: bytes) -> None:
        """No settings so far."""
        if msgspec.json.decode(settings or b"{}") != {}:
            raise MalformedFactError(f"attribution has no settings, got {settings[:80]!r}")

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._state = _decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        state = self._state
        state.log_time_ns = fact.log_time_ns
        match fact.kind:
            case "sample":
                state.hearing.heard(fact, fact.data.period_ns)
                return ()
            case "tick":
                return self._on_tick(fact)
            case "kernel" | "process" | "collective" | "inventory" | "spool":
                state.hearing.heard(fact, 0)
                return self._on_observation(fact)
            case _:
                self._on_event(fact)
                return ()

    def _on_observation(self, fact: Fact) -> Sequence[Conclusion]:
        match fact.kind:
            case "kernel":
                return self._on_kernel(fact)
            case "process":
                return self._on_process(fact)
            case "collective":
                self._state.recorders.take(fact)
            case "inventory":
                self._state.inventory.report(fact.data)
            case "spool":
                self._state.hearing.spooled(fact.key, fact.log_time_ns)
                self._unsay_silence(fact.key)
        return ()

    def _on_event(self, fact: Fact) -> None:
        state = self._state
        match fact.kind:
            case "job_submitted":
                state.inventory.submit(fact.data)
                state.recorders.forget(fact.data.job)
            case "job_ended":
                self._end(fact.data.job)
            case "recovery_decided":
                state.recoveries.decide(fact.data)
            case "attempt_completed":
                self._on_recovered(fact.data.decision)

    def _on_kernel(self, fact: Fact) -> Sequence[Conclusion]:
        message = parse(fact.data.text)
        if message is None:
            return ()
        node = fact.key
        if message.kind == "gpu_lost" and not message.device:
            message = replace(message, device=self._last_named(node))
        proof = Proof(fact.id, fact.seq, "", fact.data.text)
        clue = Clue(node, proof, message)
        role = role_of(message)
        if role is None and self._state.incidents.on_node(node, fact.log_time_ns) is None:
            kept = self._state.context.setdefault(node, [])
            kept.append((fact.log_time_ns, clue))
            del kept[:-CONTEXT_MAX]
            return ()
        urgent = role is not None and _is_certain(message, role.level)
        hold_ns = SHORT_HOLD_NS if message.code == DOUBLE_BIT_XID else HOLD_NS
        level = role.level if role else 0
        return self._receive(fact, level=level, hold_ns=0 if urgent else hold_ns, clue=clue)

    def _last_named(self, node: str) -> str:
        """The GPU of the line before, where a driver splits its message over two lines."""
        kept = self._state.context.get(node, [])
        named = [clue.message for _, clue in kept if clue.message.kind == "gpu_named"]
        return named[-1].device if named else ""

    def _on_process(self, fact: Fact) -> Sequence[Conclusion]:
        data = fact.data
        signal = signal_of(data.exit_code, data.signal)
        places = self._state.inventory.jobs.get(data.job)
        asked = self._state.recoveries.is_leaving(data.job, data.rank)
        if (not signal and data.exit_code == 0) or asked:
            return ()
        if places is not None and data.rank in places.gone:
            return ()
        exited = Exit(
            node=fact.key,
            proof=Proof(fact.id, fact.seq, ""),
            job=data.job,
            rank=data.rank,
            pid=data.pid,
            code=data.exit_code,
            signal=signal,
            at_ns=fact.at_ns,
            error_ns=data.clock_error_ns,
        )
        hold_ns = 0 if is_own_death(exited) else HOLD_NS
        return self._receive(fact, level=RANK_EXITED, hold_ns=hold_ns, exited=exited)

    def _receive(
        self,
        fact: Fact,
        *,
        level: int,
        hold_ns: int,
        clue: Clue | None = None,
        exited: Exit | None = None,
    ) -> Sequence[Conclusion]:
        """Hold evidence back, or answer it at once where it says more than was said already."""
        pending = _Pending(fact.log_time_ns + hold_ns, fact.at_ns, fact.late, clue, exited)
        if hold_ns:
            self._state.pending.append(pending)
            return ()
        incident = self._place(pending)
        if incident is None:
            return ()
        if level <= incident.level:
            incident.due_ns = fact.log_time_ns + HOLD_NS
            return ()
        return self._judged([incident], urgent=True)

    def _on_tick(self, fact: Fact) -> Sequence[Conclusion]:
        state, now_ns = self._state, fact.log_time_ns
        due = [each for each in state.pending if each.due_ns <= now_ns]
        if due:
            state.pending = [each for each in state.pending if each.due_ns > now_ns]
            for each in sorted(due, key=_Pending.order):
                self._place(each)
        self._place_stuck(now_ns)
        self._place_silence(fact)
        conclusions = self._judged(
            [each for each in state.incidents.open_ones if 0 < each.due_ns <= now_ns], urgent=False
        )
        self._close(now_ns)
        return conclusions

    def _place(self, pending: _Pending) -> Incident | None:
        """Give evidence to its incident, opening one where there is none; None if it is no news."""
        state, now_ns = self._state, self._state.log_time_ns
        if pending.clue is not None:
            clue = pending.clue
            incident = state.incidents.on_node(clue.node, now_ns)
            incident = incident or state.incidents.of_program(clue, now_ns, state.inventory)
            if incident is None:
                if role_of(clue.message) is None:
                    return None
                incident = state.incidents.open(clue.proof.fact, now_ns, late=pending.late)
                for _, earlier in state.context.pop(clue.node, []):
                    incident.take_clue(earlier)
            news = incident.take_clue(clue)
        else:
            exited = pending.exited
            assert exited is not None
            incident = state.incidents.of_exit(exited, now_ns, state.inventory)
            if incident is None:
                incident = state.incidents.open(exited.proof.fact, now_ns, late=pending.late)
                incident.job = exited.job
                incident.nodes.append(exited.node)
            news = incident.take_exit(exited)
        if not news:
            return None
        incident.changed_ns = now_ns
        incident.due_ns = incident.due_ns or now_ns
        return incident

    def _place_stuck(self, now_ns: int) -> None:
        state = self._state
        for job, finding, nodes in state.recorders.judge(now_ns, state.inventory):
            incident = state.incidents.of_job(job, nodes, now_ns, QUIET_NS)
            if incident is None:
                incident = state.incidents.open(finding.proofs[0].fact, now_ns, late=False)
            if incident.stuck != finding:
                incident.job, incident.stuck = job, finding
                incident.take_nodes(nodes, now_ns)

    def _place_silence(self, fact: Fact) -> None:
        state, now_ns = self._state, fact.log_time_ns
        for silence in state.hearing.fallen_silent(fact, state.inventory):
            seats = [seat for node in silence.nodes for seat in state.inventory.seats_on(node)]
            job = seats[0].job if seats else ""
            incident = state.incidents.of_job(job, silence.nodes, now_ns, JOIN_NS)
            if incident is None:
                name = f"{'+'.join(silence.nodes)}@{silence.since_ns}"
                incident = state.incidents.open(name, now_ns, late=False)
            incident.silence = silence
            incident.take_nodes(silence.nodes, now_ns)

    def _unsay_silence(self, node: str) -> None:
        """A node that spooled was never silent, only cut off from the log."""
        for incident in self._state.incidents.open_ones:
            if incident.silence is not None and node in incident.silence.nodes:
                incident.silence = None
                incident.due_ns = self._state.log_time_ns

    def _judged(self, incidents: Sequence[Incident], *, urgent: bool) -> list[Conclusion]:
        conclusions: list[Conclusion] = []
        for incident in incidents:
            incident.due_ns = 0
            concluded = self._verdict(incident)
            if concluded is None:
                continue
            verdict, cause, incident.level = concluded
            said = _digest(verdict)
            if said == incident.said:
                continue
            incident.said = said
            incident.revisions += 1
            conclusions.append(
                Conclusion(
                    data=verdict,
                    key=incident.id,
                    cause=cause,
                    job=verdict.jobs[0] if verdict.jobs else "",
                    urgent=urgent,
                )
            )
        return conclusions

    def _verdict(self, incident: Incident) -> tuple[FaultAttributed, tuple[int, ...], int] | None:
        now_ns = self._state.log_time_ns
        found = verdict_of(incident, self._state.inventory, now_ns)
        if found is None and incident.revisions:
            return _refuted(incident, now_ns), (), 0
        return found

    def _on_recovered(self, decision: str) -> None:
        """A completed recovery moves ranks and ends its incident."""
        state = self._state
        job, incident_id = state.recoveries.complete(decision, state.inventory)
        state.recorders.forget(job)
        state.incidents.close(lambda each: each.id == incident_id)

    def _end(self, job: str) -> None:
        state = self._state
        state.inventory.jobs.pop(job, None)
        state.recorders.forget(job)
        state.incidents.close(lambda each: each.job == job and not each.clues)

    def _close(self, now_ns: int) -> None:
        """Forget what is over, so that the state stays small however long the log is."""
        state = self._state
        state.incidents.close(lambda each: now_ns - each.changed_ns > QUIET_NS)
        for node in [
            node for node, kept in state.context.items() if now_ns - kept[-1][0] > CONTEXT_NS
        ]:
            del state.context[node]


def _is_certain(message: KernelMessage, level: int) -> bool:
    """Whether no context can change the verdict: a GPU off the bus, memory that is lost."""
    if message.code == DOUBLE_BIT_XID:
        return False
    return level in (OFF_BUS, MEMORY_LOST)


def _digest(verdict: FaultAttributed) -> bytes:
    content: Any = replace(verdict, at_ns=0, revision=0)
    return sha256(msgspec.msgpack.encode(content)).digest()[:16]


def _refuted(incident: Incident, at_ns: int) -> FaultAttributed:
    """What was said does not hold any more."""
    return FaultAttributed(
        at_ns=at_ns,
        reason="the evidence for it was refuted by what came later",
        incident=incident.id,
        revision=incident.revisions,
        verdict="no-fault",
        fault_class="none",
        late=incident.late,
    )
