"""How a processor reads the log: the readers' rule, the same for the runner and for replay.

Why: order, time, repetitions, activations and skips must mean the same thing live and in replay,
or replay proves nothing. How: records go in by sequence; a record becomes a fact once, shared by
all processors of a process; each Fold keeps its own log time, drops what a producer repeats, is
silent until a processor_activated names its version, and turns conclusions into messages whose
ids follow from the input. Not here: reading, committing and restarting (streams/runner.py).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import json

from nemesis.processors.processor import MALFORMED, Processor
from nemesis.schemas.errors import BadNameError, MalformedFactError, UnknownFactError
from nemesis.schemas.facts import (
    Conclusion,
    Fact,
    Record,
    SubjectParts,
    check_writer,
    decode_conclusion,
    decode_observation,
    encode_conclusion,
    observation_id,
    split_subject,
)
from nemesis.schemas.kept import ConclusionUndeliverable, FactSkipped, InputLost
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import ProcessorActivated

LATE_NS: Final = 30_000_000_000  # a window over several nodes is closed by then
ERROR_CHARS_MAX: Final = 500  # a fact about an error must itself be deliverable
LIVES_MAX: Final = 8  # producer processes remembered per node and kind; older ones are repetitions


class Malformed(msgspec.Struct, frozen=True):
    """An observation that does not decode, for the intake."""

    subject: str
    payload: bytes
    error: str


class Emission(msgspec.Struct, frozen=True):
    """A conclusion ready for the log."""

    input_seq: int
    subject: str
    payload: bytes
    id: str
    urgent: bool


class Input:
    """A record and, once somebody asks, what it says. Shared by the folds of one process."""

    __slots__ = (
        "_event",
        "_fact",
        "_known",
        "error",
        "life",
        "name",
        "record",
        "source",
        "space",
        "token",
        "value",
    )

    def __init__(self, record: Record) -> None:
        self.record = record
        self.error = ""
        self.value: Any = None
        self.source = ""
        """`<node>/<kind>` of an observation that decodes."""
        self.life = (0, 0)
        """(start_ns, n) of it: which process of its producer wrote it, and as which one."""
        self._event: Any = None
        self._fact: Fact | None = None
        self._known = False
        try:
            self.space, self.token, self.name = _split(record.subject)
        except BadNameError as error:
            self.space, self.token, self.name = "unknown", "", ""
            self.error, self._known = error.message, True

    def decoded(self) -> Any:
        """The payload's struct, or None where it does not decode (then `error` says why)."""
        if not self._known:
            self._known = True
            try:
                if self.space == "telemetry":
                    observation = decode_observation(self.token, self.record.payload)
                    check_writer(self.name, observation)
                    self.value = observation
                    self.source = f"{self.name}/{self.token}"
                    self.life = (observation.start_ns, observation.n)
                elif self.space == "events":
                    self._event, self.value = decode_conclusion(self.token, self.record.payload)
            except (MalformedFactError, UnknownFactError) as error:
                self.value, self.error = None, error.message
        return self.value

    def fact(self, log_time_ns: int) -> Fact:
        """The fact at this log time; only after `decoded()` has answered.

        Almost always the folds of a process agree on the time: then it is made once.
        """
        fact = self._fact
        if fact is None or fact.log_time_ns != log_time_ns:
            fact = self._fact = self._made(log_time_ns)
        return fact

    def _made(self, log_time_ns: int) -> Fact:
        value = self.value
        if self.space == "telemetry":
            return Fact(
                seq=self.record.seq,
                kind=self.token,
                key=self.name,
                id=observation_id(self.token, value),
                at_ns=value.at_ns,
                log_time_ns=log_time_ns,
                late=value.at_ns + value.clock_error_ns < log_time_ns - LATE_NS,
                data=value,
            )
        event = self._event
        return Fact(
            seq=self.record.seq,
            kind=self.token,
            key=self.name,
            id=event.id,
            at_ns=value.at_ns,
            log_time_ns=log_time_ns,
            late=False,
            data=value,
            job=event.job,
            cause=event.causes,
        )


class _State(msgspec.Struct, array_like=True):
    """What a Fold remembers, as it lies in a snapshot."""

    seq: int
    log_time_ns: int
    active: bool
    settings: bytes
    lives: dict[str, list[tuple[int, int]]]
    """Per `<node>/<kind>`: (start_ns, last n) of its latest producer processes, ascending."""
    processor: bytes


class Fold:
    """One processor and its place in the log."""

    def __init__(self, processor: Processor, *, skips: Mapping[int, str] | None = None) -> None:
        """`skips`: inputs whose step is known to crash, each with its error."""
        self.processor: Final = processor
        self.skips: Final = dict(skips or {})
        self.seq = 0
        self.log_time_ns = 0
        self.active = False
        """An activation of this version is in force: conclusions count."""
        self.superseded_by: int | None = None
        """The version that answers from the next input on; this fold must not step any more."""
        self._settings = b"{}"
        self._lives: dict[str, list[tuple[int, int]]] = {}
        self._reads: Final = frozenset(processor.reads)
        self._wants_malformed: Final = MALFORMED in processor.reads
        # what is neither the clock nor about the processor itself takes the short way
        special = {"tick", "processor_activated"}
        self._plain: Final = frozenset() if self._wants_malformed else self._reads - special
        self.heeds: Final = self._reads | special
        """Tokens of the records that change it; others may be left out, where none is skipped."""
        self.heeds_malformed: Final = self._wants_malformed
        """Whether observations that do not decode may change it, whatever their token."""

    def step(self, item: Input) -> list[Emission]:
        """Answer one record; records must come in order, gaps are allowed.

        Whatever the processor raises comes through: the state is then lost and must be restored.
        """
        seq = item.record.seq
        assert seq > self.seq, f"record {seq} after {self.seq}"
        assert self.superseded_by is None, f"superseded by version {self.superseded_by}"
        self.seq = seq
        token = item.token
        if token in self._plain and not (self.skips and seq in self.skips):
            if item.decoded() is None or (item.source and self._repeated(item)):
                return []
            conclusions = self.processor.step(item.fact(self.log_time_ns))
            return self._emitted(seq, conclusions) if conclusions else []
        if seq in self.skips:
            return [self._skip(seq)]
        if token == "tick" and item.space == "telemetry":
            if not self._advance_clock(item):
                return []
        elif token == "processor_activated" and item.name == self.processor.name:
            self._activate(item)
            return []
        wants_errors = self._wants_malformed and item.space in ("telemetry", "unknown")
        if token not in self._reads and not wants_errors:
            return []
        if item.decoded() is None:
            return self._answer(self._malformed(item)) if wants_errors else []
        if token not in self._reads or (item.source and self._repeated(item)):
            return []
        return self._answer(item.fact(self.log_time_ns))

    def snapshot(self) -> bytes:
        """The whole state after `seq`."""
        return msgspec.msgpack.encode(
            _State(
                seq=self.seq,
                log_time_ns=self.log_time_ns,
                active=self.active,
                settings=self._settings,
                lives=self._lives,
                processor=self.processor.snapshot(),
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """Take up a state that `snapshot` made.

        Raises:
            MalformedFactError: not a snapshot of a fold.
        """
        try:
            state = msgspec.msgpack.decode(snapshot, type=_State)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"snapshot of {self.processor.name}: {error}") from error
        self.seq = state.seq
        self.log_time_ns = state.log_time_ns
        self.active = state.active
        self.superseded_by = None
        self._settings = state.settings
        self._lives = state.lives
        self.processor.configure(state.settings)
        self.processor.restore(state.processor)

    def take_over(self) -> None:
        """Answer from here on: the state was restored from the version that handed over."""
        self.active = True

    def _advance_clock(self, item: Input) -> bool:
        """Whether this tick is news; a second ticker's is not."""
        tick: ClockTicked | None = item.decoded()
        if tick is None or tick.at_ns <= self.log_time_ns:
            return False
        self.log_time_ns = tick.at_ns
        return True

    def _activate(self, item: Input) -> None:
        activated: ProcessorActivated | None = item.decoded()
        if activated is None or activated.name != self.processor.name:
            return
        if activated.version != self.processor.version:
            self.active = False
            self.superseded_by = activated.version
            self._settings = bytes(activated.settings)
            return
        self._settings = bytes(activated.settings)
        self.processor.configure(self._settings)
        self.active = True

    def _repeated(self, item: Input) -> bool:
        """Whether a producer sent this before; remembers its number if not."""
        life = item.life
        lives = self._lives.get(item.source)
        if lives is None:
            self._lives[item.source] = [life]
            return False
        start_ns, n = life
        latest_ns, last_n = lives[-1]
        if latest_ns == start_ns and last_n < n:
            lives[-1] = life
            return False
        for at, (each_ns, last_n) in enumerate(lives):
            if each_ns == start_ns:
                if n <= last_n:
                    return True
                lives[at] = life
                return False
        if len(lives) == LIVES_MAX:
            if start_ns < lives[0][0]:
                return True
            del lives[0]
        lives.append(life)
        lives.sort()
        return False

    def _malformed(self, item: Input) -> Fact:
        record = item.record
        return Fact(
            seq=record.seq,
            kind=MALFORMED,
            key=item.name,
            id="",
            at_ns=self.log_time_ns,
            log_time_ns=self.log_time_ns,
            late=False,
            data=Malformed(record.subject, record.payload, item.error),
        )

    def _answer(self, fact: Fact) -> list[Emission]:
        return self._emitted(fact.seq, self.processor.step(fact))

    def _emitted(self, seq: int, conclusions: Sequence[Conclusion]) -> list[Emission]:
        if not self.active:
            return []
        return [self._emission(seq, k, each) for k, each in enumerate(conclusions)]

    def _skip(self, seq: int) -> Emission:
        """What answers an input that this processor cannot step over: said even while silent."""
        name = self.processor.name
        skipped = FactSkipped(
            at_ns=self.log_time_ns,
            reason=f"{name} crashed again and again on input {seq} and goes on without it",
            name=name,
            seq=seq,
            error=self.skips[seq],
        )
        return self._emission(seq, 0, Conclusion(data=skipped, key=name, cause=(seq,)))

    def _emission(self, seq: int, k: int, conclusion: Conclusion) -> Emission:
        identity = f"{self.processor.name}/{seq}/{k}"
        try:
            subject, payload = self._encoded(identity, conclusion)
        except (MalformedFactError, BadNameError) as error:
            return self.undeliverable(seq, identity, json.encode(conclusion.data), error.message)
        return Emission(seq, subject, payload, identity, conclusion.urgent)

    def input_lost(self, seq: int, from_seq: int, to_seq: int) -> Emission:
        """What is said before input seq where those before it expired unread."""
        name = self.processor.name
        data = InputLost(
            at_ns=self.log_time_ns,
            reason=f"inputs {from_seq} to {to_seq} expired before {name} had read them",
            name=name,
            from_seq=from_seq,
            to_seq=to_seq,
        )
        identity = f"{name}/{seq}/lost"
        conclusion = Conclusion(data=data, key=name, cause=())
        return Emission(seq, *self._encoded(identity, conclusion), identity, False)

    def undeliverable(self, seq: int, identity: str, refused: bytes, error: str) -> Emission:
        """What takes the place of a conclusion that the log can never hold."""
        name = self.processor.name
        data = ConclusionUndeliverable(
            at_ns=self.log_time_ns,
            reason=f"the log cannot hold conclusion {identity} of {name}",
            name=name,
            error=error[:ERROR_CHARS_MAX],
            sha256=sha256(refused).hexdigest(),
        )
        conclusion = Conclusion(data=data, key=name, cause=(seq,))
        return Emission(seq, *self._encoded(identity, conclusion), identity, False)

    def _encoded(self, identity: str, conclusion: Conclusion) -> tuple[str, bytes]:
        return encode_conclusion(
            id=identity,
            source=f"/processors/{self.processor.name}",
            at_ns=self.log_time_ns,
            data=conclusion.data,
            key=conclusion.key,
            cause=" ".join(map(str, conclusion.cause)),
            job=conclusion.job,
        )


@lru_cache(maxsize=65_536)
def _split(subject: str) -> SubjectParts:
    return split_subject(subject)
