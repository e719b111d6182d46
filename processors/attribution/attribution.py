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

from nemesis.processors.attribution import placing
from nemesis.processors.attribution.certainty import CLASS_PPM_MIN, NAMED_PPM_MIN
from nemesis.processors.attribution.exits import is_own_death, signal_of
from nemesis.processors.attribution.findings import RANK_EXITED, Finding, Proof
from nemesis.processors.attribution.gpu_signs import take_gpu_signs, take_host_signs, take_nvlinks
from nemesis.processors.attribution.halt_placing import place_halts, take_back_halt
from nemesis.processors.attribution.holdback import Held
from nemesis.processors.attribution.host_signs import host_block
from nemesis.processors.attribution.incidents import LINK_KINDS, Clue, Exit, Incident
from nemesis.processors.attribution.kernel_messages import parse
from nemesis.processors.attribution.kernel_rules import DOUBLE_BIT_XID, role_of
from nemesis.processors.attribution.kernel_signs import sign_in
from nemesis.processors.attribution.open_incidents import HOLD_NS, JOIN_NS, QUIET_NS, SECOND_NS
from nemesis.processors.attribution.patience import must_wait
from nemesis.processors.attribution.programs import concerns_nobody
from nemesis.processors.attribution.recorders import STALL_NS
from nemesis.processors.attribution.report_placing import place_reports
from nemesis.processors.attribution.sample_batch import (
    SampleBatch,
    gpu_block,
    nic_block,
    stacked,
)
from nemesis.processors.attribution.silences import OF_RANKS
from nemesis.processors.attribution.state import State, decoder, encoder
from nemesis.processors.attribution.step_states import step_block
from nemesis.processors.attribution.urgency import is_certain, is_first
from nemesis.processors.attribution.verdicts import refuted, verdict_of
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed, Ppm
from nemesis.schemas.observed import Ns

# 94, which says that a 48 was contained, follows in the same second
SHORT_HOLD_NS: Final = SECOND_NS // 2
_OF_NODES: Final = frozenset(OF_RANKS) | {"kernel", "inventory", "spool", "coverage"}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an activation may set."""

    stall_ns: Ns = STALL_NS
    """How long an operation is pending before it counts as a hang."""
    named_ppm_min: Ppm = NAMED_PPM_MIN
    """How sure it must be to name a part; else it says the class alone."""
    class_ppm_min: Ppm = CLASS_PPM_MIN
    """How sure it must be to say the class."""


_settings: Final = msgspec.json.Decoder(Settings)


class Attribution:
    """The processor."""

    name: str = "attribution"
    version: int = 1
    reads: tuple[str, ...] = (
        "sample",
        "kernel",
        "process",
        "process_state",
        "collective",
        "fabric",
        "inventory",
        "log",
        "counters",
        "setting",
        "step_times",
        "trial",
        "stack",
        "device_state",
        "spool",
        "coverage",
        "tick",
        "job_submitted",
        "job_placed",
        "job_ended",
        "recovery_decided",
        "attempt_completed",
    )

    def __init__(self) -> None:
        self._state = State()
        self._samples = SampleBatch()
        self._settings = Settings()

    def configure(self, settings: bytes) -> None:
        """Take settings: an object with some of the fields of `Settings`, or none.

        Raises:
            MalformedFactError: an unknown setting or a wrong value; names it.
        """
        try:
            self._settings = _settings.decode(settings)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"settings of attribution: {error}") from error

    def snapshot(self) -> bytes:
        """The whole state."""
        self._read_samples()
        return encoder.encode(self._state)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._samples = SampleBatch()
        self._state = decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        state = self._state
        if fact.kind == "sample":
            # it waits for others: what it says counts from here on all the same
            if not self._samples.put(fact):
                self._read_samples()
                self._samples.put(fact)
            return ()
        if fact.kind in ("fabric", "device_state"):
            self._on_devices(fact)
            return ()
        self._read_samples()
        state.log_time_ns = fact.log_time_ns
        match fact.kind:
            case "tick":
                return self._on_tick(fact)
            case "log" | "counters" | "setting" | "step_times" | "trial" | "stack" as kind:
                if kind == "stack":
                    state.hearing.heard(fact)  # whoever looks at a rank lives
                state.report(fact)
                return ()
            case kind if kind in _OF_NODES:
                state.hearing.heard(fact)
                return self._on_observation(fact)
            case _:
                self._on_event(fact)
                return ()

    def _on_devices(self, fact: Fact) -> None:
        """Samples go on waiting where the fact has nothing to do with what they say."""
        state = self._state
        state.log_time_ns = fact.log_time_ns  # that of the samples too: a tick would have read them
        if fact.kind == "device_state":
            state.hearing.heard(fact)
            state.device_states.take(fact)
            state.lost_ways.take_states(fact, state.inventory)
            trained = state.nvlinks.risen(fact)
            if trained:
                self._read_samples()
                take_nvlinks(state, fact, trained)
            losses = [] if fact.late else state.link_losses.risen(fact)
            if losses:
                self._read_samples()
                state.links.take_losses(fact, losses, state.inventory)
            return
        state.lost_ways.take_fabric(fact)
        changed = [each for each in (state.links, state.pauses) if not each.take_quiet(fact)]
        if changed:
            self._read_samples()
        if state.links in changed:
            state.trunks.take(fact)
        for each in changed:
            each.take_fabric(fact, state.inventory)

    def _on_observation(self, fact: Fact) -> Sequence[Conclusion]:
        match fact.kind:
            case "kernel":
                return self._on_kernel(fact)
            case "process":
                return self._on_process(fact)
            case "process_state":
                return self._on_process_state(fact)
            case "collective":
                self._state.recorders.take(fact, self._settings.stall_ns)
            case "inventory":
                self._state.inventory.report(fact.data)
            case "spool":
                self._state.hearing.spooled(fact.key, fact.log_time_ns, self._state.inventory)
                placing.unsay_silence(self._state, fact.key)
            case "coverage" if fact.data.ends:
                self._state.hearing.end(fact)
        return ()

    def _on_event(self, fact: Fact) -> None:
        state = self._state
        match fact.kind:
            case "job_submitted" | "job_placed":
                state.begin(fact.data)
            case "job_ended":
                self._end(fact.data.job)
            case "recovery_decided":
                state.recoveries.decide(fact.data)
            case "attempt_completed":
                before = state.inventory.nodes_of(fact.data.job)
                job, incident_id = state.recoveries.complete(fact.data.decision, state.inventory)
                stay = state.inventory.nodes_of(fact.data.job)
                left = [node for node in before if node not in stay]
                state.hearing.leave(left, fact.log_time_ns)
                state.regroup(job)
                state.incidents.recover(incident_id)

    def _read_samples(self) -> None:
        """Read the samples that wait together."""
        facts = self._samples.take()
        if not facts:
            return
        state = self._state
        state.log_time_ns = facts[-1].log_time_ns
        for node in state.hearing.heard_samples(facts):
            placing.unsay_silence(state, node)
        take_gpu_signs(state, stacked(facts, gpu_block))
        take_host_signs(state, stacked(facts, host_block))
        nics = stacked([fact for fact in facts if not fact.late], nic_block)
        state.links.take_samples(nics, state.inventory)
        state.pauses.take_samples(nics, state.inventory)
        state.resends.take(nics, state.inventory)
        for fact in facts:
            if state.steps.is_watched(fact.data.job) and not fact.late:
                state.slowness.take(fact)
        state.steps.take(facts, state.inventory)
        state.step_states.take(stacked(facts, step_block), state.inventory)

    def _on_kernel(self, fact: Fact) -> Sequence[Conclusion]:
        state, node, text = self._state, fact.key, fact.data.text
        message = parse(text) or sign_in(text, fact.data.priority)
        message = message and state.repeats.counted(node, message, fact.at_ns)
        if message is None:
            return ()
        if message.kind == "dimm_corrected" and node in state.hearing.polled_ns:
            return ()  # who is watched shows when it fails; what was set right takes no job's node
        if message.kind in LINK_KINDS and message.device:
            state.links.take_line(fact, message, state.inventory)
        if message.kind == "gpu_lost" and not message.device:
            message = replace(message, device=state.surroundings.last_named_gpu(node))
        role = role_of(message)
        level = role.level if role else 0
        if concerns_nobody(message, level, node, state.inventory):
            return ()
        clue = Clue(node, Proof(fact.id, fact.seq, "", text), message, level, fact.at_ns)
        alone = state.incidents.on_node(node, fact.log_time_ns) is None
        if role is None and alone and message.kind not in LINK_KINDS:
            state.surroundings.keep(clue, fact.log_time_ns)
            return ()
        hold_ns = SHORT_HOLD_NS if message.code == DOUBLE_BIT_XID else HOLD_NS
        if is_certain(message, level):
            hold_ns = 0
        return self._receive(fact, level=level, hold_ns=hold_ns, clue=clue)

    def _on_process(self, fact: Fact) -> Sequence[Conclusion]:
        state, data = self._state, fact.data
        signal = signal_of(data.exit_code, data.signal)
        left = state.recoveries.is_leaving(data.job, data.rank)
        left = left or state.inventory.is_gone(data.job, data.rank)
        state.halts.end(data.job, data.rank)
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

    def _on_process_state(self, fact: Fact) -> Sequence[Conclusion]:
        state = self._state
        if not state.halts.take(fact, state.inventory):
            return ()
        goes_on = fact.data.rank not in state.halts.jobs.get(fact.data.job, {})
        touched = take_back_halt(state, fact.data.job) if goes_on else place_halts(state)
        return self._judged(touched, urgent=True)

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
        incident = placing.place(self._state, held)
        if incident is None:
            return ()
        if level < incident.level or (level == incident.level and not is_first(incident, clue)):
            incident.due_ns = fact.log_time_ns + HOLD_NS
            return ()
        return self._judged([incident], urgent=True)

    def _on_tick(self, fact: Fact) -> Sequence[Conclusion]:
        state, now_ns = self._state, fact.log_time_ns
        for held in state.hold_back.due(now_ns):
            placing.place(state, held)
        placing.place_stuck(state, self._settings.stall_ns)
        place_halts(state)
        placing.place_faulted(state)
        placing.place_silence(state, fact)
        placing.place_links(state)
        placing.place_trunks(state)
        placing.place_ways(state)
        placing.place_pauses(state)
        placing.place_clients(state)
        placing.place_acquitted(state)
        placing.place_slow(state)
        placing.place_states(state)
        placing.place_differences(state)
        place_reports(state)
        due = [each for each in state.incidents.open_ones if 0 < each.due_ns <= now_ns]
        conclusions = self._judged(due, urgent=False)
        state.incidents.close(
            lambda each: now_ns - each.changed_ns > QUIET_NS and not each.has_link_down()
        )
        state.surroundings.forget(now_ns)
        state.links.forget(now_ns)
        state.supports = [each for each in state.supports if now_ns - each[0] <= JOIN_NS]
        return conclusions

    def _judged(self, incidents: Sequence[Incident], *, urgent: bool) -> list[Conclusion]:
        state, now_ns = self._state, self._state.log_time_ns
        conclusions: list[Conclusion] = []
        for incident in incidents:
            incident.due_ns = 0
            concluded = None if incident.recovered else self._verdict(incident)
            if concluded is None:
                continue
            verdict, cause, root = concluded
            if must_wait(state, root, incident, verdict.jobs):
                incident.due_ns = now_ns + SECOND_NS
                continue
            if root is not None and state.incidents.explain_aborts(incident, root, now_ns):
                continue
            incident.level, incident.asked_ns = root.level if root else 0, 0
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

    def _verdict(
        self, incident: Incident
    ) -> tuple[FaultAttributed, tuple[int, ...], Finding | None] | None:
        """(verdict, sequences that it rests on, its root)."""
        now_ns = self._state.log_time_ns
        found = verdict_of(
            incident,
            self._state.inventory,
            self._state.steps,
            now_ns,
            named_ppm_min=self._settings.named_ppm_min,
            class_ppm_min=self._settings.class_ppm_min,
        )
        if found is None and incident.revisions:
            return refuted(incident, now_ns), (), None
        return found

    def _end(self, job: str) -> None:
        """Nothing of a job that is over concerns anybody, except what hardware it met."""
        self._state.inventory.end(job)
        self._state.hearing.forget(job)
        self._state.forget(job)
        self._state.reports.end(job)
        self._state.incidents.close(lambda each: each.job == job and not each.clues)


def _digest(verdict: FaultAttributed) -> bytes:
    content: Any = replace(verdict, at_ns=0, revision=0)
    return sha256(msgspec.msgpack.encode(content)).digest()[:16]
