"""Promises of a lane: silent until activated, one author an input, and no step twice."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.fold import Input
from nemesis.processors.processor import Processor
from nemesis.schemas.facts import Record, decode_conclusion, snapshot_subject
from nemesis.schemas.kept import InputLost, ProcessorAdvanced, SnapshotTaken
from nemesis.streams.batch import Message
from nemesis.streams.deaths import DEATHS_MAX, Deaths
from nemesis.streams.lane import AHEAD_MAX, Lane, StaleCopyError, StepCrashedError
from nemesis.streams.outbox import BATCH_CONCLUSIONS_MAX
from nemesis.streams.position import Position, encode, position_of
from nemesis.streams.watch import Watch
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.processors import Counting, CountingNext
from tests.faults.virtual_time import run

CURSOR = "nemesis.cursor.counting"


class Story:
    """A log in memory with one copy of `counting`, fed by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.opened: list[Deaths] = []

    def made(self, processor: Processor | None = None, period_s: float = 10.0) -> Lane:
        processor = processor or Counting()
        deaths = Deaths(self.folder, f"{processor.name}@{processor.version}")
        self.opened.append(deaths)
        client = MemoryClient(self.log, Faults(0, delay_s=0))
        return Lane(
            client,
            processor,
            deaths=deaths,
            watch=Watch([client]),
            snapshot_period_s=period_s,
        )

    async def begun(self, processor: Processor | None = None) -> Lane:
        """A lane that reads from where the log says it stands."""
        lane = self.made(processor)
        assert await lane.open()
        lane.begin()
        return lane

    def write(self, *messages: Message) -> list[Input]:
        before = self.log.last_seq
        self.log.append(*messages)
        return [Input(record) for record in self.log.records if record.seq > before]

    def end(self) -> None:
        """The process ends."""
        for deaths in self.opened:
            deaths.close()
        self.opened.clear()


def play(folder: Path, story: Callable[[Story], Awaitable[None]]) -> None:
    made = Story(folder)

    async def main() -> None:
        await story(made)

    try:
        run(main())
    finally:
        made.end()


def feed(lane: Lane, items: list[Input]) -> list[bool]:
    return [lane.feed(item) for item in items]


def active() -> list[Message]:
    return [traffic.tick(0), traffic.activation("counting", 1, every=1)]


def stage(lane: Lane) -> str:
    return lane.stage


def cursor(in_seq: int, version: int = 1, written: int = 0) -> Message:
    fact = ProcessorAdvanced(in_seq=in_seq, log_time_ns=0, version=version, written=written)
    return Message(subject=CURSOR, payload=encode(fact))


def test_a_lane_says_who_it_is_and_waits_to_be_opened(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = it.made()
        assert (lane.name, lane.label, lane.stage) == ("counting", "counting@1", "waiting")
        assert (lane.how, lane.state_from, lane.problem) == ("cold", 0, "")
        assert (lane.position, lane.read_seq, lane.full) == (Position(), 0, False)
        assert lane.committer.outbox.next_batch() is None
        assert feed(lane, it.write(traffic.line(1, "fault"))) == [False]
        lane.begin()
        assert stage(lane) == "waiting"
        assert await lane.open()
        assert (lane.stage, lane.how, lane.state_from) == ("opened", "cold", 0)
        assert feed(lane, it.write(traffic.line(2, "fault"))) == [False]
        lane.begin()
        assert stage(lane) == "reading"
        assert lane.read_seq == 0

    play(tmp_path, story)


def test_before_its_activation_it_concludes_nothing_and_moves_no_position(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.begun()
        assert feed(lane, it.write(traffic.tick(0), traffic.line(1, "fault"))) == [False, False]
        assert lane.read_seq == 2
        assert len(lane.committer.outbox) == 0

    play(tmp_path, story)


def test_its_activation_is_answered_with_a_state(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.begun()
        assert feed(lane, it.write(*active())) == [False, True]
        batch = lane.committer.outbox.next_batch()
        assert batch is not None
        assert (batch.advanced.in_seq, batch.advanced.snapshot, batch.advanced.version) == (
            2,
            True,
            1,
        )
        assert feed(lane, it.write(traffic.line(1, "ok"))) == [True]
        assert len(lane.committer.outbox) == 2

    play(tmp_path, story)


async def answering(it: Story) -> Lane:
    """A lane whose activation is answered: its position lies in the log."""
    lane = await it.begun()
    feed(lane, it.write(*active()))
    await lane.committer.flush()
    assert lane.position == position_of(it.log.last(CURSOR))
    return lane


def test_what_it_wrote_itself_passes_by_and_is_no_difference(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        feed(lane, it.write(traffic.line(1, "fault")))
        await lane.committer.flush()
        feed(lane, [Input(record) for record in it.log.records if record.seq > 2])
        assert lane.differences == []
        assert lane.position.in_seq == 5

    play(tmp_path, story)


def test_a_record_that_was_stepped_is_not_stepped_again(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        items = it.write(traffic.line(1, "fault"))
        assert feed(lane, items) == [True]
        assert feed(lane, items) == [False]

    play(tmp_path, story)


def test_what_another_copy_says_otherwise_is_a_difference(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        feed(lane, it.write(traffic.line(1, "ok")))
        mine = lane.committer.outbox.first()
        assert mine is not None
        theirs = mine.payload.replace(b"count ", b"other ")
        feed(lane, it.write(Message(subject=mine.subject, payload=theirs)))
        assert [each.id for each in lane.differences] == [mine.id]

    play(tmp_path, story)


def test_a_conclusion_that_another_copy_left_out_is_a_difference(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        (item,) = it.write(traffic.line(1, "ok"))
        lane.feed(item)
        assert feed(lane, it.write(cursor(item.record.seq))) == [False]
        assert [each.theirs_sha256 for each in lane.differences] == [""]
        assert lane.position.in_seq == item.record.seq
        assert len(lane.committer.outbox) == 0
        assert lane.committer.standby

    play(tmp_path, story)


def test_the_position_of_another_processor_is_none_of_its_business(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        before = lane.position
        payload = encode(ProcessorAdvanced(in_seq=99, log_time_ns=0, version=1))
        feed(lane, it.write(Message(subject="nemesis.cursor.echoing", payload=payload)))
        assert lane.position == before

    play(tmp_path, story)


def test_a_step_that_raises_ends_the_copy_and_says_where(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        (item,) = it.write(traffic.line(1, "crash"))
        seq = item.record.seq
        with pytest.raises(
            StepCrashedError,
            match=rf"^counting crashed on input {seq}: ValueError: this step always crashes$",
        ):
            lane.feed(item)

    play(tmp_path, story)


def test_an_input_that_kills_is_skipped_said_and_known_to_every_copy(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await answering(it)
        (item,) = it.write(traffic.line(1, "crash"))
        seq = item.record.seq
        for _ in range(DEATHS_MAX):
            it.end()
            lane = await it.begun()
            assert lane.how == "snapshot"
            assert lane.state_from == 2
            with pytest.raises(StepCrashedError):
                lane.feed(item)
        healthy = await it.begun(Counting())
        it.end()
        lane = await it.begun()
        assert not lane.full
        assert lane.feed(item)
        assert lane.full
        skipped = lane.committer.outbox.first()
        assert skipped is not None
        _, said = decode_conclusion("fact_skipped", skipped.payload)
        assert (said.seq, said.error) == (seq, "ValueError: this step always crashes")
        await lane.committer.flush()
        assert not lane.full
        position = position_of(it.log.last(CURSOR))
        assert (position.in_seq, position.skipped_seq, position.snapshot) == (seq, seq, True)
        with pytest.raises(StaleCopyError, match=rf"^counting: another copy skipped input {seq}$"):
            healthy.observe(position)

    play(tmp_path, story)


async def doomed(it: Story) -> tuple[Lane, Input]:
    """A copy that is going to skip an input, and this input."""
    await answering(it)
    (item,) = it.write(traffic.line(1, "crash"))
    for _ in range(DEATHS_MAX):
        it.end()
        lane = await it.begun()
        with pytest.raises(StepCrashedError):
            lane.feed(item)
    it.end()
    return await it.begun(), item


def test_another_input_in_the_place_of_one_that_killed_is_stepped(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane, item = await doomed(it)
        it.log.roll_back(item.record.seq - 1)
        (other,) = it.write(traffic.line(1, "fault"))
        assert other.record.seq == item.record.seq
        lane.feed(other)
        assert not lane.full
        first = lane.committer.outbox.first()
        assert first is not None
        assert first.subject.startswith("nemesis.events.note_added.")

    play(tmp_path, story)


@pytest.mark.parametrize("whole", [True, False])
def test_a_copy_that_skipped_what_another_one_answered_must_restore(
    tmp_path: Path, whole: bool
) -> None:
    async def story(it: Story) -> None:
        lane, item = await doomed(it)
        lane.feed(item)
        seq = item.record.seq
        theirs = cursor(seq) if whole else cursor(seq - 1, written=1)
        (answered,) = it.write(theirs)
        with pytest.raises(StaleCopyError, match=rf"^counting: another copy answered input {seq}$"):
            lane.observe(position_of(answered.record))

    play(tmp_path, story)


def test_an_input_that_another_copy_answered_is_not_skipped(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane, item = await doomed(it)
        feed(lane, it.write(cursor(item.record.seq)))
        with pytest.raises(StepCrashedError):
            lane.feed(item)

    play(tmp_path, story)


def test_an_input_that_went_through_after_all_is_no_longer_counted(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await answering(it)
        (item,) = it.write(traffic.line(1, "fault"))
        for _ in range(2):
            it.end()
            await it.begun()
            it.opened[0].enter(item.record)
        it.end()
        lane = await it.begun()
        assert it.opened[0].seq == item.record.seq
        lane.feed(item)
        assert it.opened[0].seq == 0

    play(tmp_path, story)


def test_other_inputs_that_go_through_neither_count_nor_forget_a_death(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await answering(it)
        items = it.write(traffic.line(1, "fault"), traffic.line(2, "crash"))
        it.opened[0].enter(items[1].record)
        it.end()
        lane = await it.begun()
        lane.feed(items[0])
        it.end()
        await it.begun()
        assert it.opened[0].seq == items[1].record.seq

    play(tmp_path, story)


def test_another_version_in_the_log_makes_it_wait(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.write(*active(), cursor(2, version=2))
        lane = it.made()
        assert await lane.open() is False
        assert (lane.stage, lane.position.version, lane.problem) == ("waiting", 2, "")

    play(tmp_path, story)


def test_a_position_without_a_state_is_read_again_from_the_beginning(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.write(*active(), cursor(2))
        lane = it.made()
        assert await lane.open()
        assert (lane.stage, lane.how, lane.state_from) == ("opened", "reread", 0)

    play(tmp_path, story)


def test_it_hands_over_with_a_state_and_the_next_version_goes_on_from_there(
    tmp_path: Path,
) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        feed(lane, it.write(traffic.line(1, "fault")))
        (word,) = it.write(traffic.activation("counting", 2, every=1, number=1))
        assert lane.feed(word)
        assert stage(lane) == "handing over"
        await lane.committer.flush()
        position = position_of(it.log.last(CURSOR))
        assert (position.in_seq, position.version) == (word.record.seq, 2)
        assert stage(lane) == "waiting"
        following = await it.begun(CountingNext())
        assert (following.how, following.state_from) == ("snapshot", word.record.seq)
        assert following.fold.active

    play(tmp_path, story)


class Older(Counting):
    """Knows nothing of what later versions keep."""

    able = False

    def restore(self, snapshot: bytes) -> None:
        if not self.able:
            raise KeyError("of a later version")
        super().restore(snapshot)


def test_an_older_version_that_cannot_read_the_newer_state_says_so_once_and_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(it: Story) -> None:
        newer = CountingNext()
        it.write(traffic.tick(0), traffic.activation("counting", 2, every=1))
        lane = await it.begun(newer)
        feed(lane, [Input(record) for record in it.log.records])
        (word,) = it.write(traffic.activation("counting", 1, every=1, number=1))
        lane.feed(word)
        await lane.committer.flush()
        older = it.made(Older())
        for _ in range(3):
            assert await older.open() is False
            assert (older.stage, stage(lane)) == ("waiting", "waiting")
        assert older.problem == (
            "counting@1 cannot read the state that version 2 left at input"
            f" {word.record.seq}, nobody answers: run a release whose version 1 can (KeyError)"
        )
        assert [each.getMessage() for each in caplog.records if "cannot read" in each.message] == [
            f"{older.problem}: 'of a later version'"
        ]
        monkeypatch.setattr(Older, "able", True)
        assert await older.open()
        assert (older.how, older.problem) == ("snapshot", "")

    play(tmp_path, story)


def test_a_lane_that_never_answered_has_nothing_to_hand_over(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.begun()
        assert feed(lane, it.write(traffic.activation("counting", 2))) == [False]
        assert stage(lane) == "waiting"
        assert len(lane.committer.outbox) == 0

    play(tmp_path, story)


def test_inputs_that_expired_are_told_once_before_the_next_conclusion(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        read_seq = lane.read_seq
        lane.lost(read_seq, read_seq + 2)
        lane.lost(read_seq + 3, read_seq + 4)
        record = Record(read_seq + 5, *_telemetry(1))
        assert lane.feed(Input(record))
        told = lane.committer.outbox.first()
        assert told is not None
        _, lost = decode_conclusion("input_lost", told.payload)
        assert isinstance(lost, InputLost)
        assert (lost.from_seq, lost.to_seq) == (read_seq + 1, read_seq + 4)
        assert (told.input_seq, told.id) == (record.seq, f"counting/{record.seq}/lost")
        count = len(lane.committer.outbox)
        lane.feed(Input(Record(read_seq + 6, *_telemetry(2))))
        assert len(lane.committer.outbox) == count + 1

    play(tmp_path, story)


def _telemetry(n: int) -> tuple[str, int, bytes]:
    message = traffic.line(n, "ok")
    return message.subject, 0, message.payload


def test_inputs_that_were_stepped_before_they_expired_are_not_lost(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        lane.lost(1, lane.read_seq)
        feed(lane, it.write(traffic.tick(1)))
        assert len(lane.committer.outbox) == 0

    play(tmp_path, story)


def test_before_a_first_position_nothing_can_be_lost(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.begun()
        lane.lost(1, 5)
        feed(lane, it.write(*[traffic.tick(at) for at in range(6)]))
        assert len(lane.committer.outbox) == 0

    play(tmp_path, story)


def test_stepping_pauses_while_too_much_waits(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        feed(lane, it.write(traffic.line(1, f"burst {AHEAD_MAX - 1}")))
        assert len(lane.committer.outbox) == AHEAD_MAX
        assert not lane.full
        feed(lane, it.write(traffic.line(2, "ok")))
        assert lane.full

    play(tmp_path, story)


def test_a_state_is_taken_every_period_and_not_before_a_position(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        await asyncio.sleep(9.9)
        feed(lane, it.write(traffic.line(1, "ok")))
        assert len(lane.committer.outbox) == 1
        await asyncio.sleep(0.1)
        feed(lane, it.write(traffic.line(2, "ok")))
        assert len(lane.committer.outbox) == 3
        await asyncio.sleep(9.9)
        feed(lane, it.write(traffic.line(3, "ok")))
        assert len(lane.committer.outbox) == 4
        waiting = await it.begun(Counting())
        await asyncio.sleep(20)
        assert waiting.position != Position()

    play(tmp_path, story)


@pytest.mark.parametrize(("taken", "count"), [(True, 0), (False, 1)])
def test_a_state_that_another_copy_took_starts_the_period_anew(
    tmp_path: Path, taken: bool, count: int
) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        await asyncio.sleep(9)
        in_seq = lane.read_seq
        fact = ProcessorAdvanced(in_seq=in_seq, log_time_ns=0, version=1, snapshot=taken)
        feed(lane, it.write(Message(subject=CURSOR, payload=encode(fact))))
        await asyncio.sleep(2)
        feed(lane, it.write(traffic.tick(1)))
        assert len(lane.committer.outbox) == count

    play(tmp_path, story)


def test_what_the_log_refuses_is_stood_in_for_under_its_own_name(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        (item,) = it.write(traffic.line(1, "ok"))
        lane.feed(item)
        refused = lane.committer.outbox.first()
        assert refused is not None
        instead = lane.stand_in(refused, "too large")
        assert (instead.id, instead.input_seq) == (refused.id, item.record.seq)
        _, said = decode_conclusion("conclusion_undeliverable", instead.payload)
        assert said.error == "too large"
        assert msgspec.json.decode(instead.payload)["id"] == refused.id

    play(tmp_path, story)


def test_what_the_log_refuses_is_replaced_as_it_is_written(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        it.log.refuses = lambda message: b"count " in message.payload
        (item,) = it.write(traffic.line(1, "ok"))
        lane.feed(item)
        await lane.committer.flush()
        said = [each.subject.split(".")[2] for each in it.log.records[-2:-1]]
        assert said == ["conclusion_undeliverable"]
        assert lane.position.in_seq == item.record.seq

    play(tmp_path, story)


def test_a_state_too_large_for_the_log_is_fetched_from_where_it_lies(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        state = (await answering(it)).fold.snapshot()
        key = sha256(state).hexdigest()
        it.log.states[key] = state
        taken = SnapshotTaken(in_seq=2, log_time_ns=0, version=1, sha256=key, size_bytes=9)
        it.write(Message(subject=snapshot_subject("counting"), payload=encode(taken)), cursor(2))
        lane = await it.begun()
        assert (lane.how, lane.state_from) == ("snapshot", 2)

    play(tmp_path, story)


def test_a_position_inside_an_input_tells_the_time_of_that_input(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        feed(lane, it.write(traffic.tick(5), traffic.line(1, f"burst {BATCH_CONCLUSIONS_MAX}")))
        batch = lane.committer.outbox.next_batch()
        assert batch is not None
        assert batch.advanced.written > 0
        assert batch.advanced.log_time_ns == lane.fold.log_time_ns

    play(tmp_path, story)


def test_what_is_concluded_is_written_without_being_asked_for(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await answering(it)
        work = asyncio.ensure_future(lane.committer.run())
        await asyncio.sleep(1)
        (item,) = it.write(traffic.line(1, "ok"))
        lane.feed(item)
        await asyncio.sleep(0.01)
        assert lane.position.in_seq == item.record.seq
        work.cancel()

    play(tmp_path, story)
