"""Promises of the committer: at once, then in groups; refused, it reads; unanswered, it repeats."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from nemesis.processors.emission import Emission
from nemesis.schemas.facts import Record
from nemesis.schemas.kept import ProcessorAdvanced
from nemesis.streams.batch import Message
from nemesis.streams.commit import (
    COMMIT_PERIOD_S,
    COMMITS_PER_SECOND_MAX,
    CONTRADICTIONS_MAX,
    FULL_RETRY_S,
    IDLE_INPUTS,
    IDLE_PERIOD_S,
    RETRY_S,
    STANDBY_HOLD_S,
    Committer,
    LogContradictionError,
)
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    ShortenedError,
    UndeliverableError,
)
from nemesis.streams.outbox import BATCH_CONCLUSIONS_MAX, Outbox
from nemesis.streams.position import SNAPSHOT_IN_LOG_BYTES_MAX, Position, encode, position_of
from nemesis.streams.survivors import Survivors
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.virtual_time import run

NAME = "counting"
CURSOR = "nemesis.cursor.counting"


class Desk(MemoryClient):
    """A connection that answers at once, unless an error is put in the way of the next commits."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, Faults(0, delay_s=0))
        self.log = log
        self.errors: list[Exception | None] = []
        self.tries: list[tuple[float, int]] = []
        """When a commit was tried, with how many messages."""
        self.reads = 0
        self.unread: list[Exception] = []
        self.stored: Callable[[], None] = lambda: None
        """Happens between a batch and its answer."""

    async def commit(self, messages: Sequence[Message]) -> int:
        self.tries.append((asyncio.get_running_loop().time(), len(messages)))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        seq = self.log.append(*messages)
        self.stored()
        return seq

    async def last(self, subject: str, *, up_to_seq: int = 0) -> Record | None:
        self.reads += 1
        if self.unread:
            raise self.unread.pop(0)
        return self.log.last(subject, up_to_seq)


class Copy:
    """A committer with its outbox and connection, and what it was told."""

    def __init__(self, log: MemoryLog, position: Position) -> None:
        self.desk = Desk(log)
        self.outbox = Outbox(NAME, 1, position)
        self.seen: list[Position] = []
        self.refused: list[tuple[str, str]] = []
        self.verified: list[int] = []
        """How many commits had been tried each time that the log was asked for."""
        self.committer = Committer(
            self.desk,
            self.outbox,
            verified=self._verify,
            observe=self.seen.append,
            undeliverable=self._stand_in,
        )
        self.doubt: tuple[int, Exception] | None = None
        """The log proves to be another one after so many reads."""

    async def _verify(self) -> None:
        self.verified.append(len(self.desk.tries))
        await asyncio.sleep(0)
        if self.doubt is not None and self.desk.reads == self.doubt[0]:
            raise self.doubt[1]

    def _stand_in(self, refused: Emission, error: str) -> Emission:
        self.refused.append((refused.id, error))
        return said(refused.input_seq, payload=b"stand-in")

    def step(self, seq: int, count: int = 1, *, urgent: bool = False) -> None:
        added = self.outbox.add(seq, seq, [said(seq, k, urgent=urgent) for k in range(count)])
        self.outbox.stepped(seq, seq)
        self.committer.stepped(added=added)

    @property
    def times(self) -> list[float]:
        return [round(at, 3) for at, _ in self.desk.tries]

    @property
    def sizes(self) -> list[int]:
        return [size for _, size in self.desk.tries]


def said(seq: int, k: int = 0, *, urgent: bool = False, payload: bytes = b"{}") -> Emission:
    return Emission(seq, f"nemesis.events.note_added.n{k}", payload, f"{NAME}/{seq}/{k}", urgent)


def play(
    story: Callable[[Copy], Awaitable[None]],
    *,
    begun: bool = True,
    runs: bool = True,
    standby: bool = False,
) -> None:
    """Run a story about a committer at work; `begun`: the log knows a position at input 0."""

    async def main() -> None:
        log = MemoryLog()
        position = Position()
        if begun:
            began = ProcessorAdvanced(in_seq=0, log_time_ns=0, version=1)
            log.append(Message(subject=CURSOR, payload=encode(began)))
            position = Position(cursor_seq=1, version=1)
        copy = Copy(log, position)
        assert (copy.committer.standby, copy.committer.full) == (True, False)
        copy.committer.standby = standby
        work = asyncio.ensure_future(copy.committer.run()) if runs else None
        await asyncio.sleep(0)
        await story(copy)
        if work is not None:
            if work.done():
                await work
            work.cancel()

    run(main())


def in_log(copy: Copy) -> Position:
    return position_of(copy.desk.log.last(CURSOR))


def test_the_first_conclusion_is_written_at_once_and_those_behind_it_together() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        await asyncio.sleep(0.001)
        for seq in range(2, 12):
            copy.step(seq)
        await asyncio.sleep(1)
        assert copy.times == [0, COMMIT_PERIOD_S]
        assert copy.sizes == [2, 11]
        assert copy.seen == [copy.seen[0], copy.outbox.position] == [copy.seen[0], in_log(copy)]
        assert in_log(copy).in_seq == 11
        assert copy.committer.commits_count == 2
        assert copy.verified == [0, 1]

    play(story)


def test_an_urgent_conclusion_waits_for_no_group() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        await asyncio.sleep(0.01)
        copy.step(2)
        await asyncio.sleep(0.01)
        copy.step(3, urgent=True)
        await asyncio.sleep(1)
        assert (copy.times, copy.sizes) == ([0, 0.02], [2, 3])

    play(story)


def test_not_even_urgent_ones_are_written_more_than_twenty_times_a_second() -> None:
    async def story(copy: Copy) -> None:
        for seq in range(1, 41):
            copy.step(seq, urgent=True)
            await asyncio.sleep(0.01)
        await asyncio.sleep(3)
        assert copy.times[:20] == [round(at / 100, 3) for at in range(COMMITS_PER_SECOND_MAX)]
        assert copy.times[20:] == [1.0]
        assert sum(copy.sizes) == 40 + 21

    play(story)


def test_the_twenty_of_a_second_are_counted_at_every_moment() -> None:
    async def story(copy: Copy) -> None:
        for seq in range(1, 22):
            copy.step(seq, urgent=True)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.795)
        copy.step(22, urgent=True)
        await asyncio.sleep(1)
        assert copy.times[20:] == [1.0, 1.01]

    play(story)


def test_inputs_without_a_conclusion_move_the_position_once_a_second() -> None:
    async def story(copy: Copy) -> None:
        await asyncio.sleep(5)
        copy.step(1, 0)
        copy.step(2, 0)
        await asyncio.sleep(0.5)
        copy.step(3, 0)
        await asyncio.sleep(0.4)
        assert copy.times == [5]
        copy.step(4, 0)
        await asyncio.sleep(5)
        assert copy.times == [5, 6]
        assert in_log(copy).in_seq == 4

    play(story)


def test_many_inputs_without_a_conclusion_move_the_position_sooner() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        await asyncio.sleep(0.2)
        for seq in range(2, IDLE_INPUTS + 1):
            copy.step(seq, 0)
        await asyncio.sleep(0.2)
        assert copy.times == [0]
        copy.step(IDLE_INPUTS + 1, 0)
        await asyncio.sleep(0.2)
        assert copy.times == [0, 0.4]
        assert in_log(copy).in_seq == IDLE_INPUTS + 1

    play(story)


def test_many_inputs_right_after_a_conclusion_wait_for_the_next_group() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        await asyncio.sleep(0.01)
        for seq in range(2, IDLE_INPUTS + 2):
            copy.step(seq, 0)
        await asyncio.sleep(0.2)
        assert copy.times == [0, COMMIT_PERIOD_S]

    play(story)


def test_a_position_alone_waits_also_where_its_conclusions_proved_to_be_written() -> None:
    async def story(copy: Copy) -> None:
        copy.committer.standby = True
        copy.step(1)
        copy.outbox.survived(Survivors(input_seq=1, count=1, seq=2))
        await asyncio.sleep(5)
        assert copy.times == [IDLE_PERIOD_S + STANDBY_HOLD_S]
        assert (copy.sizes, in_log(copy).in_seq) == ([1], 1)

    play(story)


def test_a_processor_without_a_position_writes_none_before_its_first_conclusion() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1, 0)
        await asyncio.sleep(10)
        assert copy.times == []
        copy.step(2)
        await asyncio.sleep(1)
        assert copy.times == [10]
        assert in_log(copy).in_seq == 2

    play(story, begun=False)


def test_a_standby_copy_holds_back_and_writes_what_the_other_one_did_not() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        await asyncio.sleep(STANDBY_HOLD_S - 0.01)
        assert copy.times == []
        await asyncio.sleep(0.02)
        assert copy.times == [STANDBY_HOLD_S]
        assert not copy.committer.standby
        copy.step(2)
        await asyncio.sleep(0.06)
        assert copy.times[1:] == [STANDBY_HOLD_S + COMMIT_PERIOD_S]

    play(story, standby=True)


def test_a_standby_copy_holds_back_for_what_waits_longest() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1, 0)
        await asyncio.sleep(0.2)
        copy.step(2)
        await asyncio.sleep(0.1)
        copy.step(3)
        await asyncio.sleep(1)
        assert (copy.times, copy.sizes) == ([round(0.2 + STANDBY_HOLD_S, 3)], [3])

    play(story, standby=True)


def test_what_is_concluded_after_another_copy_wrote_is_held_back_for_as_long() -> None:
    async def story(copy: Copy) -> None:
        copy.committer.moved(mine=False)
        await asyncio.sleep(0.2)
        copy.step(1)
        await asyncio.sleep(1)
        assert copy.times == [round(0.2 + STANDBY_HOLD_S, 3)]

    play(story)


def test_a_copy_that_sees_another_one_write_becomes_standby() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        copy.step(2)
        copy.outbox.observe(Position(cursor_seq=2, in_seq=1, version=1))
        copy.committer.moved(mine=False)
        assert copy.committer.standby
        await asyncio.sleep(STANDBY_HOLD_S - 0.01)
        assert copy.times == []

    play(story)


def test_a_standby_copy_moves_the_position_later_than_the_copy_that_writes() -> None:
    async def story(copy: Copy) -> None:
        copy.committer.standby = True
        await asyncio.sleep(5)
        copy.committer.moved(mine=False)
        copy.step(1, 0)
        await asyncio.sleep(5)
        assert copy.times == [5 + IDLE_PERIOD_S + STANDBY_HOLD_S]

    play(story)


def test_a_refusal_is_read_and_what_another_copy_wrote_is_not_written_again() -> None:
    async def story(copy: Copy) -> None:
        theirs = Outbox(NAME, 1, copy.outbox.position)
        theirs.add(1, 1, [said(1)])
        theirs.stepped(1, 1)
        batch = theirs.next_batch()
        assert batch is not None
        copy.desk.log.append(*batch.messages)
        copy.step(1)
        copy.step(2)
        await asyncio.sleep(0.2)
        assert (copy.desk.reads, copy.sizes) == (1, [3])
        assert copy.committer.refused_count == 1
        assert copy.committer.standby
        assert copy.seen == [in_log(copy)]
        await asyncio.sleep(1)
        assert copy.times == [0, STANDBY_HOLD_S]
        assert copy.sizes == [3, 2]
        assert in_log(copy).in_seq == 2
        assert not copy.committer.standby

    play(story)


def test_a_position_read_after_a_refusal_counts_only_in_the_log_that_was_read() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.append(*prefilled())
        copy.step(2)
        copy.doubt = (1, ShortenedError(9, 2))
        with pytest.raises(ShortenedError):
            await copy.committer.flush()
        assert (copy.sizes, copy.seen, copy.outbox.position.in_seq) == ([2], [], 0)

    play(story, runs=False)


def test_an_answer_that_was_lost_is_found_by_asking_again() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)
        copy.desk.errors = [LogUnavailableError("no answer")]
        batch = copy.outbox.next_batch()
        assert batch is not None
        await asyncio.sleep(0)
        copy.desk.log.append(*batch.messages)  # it had been stored
        await asyncio.sleep(1)
        assert copy.times == [0, RETRY_S]
        assert copy.desk.reads == 1
        assert copy.seen == [in_log(copy)]
        assert len(copy.outbox) == 0

    play(story)


def test_a_log_that_is_away_gets_the_same_again_until_it_answers() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.errors = [LogUnavailableError("away")] * 3
        copy.step(1)
        await asyncio.sleep(1)
        assert copy.times == [0, 0.05, 0.1, 0.15]
        assert copy.sizes == [2] * 4
        assert copy.committer.commits_count == 1

    play(story)


def test_a_full_log_is_said_and_tried_again_each_second() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.errors = [LogFullError("full")] * 2
        copy.step(1)
        await asyncio.sleep(FULL_RETRY_S * 1.5)
        assert copy.committer.full
        assert copy.times == [0, 1]
        await asyncio.sleep(1)
        assert copy.times == [0, 1, 2]
        assert not copy.committer.full

    play(story)


def test_a_refusal_that_the_log_does_not_explain_ends_the_copy() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.errors = [PositionMovedError("no")] * 100
        copy.desk.log.append(*prefilled())
        copy.step(1)
        copy.outbox.position = Position(cursor_seq=2, version=1)
        with pytest.raises(
            LogContradictionError,
            match=r"^the log refuses the position of counting after 2 and shows 2$",
        ):
            await copy.committer.run()
        assert copy.committer.refused_count == CONTRADICTIONS_MAX + 1
        assert copy.times[1] - copy.times[0] >= RETRY_S

    play(story, runs=False)


def prefilled() -> list[Message]:
    box = Outbox(NAME, 1, Position(cursor_seq=1, version=1))
    box.stepped(1, 1)
    batch = box.next_batch()
    assert batch is not None
    return batch.messages


def test_refusals_count_only_while_nothing_else_happens() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.append(*prefilled())
        copy.outbox.position = Position(cursor_seq=2, version=1)
        for seq in range(1, 4):
            copy.desk.errors = [PositionMovedError("no")] * CONTRADICTIONS_MAX
            copy.step(seq)
            await copy.committer.flush()
        assert copy.committer.commits_count == 3
        assert copy.committer.refused_count == 3 * CONTRADICTIONS_MAX
        assert copy.times[:3] == [0, RETRY_S, 2 * RETRY_S]

    play(story, runs=False)


def test_a_position_that_moved_explains_the_refusals_before_it() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.append(*prefilled())
        copy.outbox.position = Position(cursor_seq=2, version=1)
        copy.step(3)
        copy.desk.errors = [PositionMovedError("no")] * (2 * CONTRADICTIONS_MAX + 1)
        flushing = asyncio.ensure_future(copy.committer.flush())
        await asyncio.sleep((CONTRADICTIONS_MAX - 0.5) * RETRY_S)
        assert copy.committer.refused_count == CONTRADICTIONS_MAX
        moved = ProcessorAdvanced(in_seq=2, log_time_ns=0, version=1)
        copy.desk.log.append(Message(subject=CURSOR, payload=encode(moved)))
        await flushing
        assert copy.committer.commits_count == 1

    play(story, runs=False)


def test_a_position_that_cannot_be_read_after_a_refusal_is_asked_for_later() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.append(*prefilled())
        copy.desk.unread = [LogUnavailableError("away")] * 2
        copy.step(1)
        copy.step(2)
        await copy.committer.flush()
        assert copy.times == [0, RETRY_S, 2 * RETRY_S, 2 * RETRY_S]
        assert copy.desk.reads == 3
        assert in_log(copy).in_seq == 2

    play(story, runs=False)


def test_a_conclusion_that_the_log_refuses_is_isolated_and_replaced() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.refuses = lambda message: (
            message.payload == b"{}" and (message.subject.endswith(".n5"))
        )
        copy.step(1, 9)
        await copy.committer.flush()
        assert copy.refused == [("counting/1/5", "nemesis.events.note_added.n5 is refused")]
        said_last = [each.payload for each in copy.desk.log.records if ".n" in each.subject]
        assert said_last == [b"{}"] * 5 + [b"stand-in"] + [b"{}"] * 3

    play(story, runs=False)


def test_after_a_refusal_batches_grow_again_as_they_are_taken() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.errors = [UndeliverableError("too much")]
        copy.step(1, 9)
        await copy.committer.flush()
        assert copy.sizes == [10, 5, 6]
        assert copy.outbox.conclusions_max == 16
        for seq in range(2, 12):
            copy.step(seq)
            await copy.committer.flush()
        assert copy.outbox.conclusions_max == BATCH_CONCLUSIONS_MAX

    play(story, runs=False)


def test_a_stand_in_that_is_refused_too_ends_the_copy() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.log.refuses = lambda message: message.subject.startswith("nemesis.events.")
        copy.step(1)
        with pytest.raises(UndeliverableError, match=r"note_added\.n0 is refused"):
            await copy.committer.flush()
        assert copy.refused[-1] == ("counting/1/0", "nemesis.events.note_added.n0 is refused")

    play(story, runs=False)


def test_a_position_that_the_log_refuses_ends_the_copy() -> None:
    async def story(copy: Copy) -> None:
        copy.desk.errors = [UndeliverableError("not yours")]
        copy.step(1, 0)
        with pytest.raises(UndeliverableError, match="not yours"):
            await copy.committer.flush()

    play(story, runs=False)


def test_a_state_that_the_log_refuses_ends_the_copy_and_blames_no_conclusion() -> None:
    async def story(copy: Copy) -> None:
        copy.outbox.add_state(1, 1, b"state")
        copy.step(2)
        copy.desk.errors = [UndeliverableError("not yours")]
        with pytest.raises(UndeliverableError, match="not yours"):
            await copy.committer.flush()
        assert copy.refused == []

    play(story, runs=False)


def test_a_large_state_is_stored_before_the_batch_that_names_it() -> None:
    async def story(copy: Copy) -> None:
        state = b"x" * (SNAPSHOT_IN_LOG_BYTES_MAX + 1)
        copy.outbox.add_state(1, 1, state)
        copy.outbox.stepped(1, 1)
        copy.desk.errors = [LogUnavailableError("away")]
        assert copy.desk.log.states == {}
        await copy.committer.flush()
        assert list(copy.desk.log.states.values()) == [state]

    play(story, runs=False)


def test_a_small_state_is_not_stored_twice() -> None:
    async def story(copy: Copy) -> None:
        copy.outbox.add_state(1, 1, b"small")
        copy.outbox.stepped(1, 1)
        await copy.committer.flush()
        assert copy.desk.log.states == {}
        assert in_log(copy).snapshot

    play(story, runs=False)


def test_a_batch_that_passed_by_before_its_answer_makes_nobody_standby() -> None:
    async def story(copy: Copy) -> None:
        copy.committer.standby = True
        copy.step(1)

        def passes_by() -> None:
            copy.outbox.observe(in_log(copy))
            copy.committer.moved(mine=False)
            assert copy.committer.standby

        copy.desk.stored = passes_by
        await copy.committer.flush()
        assert not copy.committer.standby
        assert copy.committer.commits_count == 1

    play(story, runs=False)


def test_a_copy_stays_in_charge_if_its_batch_passed_by_and_the_answer_was_lost() -> None:
    async def story(copy: Copy) -> None:
        copy.step(1)

        def passes_by() -> None:
            copy.outbox.observe(in_log(copy))
            copy.committer.moved(mine=False)
            raise LogUnavailableError("the answer is lost")

        copy.desk.stored = passes_by
        await copy.committer.flush()
        assert copy.committer.commits_count == 0
        assert not copy.committer.standby

    play(story, runs=False)


def test_room_is_there_once_the_position_moved() -> None:
    async def story(copy: Copy) -> None:
        waiting = asyncio.ensure_future(copy.committer.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        copy.step(1)
        await asyncio.sleep(0.01)
        assert waiting.done()
        again = asyncio.ensure_future(copy.committer.room())
        await asyncio.sleep(1)
        assert not again.done()
        again.cancel()

    play(story)


def test_flushing_an_empty_outbox_writes_nothing() -> None:
    async def story(copy: Copy) -> None:
        await copy.committer.flush()
        assert copy.desk.tries == []

    play(story, runs=False)
