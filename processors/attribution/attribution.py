"""Which component is at fault, and which only suffer?

Why: a fault shows in many places at once (the kernel log of one node, the watchdogs of all ranks),
and blaming a healthy part is worse than saying that the evidence does not suffice. How: evidence
about one node or one job within two minutes is one incident; certain evidence is answered at once,
the rest after a hold-back in which its context arrives, sorted so that the order of arrival does
not matter; each change of the verdict is a revision. Not here: what a kernel line means
(kernel_messages.py), what it proves (kernel_findings.py), who waits for whom (wait_graph.py).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution.counters import Counters
from nemesis.processors.attribution.exits import is_own_death, signal_of
from nemesis.processors.attribution.findings import MEMORY_LOST, OFF_BUS, RANK_EXITED, Proof
from nemesis.processors.attribution.holdback import Held, HoldBack, Surroundings
from nemesis.processors.attribution.incidents import LINK_KINDS, Clue, Exit, Incident, Support
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage, parse
from nemesis.processors.attribution.kernel_rules import DOUBLE_BIT_XID, role_of
from nemesis.processors.attribution.kernel_signs import sign_in
from nemesis.processors.attribution.open_incidents import (
    HOLD_NS,
    JOIN_NS,
    QUIET_NS,
    SECOND_NS,
    Incidents,
)
from nemesis.processors.attribution.recorders import STALL_NS, Recorders
from nemesis.processors.attribution.recoveries import Recoveries
from nemesis.processors.attribution.silences import Hearing
from nemesis.processors.attribution.verdicts import refuted, verdict_of
from nemesis.schemas import components
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import Ns

# 94, which says that a 48 was contained, follows in the same second
SHORT_HOLD_NS: Final = SECOND_NS // 2


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an activation may set."""

    stall_ns: Ns = STALL_NS
    """How long an operation is pending before it counts as a hang."""


class _State(msgspec.Struct):
    log_time_ns: int = 0
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    recoveries: Recoveries = msgspec.field(default_factory=Recoveries)
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    hearing: Hearing = msgspec.field(default_factory=Hearing)
    counters: Counters = msgspec.field(default_factory=Counters)
    supports: list[tuple[int, str, Support]] = []
    """(log time, node, counter that went up) of the last seconds, where no incident is open."""
    hold_back: HoldBack = msgspec.field(default_factory=HoldBack)
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)
    incidents: Incidents = msgspec.field(default_factory=Incidents)


# maps keep the order in which facts filled them, and there are no sets: equal states, equal bytes
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_State)
_settings: Final = msgspec.json.Decoder(Settings)


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
        self._settings = Settings()

    def configure(self, settings: bytes) -> None:
        """Take settings: an object with `stall_ns` or nothing.

        Raises:
            MalformedFactError: an unknown setting or a wrong value; names it.
        """
        try:
            self._settings = _settings.decode(settings)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"settings of attribution: {error}") from error

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
                self._on_sample(fact)
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
                self._state.recorders.take(fact, self._settings.stall_ns)
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
                state.hearing.expect(fact.data.nodes)
                state.recorders.forget(fact.data.job)
            case "job_ended":
                self._end(fact.data.job)
            case "recovery_decided":
                state.recoveries.decide(fact.data)
            case "attempt_completed":
                job, incident_id = state.recoveries.complete(fact.data.decision, state.inventory)
                state.recorders.forget(job)
                state.incidents.recover(incident_id)

    def _on_sample(self, fact: Fact) -> None:
        state, node = self._state, fact.key
        state.hearing.heard(fact, fact.data.period_ns)
        for risen in state.counters.risen(fact.data):
            gpus = state.inventory.gpus.get(node, [])
            if risen.row >= len(gpus):
                continue
            support = Support(
                components.gpu(node, gpus[risen.row]), Proof(fact.id, fact.seq, risen.says)
            )
            incident = state.incidents.on_node(node, fact.log_time_ns)
            if incident is None:
                state.supports.append((fact.log_time_ns, node, support))
            elif incident.take_support(support):
                incident.due_ns = incident.due_ns or fact.log_time_ns + HOLD_NS

    def _on_kernel(self, fact: Fact) -> Sequence[Conclusion]:
        message = parse(fact.data.text) or sign_in(fact.data.text, fact.data.priority)
        if message is None:
            return ()
        state, node = self._state, fact.key
        if message.kind == "gpu_lost" and not message.device:
            message = replace(message, device=state.surroundings.last_named_gpu(node))
        role = role_of(message)
        level = role.level if role else 0
        clue = Clue(node, Proof(fact.id, fact.seq, "", fact.data.text), message, level)
        alone = state.incidents.on_node(node, fact.log_time_ns) is None
        if role is None and alone and message.kind not in LINK_KINDS:
            state.surroundings.keep(clue, fact.log_time_ns)
            return ()
        hold_ns = SHORT_HOLD_NS if message.code == DOUBLE_BIT_XID else HOLD_NS
        if _is_certain(message, level):
            hold_ns = 0
        return self._receive(fact, level=level, hold_ns=hold_ns, clue=clue)

    def _on_process(self, fact: Fact) -> Sequence[Conclusion]:
        state, data = self._state, fact.data
        signal = signal_of(data.exit_code, data.signal)
        left = state.recoveries.is_leaving(data.job, data.rank)
        left = left or state.inventory.is_gone(data.job, data.rank)
        if left or (not signal and data.exit_code == 0):
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
        held = Held(fact.log_time_ns + hold_ns, fact.at_ns, fact.late, clue, exited)
        if hold_ns:
            self._state.hold_back.put(held)
            return ()
        incident = self._place(held)
        if incident is None:
            return ()
        if level <= incident.level:
            incident.due_ns = fact.log_time_ns + HOLD_NS
            return ()
        return self._judged([incident], urgent=True)

    def _on_tick(self, fact: Fact) -> Sequence[Conclusion]:
        state, now_ns = self._state, fact.log_time_ns
        for held in state.hold_back.due(now_ns):
            self._place(held)
        self._place_stuck(now_ns)
        self._place_silence(fact)
        due = [each for each in state.incidents.open_ones if 0 < each.due_ns <= now_ns]
        conclusions = self._judged(due, urgent=False)
        state.incidents.close(
            lambda each: now_ns - each.changed_ns > QUIET_NS and not each.has_link_down()
        )
        state.surroundings.forget(now_ns)
        state.supports = [each for each in state.supports if now_ns - each[0] <= JOIN_NS]
        return conclusions

    def _place(self, held: Held) -> Incident | None:
        """Give evidence to its incident, opening one where there is none; None if it is no news."""
        now_ns = self._state.log_time_ns
        evidence = held.evidence
        if isinstance(evidence, Clue):
            incident = self._incident_of_clue(evidence, late=held.late)
            news = incident is not None and incident.take_clue(evidence)
        elif self._state.inventory.is_gone(evidence.job, evidence.rank):
            return None  # it was removed, or its job ended, during the hold-back
        else:
            incident = self._incident_of_exit(evidence, late=held.late)
            news = incident.take_exit(evidence)
        if incident is None:
            return None
        incident.changed_ns = now_ns
        if not news and (held.late or not incident.late):
            return None
        incident.late = incident.late and held.late
        incident.due_ns = incident.due_ns or now_ns
        return incident

    def _incident_of_clue(self, clue: Clue, *, late: bool) -> Incident | None:
        """None for a message without weight whose incident closed during its hold-back."""
        state, now_ns = self._state, self._state.log_time_ns
        if clue.message.kind == "not_understood":
            return state.incidents.of_noise(clue, now_ns, late=late)
        incident = state.incidents.of_link(clue)
        incident = incident or state.incidents.on_node(clue.node, now_ns, clue.message.device)
        incident = incident or state.incidents.of_program(clue, now_ns, state.inventory)
        role = role_of(clue.message)
        if (
            incident is not None
            and incident.recovered
            and not incident.explains(clue, role.level if role else 0, state.inventory)
        ):
            incident = None  # another fault of the same node, or the same one again
        if incident is None and role is not None:
            incident = state.incidents.open(clue.proof.fact, now_ns, late=late)
        if incident is None:
            return None
        for earlier in state.surroundings.take(clue.node):
            incident.take_clue(earlier)
        for _, node, support in state.supports:
            if node == clue.node:
                incident.take_support(support)
        state.supports = [each for each in state.supports if each[1] != clue.node]
        return incident

    def _incident_of_exit(self, exited: Exit, *, late: bool) -> Incident:
        state, now_ns = self._state, self._state.log_time_ns
        incident = state.incidents.of_exit(exited, now_ns, state.inventory)
        if incident is None:
            incident = state.incidents.open(exited.proof.fact, now_ns, late=late)
            incident.job = exited.job
            incident.nodes.append(exited.node)
        return incident

    def _place_stuck(self, now_ns: int) -> None:
        state = self._state
        stall_ns = self._settings.stall_ns
        for job, finding, nodes in state.recorders.judge(now_ns, stall_ns, state.inventory):
            incident = state.incidents.of_job(job, nodes, now_ns, QUIET_NS)
            if incident is None:
                if finding is None:
                    continue
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
                opened_by = f"{fact.id} {' '.join(silence.nodes)}"
                incident = state.incidents.open(opened_by, now_ns, late=False)
            incident.job = incident.job or job
            incident.silences.append(silence)
            incident.take_nodes(silence.nodes, now_ns)

    def _unsay_silence(self, node: str) -> None:
        """A node that spooled was never silent, only cut off from the log."""
        for incident in self._state.incidents.open_ones:
            told = [each for each in incident.silences if node in each.nodes]
            if told:
                incident.silences = [each for each in incident.silences if each not in told]
                incident.due_ns = self._state.log_time_ns

    def _judged(self, incidents: Sequence[Incident], *, urgent: bool) -> list[Conclusion]:
        conclusions: list[Conclusion] = []
        for incident in incidents:
            incident.due_ns = 0
            concluded = None if incident.recovered else self._verdict(incident)
            if concluded is None:
                continue
            verdict, cause, incident.level = concluded
            said = _digest(verdict)
            if said == incident.said:
                continue
            incident.said = said
            incident.revisions += 1
            job = verdict.jobs[0] if verdict.jobs else ""
            conclusions.append(
                Conclusion(data=verdict, key=incident.id, cause=cause, job=job, urgent=urgent)
            )
        return conclusions

    def _verdict(self, incident: Incident) -> tuple[FaultAttributed, tuple[int, ...], int] | None:
        now_ns = self._state.log_time_ns
        found = verdict_of(incident, self._state.inventory, now_ns)
        if found is None and incident.revisions:
            return refuted(incident, now_ns), (), 0
        return found

    def _end(self, job: str) -> None:
        """Nothing of a job that is over concerns anybody, except what hardware it met."""
        self._state.inventory.end(job)
        self._state.recorders.forget(job)
        self._state.incidents.close(lambda each: each.job == job and not each.clues)


def _is_certain(message: KernelMessage, level: int) -> bool:
    """Whether no context can change the verdict: a GPU off the bus, memory that is lost."""
    return level in (OFF_BUS, MEMORY_LOST) and message.code != DOUBLE_BIT_XID


def _digest(verdict: FaultAttributed) -> bytes:
    content: Any = replace(verdict, at_ns=0, revision=0)
    return sha256(msgspec.msgpack.encode(content)).digest()[:16]
