"""How a processor reads the log: the readers' rule, the same for the runner and for replay.

Why: order, time, repetitions, activations and skips must mean the same thing live and in replay,
or replay proves nothing. How: records go in by sequence; a record becomes a fact once, shared by
all processors of a process; each Fold keeps its own log time, drops what a producer repeats, is
silent until a processor_activated names its version, and turns conclusions into messages whose
ids follow from the input. Not here: reading, committing and restarting (streams/runner.py).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from nemesis.processors.emission import Emission, Mouth
from nemesis.processors.lives import Lives, copied, is_repeated
from nemesis.processors.processor import MALFORMED, NotInReleaseError, Processor
from nemesis.processors.window import Root, Roots, Windowed
from nemesis.schemas.errors import BadNameError, MalformedFactError, UnknownFactError
from nemesis.schemas.facts import (
    Conclusion,
    Fact,
    Record,
    SubjectParts,
    check_writer,
    decode_conclusion,
    decode_observation,
    observation_id,
    split_subject,
)
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import ProcessorActivated

LATE_NS: Final = 30_000_000_000  # a window over several nodes is closed by then


class Malformed(msgspec.Struct, frozen=True):
    """An observation that does not decode, for the intake."""

    subject: str
    payload: bytes
    error: str


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
    lives: Lives
    processor: bytes


class _RootedState(_State, array_like=True):
    """That of a fold whose processor has a window: what it has to read again begins here."""

    root: Root | None = None


_states: Final = msgspec.msgpack.Decoder(_RootedState)


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
        self.lacks = ""
        """What its settings name and this release does not have; it must not step any more."""
        self._mouth: Final = Mouth(processor.name)
        self._settings = b"{}"
        self._lives: Lives = {}
        self._windowed: Final = processor if isinstance(processor, Windowed) else None
        self._roots: Final = Roots()
        self._later: _RootedState | None = None
        """The state to take up when everything before it was read again."""
        self._wants_malformed: Final = MALFORMED in processor.reads
        self.heeds_malformed: Final = self._wants_malformed
        """Whether observations that do not decode may change it, whatever their token."""
        self._learn_reads()

    def _learn_reads(self) -> None:
        self._reads = frozenset(self.processor.reads)
        # what is neither the clock nor about the processor itself takes the short way
        special = {"tick", "processor_activated"}
        self._plain = frozenset() if self._wants_malformed else self._reads - special
        self.heeds = self._reads | special
        """Tokens of the records that change it; others may be left out, where none is skipped.
        An activation of it may change them."""

    @property
    def state_seq(self) -> int:
        """The input after which its state is, once what lies before is read again; or was."""
        return self.seq if self._later is None else self._later.seq

    def step(self, item: Input) -> list[Emission]:
        """Answer one record; records must come in order, gaps are allowed.

        Records up to `state_seq` are read again and answered by nothing that counts.
        Whatever the processor raises comes through: the state is then lost and must be restored.
        """
        seq = item.record.seq
        assert seq > self.seq, f"record {seq} after {self.seq}"
        assert self.superseded_by is None, f"superseded by version {self.superseded_by}"
        assert not self.lacks, self.lacks
        if self._later is not None and seq > self._later.seq:
            self._take_up(self._later)
        self.seq = seq
        token = item.token
        if token in self._plain and not (self.skips and seq in self.skips):
            if item.decoded() is None or is_repeated(self._lives, item.source, item.life):
                return []
            conclusions = self.processor.step(item.fact(self.log_time_ns))
            return self._emitted(seq, conclusions) if conclusions else []
        if seq in self.skips:
            return [self._mouth.skipped(seq, self.skips[seq], self.log_time_ns)]
        if token == "tick" and item.space == "telemetry":
            return self._on_tick(item) if self._advance_clock(item) else []
        if token == "processor_activated" and item.name == self.processor.name:
            self._activate(item)
            return []
        wants_errors = self._wants_malformed and item.space in ("telemetry", "unknown")
        if token not in self._reads and not wants_errors:
            return []
        if item.decoded() is None:
            return self._answer(self._malformed(item)) if wants_errors else []
        if token not in self._reads or is_repeated(self._lives, item.source, item.life):
            return []
        return self._answer(item.fact(self.log_time_ns))

    def _on_tick(self, item: Input) -> list[Emission]:
        if "tick" not in self._reads or is_repeated(self._lives, item.source, item.life):
            return []
        emissions = self._answer(item.fact(self.log_time_ns))
        if self._windowed is not None:
            self._keep_root()
        return emissions

    def configure(self, settings: bytes) -> None:
        """Take other settings than the log's; a window begins anew.

        Raises:
            MalformedFactError, NotInReleaseError: see Processor.configure.
        """
        self._settings = settings
        self._roots.clear()  # no window reaches back over an activation
        try:
            self.processor.configure(settings)
        finally:
            self._learn_reads()
            self._keep_root()

    def miss(self) -> None:
        """What lies between the last input and the next is not there: a window begins anew."""
        if self._windowed is not None:
            self._windowed.reroot(b"")

    def snapshot(self) -> bytes:
        """The whole state after `state_seq`, but for a window."""
        if self._later is not None:
            return msgspec.msgpack.encode(self._later)
        return msgspec.msgpack.encode(self._state(self._roots.first))

    def restore(self, snapshot: bytes) -> None:
        """Take up a state that `snapshot` made.

        Where its processor has a window, `seq` lies before `state_seq` and the records between
        are to be stepped first; those that are not there are missed.

        Raises:
            MalformedFactError: not a snapshot of a fold.
            NotInReleaseError: its settings name what is not here.
        """
        try:
            state = _states.decode(snapshot)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFactError(f"snapshot of {self.processor.name}: {error}") from error
        self.superseded_by, self._later = None, None
        self._roots.clear()
        self._settings = state.settings
        self.processor.configure(state.settings)
        self._learn_reads()
        root = state.root
        if root is None or self._windowed is None:
            self._take_up(state)
            self._keep_root()
            return
        self._windowed.reroot(root.processor)
        self._later, self.active = state, False
        self.seq, self.log_time_ns, self._lives = root.seq, root.log_time_ns, copied(root.lives)
        self._roots.keep(root, self._windowed.lookback_ns)

    def take_over(self) -> None:
        """Answer from here on: the state was restored from the version that handed over."""
        self.active = True

    def _state(self, root: Root | None) -> _State:
        made = _State if root is None else partial(_RootedState, root=root)
        return made(
            seq=self.seq,
            log_time_ns=self.log_time_ns,
            active=self.active,
            settings=self._settings,
            lives=self._lives,
            processor=self.processor.snapshot(),
        )

    def _take_up(self, state: _State) -> None:
        """What was to be read again was read."""
        self._later = None
        self.seq, self.log_time_ns = state.seq, state.log_time_ns
        self.active, self._lives = state.active, state.lives
        self.processor.restore(state.processor)

    def _keep_root(self) -> None:
        """Remember where a window may begin, where it is time and this is such a place."""
        lookback_ns = self._windowed.lookback_ns if self._windowed is not None else 0
        if self._windowed is None or not lookback_ns:
            return
        if self._roots.is_due(self.log_time_ns, lookback_ns):
            grown_from = self._windowed.root()
            if grown_from:
                root = Root(self.seq, self.log_time_ns, copied(self._lives), grown_from)
                self._roots.keep(root, lookback_ns)

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
        settings = bytes(activated.settings)
        if activated.version != self.processor.version:
            self._settings, self.active = settings, False
            self._roots.clear()
            self.superseded_by = activated.version
            return
        self.active = True
        try:
            self.configure(settings)
        except NotInReleaseError as error:
            self.lacks = f"{error.message}; {error.hint}"

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
        at_ns, says = self.log_time_ns, self._mouth.says
        return [says(seq, k, each, at_ns) for k, each in enumerate(conclusions)]

    def input_lost(self, seq: int, from_seq: int, to_seq: int) -> Emission:
        """What is said before input seq where those before it expired unread."""
        return self._mouth.input_lost(seq, from_seq, to_seq, self.log_time_ns)

    def undeliverable(self, seq: int, identity: str, refused: bytes, error: str) -> Emission:
        """What takes the place of a conclusion that the log can never hold."""
        return self._mouth.undeliverable(seq, identity, refused, error, self.log_time_ns)


def first_needed(state: bytes) -> int:
    """The first record that who restores this state of a fold must step, 0: any other than it."""
    try:
        root = _states.decode(state).root
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0  # whoever restores it says so
    return 0 if root is None else root.seq + 1


@lru_cache(maxsize=65_536)
def _split(subject: str) -> SubjectParts:
    return split_subject(subject)
