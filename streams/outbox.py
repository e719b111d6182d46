"""What a processor has concluded and the log does not hold yet: a queue cut into batches.

Why: stepping runs ahead of the log's acknowledgement, and two copies step the same inputs. How:
conclusions wait in the order of their inputs; whatever a position covers is dropped, whoever wrote
it; a batch takes whole inputs up to a limit and ends with the position it leads to. An input
with more conclusions than fit is cut, and the position counts how many of it are written.
Not here: when to write, and writing (streams/commit.py).
"""

from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from nemesis.processors.emission import Emission
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import cursor_subject, snapshot_subject
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.streams.batch import Message
from nemesis.streams.position import SNAPSHOT_IN_LOG_BYTES_MAX, Position, encode
from nemesis.streams.survivors import Survivors

BATCH_CONCLUSIONS_MAX: Final = 898  # with snapshot and position 900, below the server's 1,000
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024


class PositionRegressedError(NemesisError):
    """The log's position lies before what was seen of it: the log was rolled back."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One conclusion and its place among those of its input."""

    seq: int
    k: int
    last: bool
    log_time_ns: int
    emission: Emission


class State(msgspec.Struct, frozen=True, gc=False):
    """The state after an input, to be written with the position at that input."""

    seq: int
    log_time_ns: int
    state: bytes
    sha256: str
    next_version: int
    """The version that answers the next input: another one where this version hands over."""
    skipped_seq: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is written at once; its last message is the position."""

    messages: list[Message]
    advanced: ProcessorAdvanced
    conclusions_count: int
    state: State | None
    """A state too large for the log: to be stored before the batch is written."""


class Outbox:
    """The conclusions of one processor on their way to the log."""

    def __init__(self, name: str, version: int, position: Position) -> None:
        self.name: Final = name
        self.version: Final = version
        self.position = position
        self.survivors = Survivors()
        """Conclusions that are in the log behind the position."""
        self.stepped_seq = position.in_seq
        self.urgent = False
        """Something that waits should be written at once."""
        self.conclusions_max = BATCH_CONCLUSIONS_MAX
        self._stepped_time_ns = position.log_time_ns
        self._waiting: deque[Answer | State] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def stepped(self, seq: int, log_time_ns: int) -> None:
        """An input was stepped; call after adding what it concluded."""
        self.stepped_seq = seq
        self._stepped_time_ns = log_time_ns

    def add(self, seq: int, log_time_ns: int, emissions: Sequence[Emission]) -> bool:
        """Take the conclusions of one input; whether any of them still has to be written."""
        last_k = len(emissions) - 1
        before = len(self._waiting)
        for k, emission in enumerate(emissions):
            if not self.written(seq, k):
                self._waiting.append(Answer(seq, k, k == last_k, log_time_ns, emission))
                self.urgent = self.urgent or emission.urgent
        return len(self._waiting) > before

    def add_state(
        self,
        seq: int,
        log_time_ns: int,
        state: bytes,
        *,
        next_version: int | None = None,
        skipped_seq: int = 0,
    ) -> bool:
        """Take the state after the input just added; whether it still has to be written."""
        if self._state_behind(seq):
            return False
        version = self.version if next_version is None else next_version
        digest = sha256(state).hexdigest()
        self._waiting.append(State(seq, log_time_ns, state, digest, version, skipped_seq))
        return True

    def observe(self, position: Position) -> bool:
        """Take note of a position that somebody wrote; whether it is news.

        Raises:
            PositionRegressedError: it lies before one that was seen earlier in the log.
        """
        if position.cursor_seq <= self.position.cursor_seq:
            return False
        if position.in_seq < self.position.in_seq:
            raise PositionRegressedError(
                f"the position of {self.name} went back from {self.position.in_seq}"
                f" to {position.in_seq}"
            )
        self.position = position
        while self._waiting and self._behind(self._waiting[0]):
            self._waiting.popleft()
        self._note_urgent()
        return True

    def survived(self, survivors: Survivors) -> None:
        """Take note of what lies in the log without a position."""
        self.survivors = survivors
        self._waiting = deque(item for item in self._waiting if not self._behind(item))
        self._note_urgent()

    @property
    def held(self) -> bool:
        """Nothing may be written yet: a position must lie behind all that it covers."""
        return self.stepped_seq < self.survivors.input_seq

    def written(self, seq: int, k: int) -> bool:
        """Whether conclusion k of an input is in the log."""
        return self.position.covers(seq, k) or self.survivors.covers(seq, k)

    def replace_first(self, emission: Emission) -> None:
        """Put something else in the place of the first conclusion that waits."""
        first = self._waiting[0]
        assert isinstance(first, Answer)
        self._waiting[0] = msgspec.structs.replace(first, emission=emission)

    def first(self) -> Emission | None:
        """The conclusion that is written next."""
        return next((item.emission for item in self._waiting if isinstance(item, Answer)), None)

    def next_batch(self) -> Batch | None:
        """What to write now; None where the position already says all there is to say."""
        if self.held:
            return None
        answers, state, cut = self._take()
        if not answers and state is None and self.stepped_seq <= self.position.in_seq:
            return None
        advanced = self._advanced(answers, state, cut)
        messages = [
            Message(subject=each.emission.subject, payload=each.emission.payload)
            for each in answers
        ]
        large = None
        if state is not None:
            inside = len(state.state) <= SNAPSHOT_IN_LOG_BYTES_MAX
            large = None if inside else state
            taken = SnapshotTaken(
                in_seq=state.seq,
                log_time_ns=state.log_time_ns,
                version=self.version,
                sha256=state.sha256,
                size_bytes=len(state.state),
                state=state.state if inside else b"",
            )
            messages.append(Message(subject=snapshot_subject(self.name), payload=encode(taken)))
        messages.append(
            Message(
                subject=cursor_subject(self.name),
                payload=encode(advanced),
                expected_last_subject_seq=self.position.cursor_seq,
            )
        )
        return Batch(
            messages=messages, advanced=advanced, conclusions_count=len(answers), state=large
        )

    def _note_urgent(self) -> None:
        self.urgent = any(isinstance(i, Answer) and i.emission.urgent for i in self._waiting)

    def _behind(self, item: Answer | State) -> bool:
        if isinstance(item, State):
            return self._state_behind(item.seq)
        return self.written(item.seq, item.k)

    def _state_behind(self, seq: int) -> bool:
        """Whether a position at this input comes too late."""
        return seq <= self.position.in_seq or seq < self.survivors.input_seq

    def _take(self) -> tuple[list[Answer], State | None, Answer | None]:
        """(conclusions, state) of the next batch, and the first conclusion that did not fit."""
        answers: list[Answer] = []
        whole = 0  # conclusions up to the end of the last input that fits as a whole
        size_bytes = 0
        for item in self._waiting:
            if isinstance(item, State):
                return answers, item, None
            size_bytes += len(item.emission.payload)
            full = len(answers) >= self.conclusions_max or size_bytes > BATCH_BYTES_MAX
            if full and answers:
                if whole:
                    after = answers[whole] if whole < len(answers) else item
                    return answers[:whole], None, after
                return answers, None, item
            answers.append(item)
            if item.last:
                whole = len(answers)
        return answers, None, None

    def _advanced(
        self, answers: list[Answer], state: State | None, cut: Answer | None
    ) -> ProcessorAdvanced:
        skipped_seq = self.position.skipped_seq
        if state is not None:
            return ProcessorAdvanced(
                in_seq=state.seq,
                log_time_ns=state.log_time_ns,
                version=state.next_version,
                snapshot=True,
                skipped_seq=max(skipped_seq, state.skipped_seq),
            )
        if cut is None:
            in_seq, log_time_ns, written = self.stepped_seq, self._stepped_time_ns, 0
        else:
            in_seq, log_time_ns, written = cut.seq - 1, answers[-1].log_time_ns, cut.k
        return ProcessorAdvanced(
            in_seq=in_seq,
            log_time_ns=log_time_ns,
            version=self.version,
            written=written,
            skipped_seq=skipped_seq,
        )
