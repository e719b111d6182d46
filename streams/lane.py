"""One processor's way through one process: from the reader, through its fold, to the log.

A lane is silent until its version is activated, waits while another version answers, and hands over
when the log says so. It holds what belongs to one processor; reading, watching and leaving are the
runner's (streams/runner.py).
"""

import asyncio
import logging
from typing import Final, Literal

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.processor import NotInReleaseError, Processor
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, cursor_subject
from nemesis.schemas.kept import SnapshotTaken
from nemesis.streams.commit import Committer
from nemesis.streams.comparison import Comparison, Difference
from nemesis.streams.deaths import Deaths
from nemesis.streams.errors import LogUnavailableError, ShortenedError
from nemesis.streams.outbox import Outbox
from nemesis.streams.port import RunnerLog
from nemesis.streams.position import Position, position_of, read_snapshot
from nemesis.streams.survivors import read_standing
from nemesis.streams.watch import RETRY_S, Watch

SNAPSHOT_PERIOD_S: Final = 10.0
AHEAD_MAX: Final = 5_000  # conclusions that wait before stepping pauses

_log: Final = logging.getLogger(__name__)

Stage = Literal["waiting", "opened", "reading", "handing over"]
How = Literal["cold", "snapshot", "reread"]


class StepCrashedError(NemesisError):
    """A processor raised: its state is lost, the process ends and restores it."""


class StaleCopyError(NemesisError):
    """Another copy answered an input otherwise than this one, by skipping it or not: restore."""


class Lane:
    """A processor at work in this process."""

    def __init__(
        self,
        log: RunnerLog,
        processor: Processor,
        *,
        deaths: Deaths,
        watch: Watch,
        snapshot_period_s: float = SNAPSHOT_PERIOD_S,
    ) -> None:
        self.processor: Final = processor
        self.name: Final = processor.name
        self.label: Final = f"{processor.name}@{processor.version}"
        self.stage: Stage = "waiting"
        self.problem = ""
        """Why it waits although the log says that it must answer."""
        self.position = Position()
        self.differences: Final[list[Difference]] = []
        """Found and not yet announced."""
        self.how: How = "cold"
        self.state_from = 0
        self.log: Final = log
        self.deaths: Final = deaths
        self._snapshot_period_s: Final = snapshot_period_s
        self._watch: Final = watch
        self._cursor: Final = cursor_subject(processor.name)
        self._lost: tuple[int, int] | None = None
        """Sequences that expired before the next input."""
        self.missed_count = 0
        """Those that it had to read again and that had expired: what they said is not known."""
        self._skipped_seq = 0
        self._seen_count = -1
        self._start(Fold(processor), Position())

    @property
    def read_seq(self) -> int:
        """The last input that was stepped, once or again."""
        return self.fold.seq

    @property
    def is_reading_again(self) -> bool:
        """What lies before its state is being read again: it answers nothing yet."""
        return self.fold.seq < self.fold.state_seq

    @property
    def full(self) -> bool:
        """Stepping must pause until the log has taken what waits.

        A skip must be in the log before the next step, which may kill too: deaths are counted for
        one input only.
        """
        outbox = self.committer.outbox
        return len(outbox) > AHEAD_MAX or self._skipped_seq > outbox.position.in_seq

    async def open(self) -> bool:
        """Take up the state at the position; False while another version answers."""
        seen_count = self._watch.lost_count
        _, survivors = await read_standing(self.log, self.name)
        position, taken = await read_snapshot(self.log, self.log.states, self.name)
        self.position = position
        version = self.processor.version
        if position.exists and position.version != version:
            self.stage, self.problem = "waiting", ""
            return False
        if seen_count != self._watch.lost_count:
            raise LogUnavailableError(f"the connection broke while the state of {self.name} came")
        fold = Fold(self.processor, skips=survivors.skips)
        self.how = "reread" if position.exists else "cold"
        if taken is not None:
            if not self._restored(fold, taken):
                return False
            self.how = "snapshot"
            if taken.version != version:
                fold.take_over()
        self.state_from = fold.state_seq
        self._start(fold, position)
        self.committer.outbox.survived(survivors)
        self._seen_count = seen_count
        self.stage, self.problem = "opened", ""
        return True

    def begin(self) -> None:
        """From the next record on it is fed: a reader starts right behind its state."""
        if self.stage == "opened":
            self.stage = "reading"

    def lost(self, from_seq: int, to_seq: int) -> None:
        """These sequences expired before they were read, or read again."""
        fold = self.fold
        if self.stage != "reading" or not self.position.exists or to_seq <= fold.seq:
            return
        fold.miss()
        again = min(to_seq, fold.state_seq) - max(from_seq, fold.seq + 1) + 1
        self.missed_count += max(0, again)
        if to_seq > fold.state_seq:
            first = self._lost[0] if self._lost else max(from_seq, fold.state_seq + 1)
            self._lost = (first, to_seq)

    def feed(self, item: Input) -> bool:
        """Take one record that was read; whether something now waits to be written.

        Raises:
            StepCrashedError: the processor raised.
        """
        if self.stage != "reading":
            return False
        record = item.record
        if item.space == "cursor":
            if record.subject == self._cursor:
                self._passed(record)
            return False
        fold = self.fold
        if record.seq <= fold.seq:
            return False
        if record.seq <= fold.state_seq:
            self._step(fold, item)
            return False
        if item.space == "events" and (difference := self._comparison.passed(record)):
            self.differences.append(difference)
        was_active = fold.active
        emissions = self._step(fold, item)
        if self._lost is not None:
            emissions.insert(0, fold.input_lost(record.seq, *self._lost))
            self._lost = None
        return self._keep(fold, emissions, was_active=was_active)

    def observe(self, position: Position) -> None:
        """A new position is in force, written by this copy or another.

        Raises:
            StaleCopyError: it says that an input was skipped which this copy stepped, or answered
                which this copy skipped.
        """
        skipped, mine = position.skipped_seq, self._skipped_seq
        if skipped > self.position.skipped_seq and skipped not in self.fold.skips:
            raise StaleCopyError(f"{self.name}: another copy skipped input {skipped}")
        if skipped < mine and position.covers(mine, 0):
            raise StaleCopyError(f"{self.name}: another copy answered input {mine}")
        self.position = position
        lacks = self.fold.lacks if position.in_seq >= self.fold.seq else ""
        if position.version != self.processor.version or lacks:
            self.stage, self.problem = "waiting", lacks

    async def verified(self) -> None:
        """Return once it is the log that was read, and what it holds of this processor is known.

        Raises:
            ShortenedError: it is not the log that was read.
            StaleCopyError: it says that an input was skipped which this copy may have stepped,
                or answered which this copy skipped.
        """
        await self._watch.verified()
        while (seen_count := self._watch.lost_count) != self._seen_count:
            outbox = self.committer.outbox
            position = outbox.position
            try:
                record = await self.log.get(position.cursor_seq) if position.exists else None
                newest, survivors = await read_standing(self.log, self.name)
                last_seq = (await self.log.bounds()).last_seq
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)
                await self._watch.verified()
                continue
            there = record is not None and record.subject == self._cursor
            if position.exists and not (there and position_of(record) == position):
                raise ShortenedError(position.cursor_seq, last_seq)
            if outbox.survivors.input_seq > newest.in_seq and survivors < outbox.survivors:
                raise ShortenedError(outbox.survivors.seq, last_seq)
            if survivors.skips.keys() - self.fold.skips.keys():
                raise StaleCopyError(f"{self.name}: another copy skipped {[*survivors.skips]}")
            mine = self._skipped_seq
            if mine > newest.in_seq and survivors.covers(mine, 0) and mine not in survivors.skips:
                raise StaleCopyError(f"{self.name}: another copy answered input {mine}")
            self._seen_count = seen_count
            outbox.survived(survivors)
            self._moved_to(newest)

    def stand_in(self, refused: Emission, error: str) -> Emission:
        """What is written instead of a conclusion that the log refused for good."""
        fold = self.fold
        return fold.undeliverable(refused.input_seq, refused.id, refused.payload, error)

    def _restored(self, fold: Fold, taken: SnapshotTaken) -> bool:
        """Take up the state; one that this code cannot read is told once, and waited for.

        Ending would help nobody: the next copy of this release would read the same state.
        """
        try:
            fold.restore(taken.state)
        except Exception as error:  # a processor may raise anything on what it did not write
            problem = (
                f"{self.label} cannot read the state that version {taken.version} left at input"
                f" {taken.in_seq}, nobody answers: run a release whose version"
                f" {self.processor.version} can ({type(error).__name__})"
            )
            if isinstance(error, NotInReleaseError):
                problem = f"{error.message}; {error.hint}"
            if problem != self.problem:
                _log.error("%s: %s", problem, error)
            self.stage, self.problem = "waiting", problem
            return False
        return True

    def _start(self, fold: Fold, position: Position) -> None:
        self.fold = fold
        self._lost = None
        self.missed_count = 0
        self._skipped_seq = 0
        self._comparison = Comparison(self.name, fold.state_seq)
        self._snapshot_at = asyncio.get_running_loop().time()
        self.committer = Committer(
            self.log,
            Outbox(self.name, self.processor.version, position),
            verified=self.verified,
            observe=self.observe,
            undeliverable=self.stand_in,
        )

    def _doomed(self, record: Record) -> bool:
        """Whether this input killed again and again, and nobody answered it."""
        deaths = self.deaths
        answered = self.committer.outbox.written(record.seq, 0)
        return deaths.hopeless and deaths.of(record) and not answered

    def _step(self, fold: Fold, item: Input) -> list[Emission]:
        record, deaths = item.record, self.deaths
        seq = record.seq
        if seq == deaths.seq and self._doomed(record):
            fold.skips[seq] = deaths.error
        deaths.enter(record)
        try:
            emissions = fold.step(item)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            deaths.crashed(said)
            raise StepCrashedError(f"{self.name} crashed on input {seq}: {said}") from error
        deaths.leave()
        if seq == deaths.seq and seq not in fold.skips:
            deaths.forget()
        return emissions

    def _keep(self, fold: Fold, emissions: list[Emission], *, was_active: bool) -> bool:
        outbox = self.committer.outbox
        seq, time_ns = fold.seq, fold.log_time_ns
        added = False
        if emissions:
            self._comparison.expect(emissions)
            added = outbox.add(seq, time_ns, emissions)
        answers = was_active or self.position.exists
        hands_over = fold.superseded_by is not None
        begins = fold.active and not answers
        lacks = bool(fold.lacks)
        skipped = seq in fold.skips
        if skipped:
            self._skipped_seq = seq
        if begins or skipped or lacks or (hands_over and answers) or self._snapshot_due():
            self._snapshot_at = asyncio.get_running_loop().time()
            added |= outbox.add_state(
                seq,
                time_ns,
                fold.snapshot(),
                next_version=fold.superseded_by,
                skipped_seq=seq if skipped else 0,
            )
        outbox.stepped(seq, time_ns)
        self.committer.stepped(added=added)
        if hands_over:
            self.stage = "handing over" if answers else "waiting"
        elif lacks:
            self.stage = "handing over"
        return added

    def _snapshot_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self.position.exists and now - self._snapshot_at >= self._snapshot_period_s

    def _passed(self, record: Record) -> None:
        position = position_of(record)
        self.differences.extend(self._comparison.answered(position.in_seq))
        if position.snapshot:
            self._snapshot_at = asyncio.get_running_loop().time()
        self._moved_to(position)

    def _moved_to(self, position: Position) -> None:
        if self.committer.outbox.observe(position):
            self.committer.moved(mine=False)
            self.observe(position)
