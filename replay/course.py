"""One processor's way through a recording: fold, and compare with what the log says it concluded.

Every record passes in order. The fold's conclusions queue up; each recorded conclusion of this
processor must equal the head of the queue, and when its position says that an input is answered
nothing of it may be left in the queue. States are compared wherever the log holds their hash.
"""

import re
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal

import msgspec

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.processor import NotInReleaseError, Processor
from nemesis.replay.differences import FieldDifference, differing_fields
from nemesis.replay.recording import ProcessorPlan
from nemesis.schemas.envelope import Event, decode_event
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.kept import ConclusionUndeliverable, ProcessorAdvanced

MakeProcessor = Callable[[str, int], Processor]
"""(name, version) -> a processor in its empty state; raises a NemesisError if it is not here."""

_ID: Final = re.compile(r"(.+)/(\d+)/(\d+)\Z")
_BY_THE_RUNNER: Final = frozenset(
    {"processor_started", "input_lost", "processor_diverged", "log_shortened"}
)
_POSITION: Final = ""  # the token of a position: it has none
_NEVER_SEQ: Final = 2**63
_positions: Final = msgspec.msgpack.Decoder(ProcessorAdvanced)
_undeliverables: Final = msgspec.json.Decoder(ConclusionUndeliverable)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a processor's replay and the log say different things."""

    kind: Literal["content", "missing", "unexpected", "state", "crash"]
    """missing: replay draws it, the log does not have it; unexpected: the other way round."""
    seq: int
    """The input."""
    id: str = ""
    subject: str = ""
    recorded_seq: int = 0
    """Where the recorded one lies."""
    recorded: str = ""
    replayed: str = ""
    fields: list[FieldDifference] = []
    note: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """A conclusion as the log has it."""

    name: str
    input_seq: int
    k: int
    event: Event


def recorded_conclusion(item: Input) -> Recorded | None:
    """The conclusion in this record, or None where it holds none of a processor."""
    if item.space != "events" or item.token in _BY_THE_RUNNER:
        return None
    try:
        event = decode_event(item.record.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    match = _ID.match(event.id)
    if match is None or event.source != f"/processors/{match[1]}":
        return None
    return Recorded(match[1], int(match[2]), int(match[3]), event)


class Course:
    """Folds and compares one processor."""

    def __init__(self, plan: ProcessorPlan, state: bytes, make: MakeProcessor) -> None:
        """`state`: the bytes behind plan.start_sha256, empty for the empty state."""
        self.plan: Final = plan
        self.versions: Final[list[int]] = []
        self.difference: Difference | None = None
        """The first conclusion that differs; else, at the end, the first state that does."""
        self.equal_count = 0
        """Conclusions that are the same, byte for byte."""
        self.states_equal_count = 0
        self.unanswered_count = 0
        """Conclusions to inputs that lie above the last position in the recording."""
        self.unverified = ""
        """Why it, or the rest of it, could not be verified."""
        self._make: Final = make
        self._fold: Fold | None = None
        self._expected: Final[deque[Emission]] = deque()
        self._answered_seq = plan.start_seq
        self._state_difference: Difference | None = None
        self._states: Final = deque(sorted(plan.states))
        self._lost: Final = deque(sorted(plan.lost))
        self.heeds: frozenset[str] = frozenset()
        """Tokens of the records that must be stepped. Most of a log is samples, and most
        processors read none: what they pass over costs a look here and no more."""
        self.heeds_malformed = False
        """Whether observations that do not decode must be stepped too, whatever their token."""
        self.awaits_seq = 0
        """From here on every record must be stepped, whatever its token."""
        self._begin(state)
        self._look_ahead()

    @property
    def done(self) -> bool:
        """Nothing more to learn from records to come."""
        return self.difference is not None or bool(self.unverified)

    def step(self, item: Input, recorded: Recorded | None) -> None:
        """The next record; `recorded` is its conclusion if it holds one of this processor."""
        seq = item.record.seq
        if self.difference is not None or self.unverified:
            return
        if seq <= self.plan.start_seq:
            self._read_again(item)
            return
        if item.space == "cursor":
            if item.name == self.plan.name and not item.token:
                self._on_position(item)
            return  # no processor reads positions
        if recorded is not None and recorded.input_seq > self.plan.start_seq:
            self._compare(item, recorded)
            if self.difference is not None:
                return
        if self._lost and self._is_lost(seq):
            return
        fold = self._fold
        assert fold is not None
        try:
            emissions = fold.step(item)
        except Exception as error:  # whatever a processor raises is what replay has to tell
            self._crashed(seq, error)
            return
        activated = item.token == "processor_activated"
        if emissions or self._states or activated:
            self._go_on(fold, emissions)

    def finish(self) -> None:
        """The recording is at its end."""
        if not self.done:
            self._nothing_left_up_to(self._answered_seq)
            self.unanswered_count = len(self._expected)
        self.difference = found = self.difference or self._state_difference
        if found is not None and any(seq <= found.seq for seq in self.plan.rereads):
            note = "a copy had lost its state before and read again what was left of the log"
            self.difference = msgspec.structs.replace(
                found, note=f"{found.note}; {note}".lstrip("; ")
            )

    def _read_again(self, item: Input) -> None:
        """What lies before the state to start from matters to a window alone."""
        fold, seq = self._fold, item.record.seq
        if fold is None or seq <= fold.seq or item.space == "cursor":
            return
        if not (self._lost and self._is_lost(seq)):
            fold.step(item)

    def _begin(self, state: bytes) -> None:
        plan = self.plan
        if not plan.startable:
            self.unverified = "the recording holds neither the log's beginning nor a state of it"
            return
        if plan.start_version == 0:
            self.unverified = "no version of it was ever activated"
            return
        fold = self._new_fold(plan.start_version)
        if fold is None:
            return
        if plan.start_sha256:
            try:
                fold.restore(state)
            except NotInReleaseError as error:
                self.unverified = f"{error.message}; {error.hint}"
                return
            except Exception as error:  # a processor may raise anything on what it did not write
                self.unverified = f"its state does not restore: {error}"
                return
            if plan.start_handed_over:
                fold.take_over()
        self._fold = fold

    def _new_fold(self, version: int) -> Fold | None:
        try:
            processor = self._make(self.plan.name, version)
        except NemesisError as error:
            self.unverified = f"{error.message}; {error.hint}" if error.hint else error.message
            return None
        self.versions.append(version)
        return Fold(processor, skips=self.plan.skips)

    def _is_lost(self, seq: int) -> bool:
        while self._lost and self._lost[0][1] < seq:
            self._lost.popleft()
            if self._fold is not None:
                self._fold.miss()
        return bool(self._lost) and self._lost[0][0] <= seq

    def _go_on(self, fold: Fold, emissions: list[Emission]) -> None:
        self._expected.extend(emissions)
        if self._states:
            self._compare_state(fold)
        if fold.lacks:
            self.unverified = fold.lacks
        elif fold.superseded_by is not None:
            self._hand_over(fold, fold.superseded_by)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """What must be stepped next."""
        fold = self._fold
        self.heeds = frozenset({_POSITION}) if fold is None else fold.heeds | {_POSITION}
        self.heeds_malformed = fold is not None and fold.heeds_malformed
        if fold is None or fold.skips:
            self.awaits_seq = 0
        else:
            self.awaits_seq = self._states[0][0] if self._states else _NEVER_SEQ

    def _crashed(self, seq: int, error: Exception) -> None:
        if seq > self.plan.answered_seq:
            self.unverified = f"its step crashes on input {seq}, which nobody had answered yet"
            return
        self.difference = Difference(
            kind="crash",
            seq=seq,
            replayed=f"{type(error).__name__}: {error}",
            note="the live copy answered this input, and no fact says that it was skipped",
        )

    def _hand_over(self, old: Fold, version: int) -> None:
        """An upgrade: the new version goes on from the old one's state, as the runner does."""
        new = self._new_fold(version)
        if new is None:
            return
        new.restore(old.snapshot())
        new.take_over()
        self._fold = new

    def _compare_state(self, fold: Fold) -> None:
        while self._states and self._states[0][0] <= fold.seq:
            at, recorded = self._states.popleft()
            if at < fold.seq:
                continue  # that input is not in the recording, nor can its state be
            mine = sha256(fold.snapshot()).hexdigest()
            if mine == recorded:
                self.states_equal_count += 1
                continue
            self._state_difference = self._state_difference or Difference(
                kind="state",
                seq=at,
                recorded=f"sha256 {recorded}",
                replayed=f"sha256 {mine}",
                note="conclusions were equal: state is kept differently, which needs a new version",
            )

    def _compare(self, item: Input, recorded: Recorded) -> None:
        place = (recorded.input_seq, recorded.k)
        head = self._expected[0] if self._expected else None
        if head is None or place < _place(head):
            self.difference = Difference(
                kind="unexpected",
                seq=recorded.input_seq,
                id=recorded.event.id,
                subject=item.record.subject,
                recorded_seq=item.record.seq,
                recorded=_text(item.record.payload),
                replayed="replay draws no such conclusion from this input",
            )
            return
        if place > _place(head):
            self._missing(head, f"the log goes on with {recorded.event.id}")
            return
        self._expected.popleft()
        same = head.subject == item.record.subject and head.payload == item.record.payload
        if same or _undelivered(item, recorded, head):
            self.equal_count += 1
            return
        fields = differing_fields(item.record.payload, head.payload)
        if head.subject != item.record.subject:
            fields.insert(0, FieldDifference("(subject)", item.record.subject, head.subject))
        self.difference = Difference(
            kind="content",
            seq=recorded.input_seq,
            id=recorded.event.id,
            subject=item.record.subject,
            recorded_seq=item.record.seq,
            recorded=_text(item.record.payload),
            replayed=_text(head.payload),
            fields=fields,
        )

    def _on_position(self, item: Input) -> None:
        try:
            position = _positions.decode(item.record.payload)
        except msgspec.DecodeError:
            return
        self._answered_seq = max(self._answered_seq, position.in_seq)
        self._nothing_left_up_to(position.in_seq)

    def _nothing_left_up_to(self, answered_seq: int) -> None:
        if self._expected and self._expected[0].input_seq <= answered_seq:
            self._missing(
                self._expected[0], f"its position says that input {answered_seq} is answered"
            )

    def _missing(self, head: Emission, note: str) -> None:
        self.difference = Difference(
            kind="missing",
            seq=head.input_seq,
            id=head.id,
            subject=head.subject,
            recorded="the log holds no such conclusion",
            replayed=_text(head.payload),
            note=note,
        )


def _place(emission: Emission) -> tuple[int, int]:
    return emission.input_seq, int(emission.id.rpartition("/")[2])


def _undelivered(item: Input, recorded: Recorded, mine: Emission) -> bool:
    """The log refused for good what replay draws, and the fact in its place says so."""
    if item.token != "conclusion_undeliverable":
        return False
    try:
        refused = _undeliverables.decode(recorded.event.data).sha256
    except msgspec.DecodeError:
        return False
    data = bytes(decode_event(mine.payload).data)
    return refused in (sha256(mine.payload).hexdigest(), sha256(data).hexdigest())


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "backslashreplace")
