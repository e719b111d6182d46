"""Promises of the runner: one reader for all lanes, everything told once, and a clean end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from nemesis.processors.processor import Processor
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, decode_conclusion, event_subject
from nemesis.schemas.kept import LogShortened, ProcessorDiverged, ProcessorStarted
from nemesis.streams.batch import Message
from nemesis.streams.comparison import Difference
from nemesis.streams.deaths import Deaths
from nemesis.streams.errors import LogFullError, LogUnavailableError, ShortenedError
from nemesis.streams.lane import AHEAD_MAX, SNAPSHOT_PERIOD_S, StepCrashedError
from nemesis.streams.position import position_of
from nemesis.streams.runner import DIFFERENCES_TOLD_MAX, FLUSH_TIMEOUT_S, RETRY_S, Runner
from nemesis.streams.status import read_status
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog, MemoryReader
from tests.faults.oracle import started
from tests.faults.processors import Counting, CountingNext, Echoing
from tests.faults.virtual_time import run

CURSOR = "nemesis.cursor.counting"
SNAPSHOT = "nemesis.cursor.counting.snapshot"


class EagerReader(MemoryReader):
    """Has the next record at hand and waits for nothing, as long as there is one."""

    def __init__(self, log: MemoryLog, faults: Faults, from_seq: int) -> None:
        super().__init__(log, faults, from_seq)
        self._eager_log = log

    async def next(self) -> list[Record]:
        while not (there := self._eager_log.after(self._last_seq, 1)):
            await self._eager_log.arrived.wait()
        self._last_seq = there[-1].seq
        return there


class SlowReader(MemoryReader):
    """Takes a moment to end, and knows how many of its kind are open."""

    def __init__(self, log: MemoryLog, faults: Faults, from_seq: int, opened: list[int]) -> None:
        super().__init__(log, faults, from_seq)
        self._opened = opened

    async def __aenter__(self) -> Self:
        self._opened.append(self._opened[-1] + 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.01)
        self._opened.append(self._opened[-1] - 1)


class Desk(MemoryClient):
    """A connection that answers at once, unless an error is put in its way."""

    def __init__(self, log: MemoryLog, *, eager: bool = False) -> None:
        super().__init__(log, Faults(0, delay_s=0))
        self.log = log
        self.eager = eager
        self.away: NemesisError | None = None
        self.asked_at: list[float] = []
        self.publish_errors: list[NemesisError | None] = []
        self.before_commit: Callable[[], None] = lambda: None
        self.commit_s = 0.0
        self.read_from: list[int] = []
        self.slow_readers: list[int] | None = None
        """How many readers were open, each time that one more or fewer was."""

    def reader(self, start_seq: int) -> MemoryReader:
        self.read_from.append(start_seq)
        if self.slow_readers is not None:
            return SlowReader(self.log, Faults(0, delay_s=0), start_seq, self.slow_readers)
        kind = EagerReader if self.eager else MemoryReader
        return kind(self.log, Faults(0, delay_s=0), start_seq)

    async def publish(
        self, subject: str, payload: bytes, *, expected_last_subject_seq: int | None = None
    ) -> int:
        error = self.publish_errors.pop(0) if self.publish_errors else None
        if error is not None:
            raise error
        return await super().publish(
            subject, payload, expected_last_subject_seq=expected_last_subject_seq
        )

    async def commit(self, messages: Sequence[Message]) -> int:
        self.before_commit()
        if self.away is not None:
            raise self.away
        await asyncio.sleep(self.commit_s)
        return await super().commit(messages)

    async def ask(self) -> None:
        self.asked_at.append(round(asyncio.get_running_loop().time(), 3))
        if self.away is not None:
            raise self.away
        await super().ask()


class Story:
    """A log in memory and the runners at work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.desk = Desk(self.log)
        self.works: list[asyncio.Task[None]] = []
        self.alarms: list[str] = []
        """What the loop had to say of callbacks that failed."""

    def runner(
        self,
        *processors: Processor,
        start_ns: int = 1,
        snapshot_period_s: float = SNAPSHOT_PERIOD_S,
    ) -> Runner:
        return Runner(
            [(each, self.desk) for each in processors],
            folder=self.folder,
            start_ns=start_ns,
            snapshot_period_s=snapshot_period_s,
        )

    def go(self, runner: Runner) -> asyncio.Task[None]:
        work = asyncio.ensure_future(runner.run())
        self.works.append(work)
        return work

    async def stop(self, runner: Runner, work: asyncio.Task[None]) -> None:
        runner.stop()
        await work

    async def go_and_stop(self, *processors: Processor) -> None:
        runner = self.runner(*processors)
        work = self.go(runner)
        await asyncio.sleep(2)
        await self.stop(runner, work)

    def active(self, *versions: tuple[str, int]) -> int:
        return self.log.append(
            traffic.tick(0),
            *(traffic.activation(name, version, every=1) for name, version in versions),
        )

    def lines(self, *texts: str) -> int:
        """Lines of the kernel; the sequence of the last one."""
        return self.log.append(*(traffic.line(n, text) for n, text in enumerate(texts, 1)))

    def said(self, token: str) -> list[tuple[str, str, str]]:
        """(id, source, subject) of the events of one kind."""
        found = []
        for record in self.log.records:
            if record.subject.startswith(f"nemesis.events.{token}."):
                event, _ = decode_conclusion(token, record.payload)
                found.append((event.id, event.source, record.subject))
        return found

    def at(self) -> int:
        """Where `counting` stands in the log."""
        return position_of(self.log.last(CURSOR)).in_seq


def play(folder: Path, story: Callable[[Story], Awaitable[None]]) -> None:
    made = Story(folder)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: made.alarms.append(str(context)))
        await story(made)
        left = [each for each in made.works if not each.done()]
        for work in left:
            work.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.001)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something is left at work"
        assert made.alarms == []

    run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_each_processor_says_once_that_it_started_and_from_where(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        runner = it.runner(Counting(), Echoing(), start_ns=42)
        it.go(runner)
        await asyncio.sleep(5.5)
        assert it.said("processor_started") == [
            (
                "counting/runner/42/1",
                "/processors/counting",
                event_subject("processor_started", "counting"),
            ),
            (
                "echoing/runner/42/2",
                "/processors/echoing",
                event_subject("processor_started", "echoing"),
            ),
        ]
        assert started(it.log.records, "processor_started") == [
            ProcessorStarted(
                at_ns=traffic.EPOCH_NS,
                reason=f"a copy of {name} took up work at input 0",
                name=name,
                version=1,
                in_seq=at,
                state_from=0,
                how="cold",
            )
            for name, at in (("counting", 2), ("echoing", 3))
        ]

    play(tmp_path, story)


def test_a_start_that_the_log_did_not_take_is_told_a_second_later(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        it.desk.publish_errors = [None, LogUnavailableError("away"), LogFullError("full")]
        it.go(it.runner(Counting(), Echoing()))
        await asyncio.sleep(2.5)
        assert [each[0] for each in it.said("processor_started")] == ["counting/runner/1/1"]
        await asyncio.sleep(3)
        assert [each[0] for each in it.said("processor_started")] == [
            "counting/runner/1/1",
            "echoing/runner/1/4",
        ]

    play(tmp_path, story)


def test_it_stops_with_what_it_concluded_in_the_log(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        runner = it.runner(Counting(), Echoing())
        work = it.go(runner)
        await asyncio.sleep(3.02)
        it.lines("fault")  # urgent, written at once
        await asyncio.sleep(0.01)
        last_seq = it.lines("ok", "ok")  # to be written with the next group
        await asyncio.sleep(0.001)
        assert it.at() < last_seq
        before = now()
        await it.stop(runner, work)
        assert it.at() == last_seq
        assert now() - before < 0.01
        assert [each.stage for each in runner.status()] == ["reading", "reading"]

    play(tmp_path, story)


def test_a_log_that_does_not_take_the_last_conclusions_delays_a_stop_for_five_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3)
        it.desk.away = LogUnavailableError("away")
        it.lines("ok")
        await asyncio.sleep(0.3)
        before = now()
        await it.stop(runner, work)
        assert now() - before == pytest.approx(FLUSH_TIMEOUT_S, abs=0.01)
        assert caplog.messages[-1] == (
            "the log did not take the last conclusions; the next copy will write them"
        )

    play(tmp_path, story)


def test_at_a_stop_no_conclusion_is_offered_twice(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3)
        it.lines("ok")
        await asyncio.sleep(0.01)
        last_seq = it.log.append(traffic.line(2, "ok"))  # due 40 ms later
        await asyncio.sleep(0.01)
        it.desk.commit_s = 0.1
        offered: list[float] = []
        it.desk.before_commit = lambda: offered.append(now())
        await it.stop(runner, work)
        assert len(offered) == 1
        assert it.at() == last_seq

    play(tmp_path, story)


def test_it_can_be_stopped_while_the_log_is_away(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.desk.away = LogUnavailableError("away")
        runner = it.runner(Counting(), Echoing())
        work = it.go(runner)
        await asyncio.sleep(1)
        runner.stop()
        await asyncio.sleep(2 * RETRY_S)
        assert work.done()

    play(tmp_path, story)


def test_it_can_be_stopped_twice_and_before_it_began(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        runner.stop()
        runner.stop()
        await it.go(runner)
        assert it.said("processor_started") == []

    play(tmp_path, story)


def test_an_end_gives_the_files_of_its_processors_back(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        first = it.runner(Counting(), Echoing())
        work = it.go(first)
        second = it.runner(Counting())
        await asyncio.sleep(1)
        assert [(each.name, each.slot) for each in first.status()] == [
            ("counting", 0),
            ("echoing", 0),
        ]
        assert [(each.name, each.slot) for each in second.status()] == [("counting", 1)]
        await it.stop(first, work)
        for name in ("counting@1", "echoing@1"):
            deaths = Deaths(it.folder, name)
            assert deaths.slot == 0
            deaths.close()

    play(tmp_path, story)


def test_a_step_that_crashes_ends_the_run_and_leaves_nothing_at_work(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        work = it.go(it.runner(Counting(), Echoing()))
        await asyncio.sleep(2)
        it.lines("crash")
        with pytest.raises(StepCrashedError):
            await work
        assert now() < 2.1
        deaths = Deaths(it.folder, "counting@1")
        assert deaths.slot == 0
        deaths.close()

    play(tmp_path, story)


def test_an_error_that_comes_while_it_stops_is_none(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3)

        def fails() -> None:
            it.desk.before_commit = lambda: None
            runner.stop()
            raise NemesisError("too late")

        it.desk.before_commit = fails
        last_seq = it.lines("ok")
        await work
        assert it.at() == last_seq

    play(tmp_path, story)


def test_an_error_of_any_part_ends_the_run(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3)

        def fails() -> None:
            raise NemesisError("no more")

        it.desk.before_commit = fails
        it.lines("ok")
        with pytest.raises(NemesisError, match="no more"):
            await work

    play(tmp_path, story)


def test_a_log_rolled_back_is_told_by_those_at_work_and_ends_the_run(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        await it.go_and_stop(Counting())
        work = it.go(it.runner(CountingNext(), Echoing(), start_ns=7))
        await asyncio.sleep(3)
        read_seq = it.log.last_seq
        it.log.roll_back(read_seq - 1)
        last_seq = it.log.last_seq
        assert last_seq < read_seq
        it.desk.publish_errors = [LogUnavailableError("away"), LogFullError("full")]
        before = now()
        with pytest.raises(ShortenedError) as raised:
            await work
        assert now() - before < 1 + 3 * RETRY_S
        [told] = started(it.log.records, "log_shortened")
        assert told == LogShortened(
            at_ns=traffic.EPOCH_NS,
            reason=raised.value.message,
            name="echoing",
            read_seq=read_seq,
            last_seq=last_seq,
        )
        [(_, source, subject)] = it.said("log_shortened")
        assert source == "/processors/echoing"
        assert subject == event_subject("log_shortened", "echoing")

    play(tmp_path, story)


def test_nothing_is_stepped_of_a_log_that_came_back_older(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3.2)
        last_seq = it.lines("ok", "ok")
        await asyncio.sleep(0.5)
        read_seq = runner.lanes[0].read_seq
        assert read_seq >= last_seq
        it.log.roll_back(last_seq - 1)
        it.lines(*["fault"] * 20)
        before = now()
        with pytest.raises(ShortenedError):
            await work
        assert now() == before
        assert runner.lanes[0].read_seq == read_seq

    play(tmp_path, story)


def test_nothing_is_stepped_of_a_log_that_lost_what_no_position_covers(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3.2)
        it.lines("ok", "ok")
        await asyncio.sleep(1.5)
        position = runner.lanes[0].position
        last_seq = it.lines("ok")
        await asyncio.sleep(0.1)
        assert runner.lanes[0].read_seq == last_seq
        it.log.roll_back(last_seq - 1)
        it.lines(*["fault"] * 20)
        with pytest.raises(ShortenedError, match=f"record {last_seq} was read"):
            await work
        assert runner.lanes[0].position == position
        assert runner.lanes[0].read_seq == last_seq

    play(tmp_path, story)


def test_nothing_is_stepped_of_a_log_that_lost_a_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3.2)

        taken = it.log.append

        def lost(*messages: Message) -> int:
            """The store comes back without what it has just confirmed."""
            seq = taken(*messages)
            it.log.roll_back(seq - len(messages))
            return seq

        last_seq = it.lines("ok")
        monkeypatch.setattr(it.log, "append", lost)
        await asyncio.sleep(0.01)
        assert it.log.last_seq == last_seq
        assert runner.lanes[0].committer.commits_count > 1
        monkeypatch.undo()
        it.lines(*["ok"] * 9)
        with pytest.raises(ShortenedError):
            await work
        assert runner.lanes[0].read_seq == last_seq

    play(tmp_path, story)


def test_a_log_that_came_back_older_is_noticed_also_while_nobody_steps(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        work = it.go(runner)
        await asyncio.sleep(3.2)
        word = it.log.append(traffic.activation("counting", 2, every=1, number=1))
        it.log.full = True
        await asyncio.sleep(0.5)
        assert runner.lanes[0].stage == "handing over"
        it.log.roll_back(word - 1)
        it.log.full = False
        it.lines(*["ok"] * 9)
        async with asyncio.timeout(10):
            with pytest.raises(ShortenedError):
                await work

    play(tmp_path, story)


def test_one_reader_reads_at_a_time_and_none_after_the_end(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.desk.slow_readers = opened = [0]
        it.active(("counting", 1))
        runner = it.runner(Counting(), CountingNext())
        work = it.go(runner)
        await asyncio.sleep(3)
        it.log.append(traffic.activation("counting", 2, every=1, number=1))
        await asyncio.sleep(3)
        assert opened == [0, 1, 0, 1]
        await it.stop(runner, work)
        assert opened == [0, 1, 0, 1, 0]

    play(tmp_path, story)


def test_a_version_that_waits_takes_over_from_where_the_other_one_stopped(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        await it.go_and_stop(Counting())
        runner = it.runner(Counting(), CountingNext())
        it.go(runner)
        await asyncio.sleep(3)
        assert [each.stage for each in runner.status()] == ["reading", "waiting"]
        assert it.desk.read_from == [1, 3]
        tasks_count = len(asyncio.all_tasks())
        word = it.log.append(traffic.activation("counting", 2, every=1, number=1))
        it.lines("ok")
        await asyncio.sleep(2)
        assert [each.stage for each in runner.status()] == ["waiting", "reading"]
        assert it.desk.read_from[2:] == [word + 1]
        back = it.log.append(traffic.activation("counting", 1, every=1, number=2))
        it.lines("ok")
        await asyncio.sleep(2)
        assert [each.stage for each in runner.status()] == ["reading", "waiting"]
        assert it.desk.read_from[3:] == [back + 1]
        assert len(asyncio.all_tasks()) == tasks_count
        told = started(it.log.records, "processor_started")
        assert [(each.version, each.how, each.state_from) for each in told] == [
            (1, "cold", 0),
            (1, "snapshot", 2),
            (2, "snapshot", word),
            (1, "snapshot", back),
        ]
        assert runner.status()[0].in_seq > back

    play(tmp_path, story)


def test_a_copy_that_may_not_answer_yet_waits_until_it_may(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        first = it.runner(Counting())
        it.go(first)
        await asyncio.sleep(1.5)
        it.desk.read_from.clear()
        second = it.runner(CountingNext(), start_ns=2)
        it.go(second)
        await asyncio.sleep(3)
        assert it.desk.read_from == []
        word = it.log.append(traffic.activation("counting", 2, every=1, number=1))
        await asyncio.sleep(2)
        assert it.desk.read_from == [word + 1]
        assert second.status()[0].stage == "reading"

    play(tmp_path, story)


def test_it_reads_from_the_oldest_state_of_its_processors(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        await it.go_and_stop(Counting())
        await it.go_and_stop(Counting())
        assert it.desk.read_from == [1, 3]
        await it.go_and_stop(Counting(), Echoing())
        assert it.desk.read_from == [1, 3, 1]

    play(tmp_path, story)


def test_inputs_that_expired_are_lost_to_every_processor(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        first = it.runner(Counting(), Echoing())
        work = it.go(first)
        await asyncio.sleep(2.5)
        await it.stop(first, work)
        last_seq = it.lines(*["ok"] * 9)
        it.log.expire(last_seq - 8, last_seq - 6)
        it.log.expire(last_seq - 3, last_seq - 2)
        it.go(it.runner(Counting(), Echoing(), start_ns=2))
        await asyncio.sleep(3)
        lost = started(it.log.records, "input_lost")
        assert sorted((each.name, each.from_seq, each.to_seq) for each in lost) == sorted(
            (name, last_seq - from_, last_seq - to)
            for name in ("counting", "echoing")
            for from_, to in ((8, 6), (3, 2))
        )

    play(tmp_path, story)


def test_a_silent_clock_is_said_once_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        it.go(runner)
        await asyncio.sleep(4.5)
        it.lines("ok")
        assert caplog.messages == []
        await asyncio.sleep(4)
        assert caplog.messages == ["no clock tick for 5 s"]
        assert runner.status()[0].clock_silent
        it.log.append(traffic.tick(1))
        await asyncio.sleep(3)
        assert caplog.messages == ["no clock tick for 5 s", "the clock ticks again"]
        assert not runner.status()[0].clock_silent
        await asyncio.sleep(6)
        assert caplog.messages[2:] == ["no clock tick for 5 s"]

    play(tmp_path, story)


def test_reading_pauses_while_too_much_waits_and_goes_on_when_it_is_written(
    tmp_path: Path,
) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        it.go(runner)
        await asyncio.sleep(2)
        burst = it.log.last_seq + 1
        last_seq = it.lines(f"burst {AHEAD_MAX}", "ok", "ok")
        it.log.full = True
        await asyncio.sleep(3)
        assert runner.lanes[0].read_seq == burst
        it.log.full = False
        await asyncio.sleep(5)
        assert runner.lanes[0].read_seq >= last_seq
        assert it.at() >= last_seq

    play(tmp_path, story)


def test_others_get_their_turn_while_there_is_always_more_to_read(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.desk = Desk(it.log, eager=True)
        last_seq = it.lines(*["ok"] * 100)
        runner = it.runner(Counting())
        it.go(runner)
        while runner.lanes[0].read_seq == 0:  # noqa: ASYNC110  # each turn is what is promised
            await asyncio.sleep(0)
        assert runner.lanes[0].read_seq < last_seq

    play(tmp_path, story)


def test_each_second_it_writes_down_where_it_stands(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        runner = it.runner(Counting(), Echoing())
        it.go(runner)
        await asyncio.sleep(0.9)
        assert read_status(it.folder) == []
        await asyncio.sleep(4)
        assert read_status(it.folder) == runner.status()
        counting, echoing = runner.status()
        assert (counting.name, counting.active, echoing.name) == ("counting", True, "echoing")
        assert counting.last_seq == it.log.last_seq

    play(tmp_path, story)


def test_an_end_in_order_takes_back_what_it_wrote_down_and_a_crash_does_not(
    tmp_path: Path,
) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1), ("echoing", 1))
        await it.go_and_stop(Counting(), Echoing())
        assert read_status(it.folder) == []
        work = it.go(it.runner(Counting(), Echoing()))
        await asyncio.sleep(2)
        it.lines("crash")
        with pytest.raises(StepCrashedError):
            await work
        assert [each.name for each in read_status(it.folder)] == ["counting", "echoing"]

    play(tmp_path, story)


def test_a_clock_that_is_read_once_more_from_further_back_ticks(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting(), CountingNext())
        it.go(runner)
        await asyncio.sleep(3.5)
        tick = it.log.append(traffic.activation("counting", 2, every=1, number=1), traffic.tick(1))
        await asyncio.sleep(0.6)
        assert it.desk.read_from[1:] == [tick]
        await asyncio.sleep(4.5)
        assert not runner.watch.clock_silent
        await asyncio.sleep(0.5)
        assert runner.watch.clock_silent

    play(tmp_path, story)


def test_a_state_is_taken_as_often_as_it_is_told_to(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        it.go(it.runner(Counting(), snapshot_period_s=2.5))
        for second in range(1, 11):
            await asyncio.sleep(1)
            it.log.append(traffic.tick(second))
        taken = [each for each in it.log.records if each.subject == SNAPSHOT]
        assert len(taken) == 4  # the first with its activation, then every three ticks

    play(tmp_path, story)


def differing(n: int) -> Difference:
    return Difference(f"counting/{n}/0", f"mine{n}", f"theirs{n}")


def test_a_difference_is_told_once_by_whoever_finds_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story(it: Story) -> None:
        it.active(("counting", 1))
        both = [it.runner(Counting(), start_ns=n) for n in (1, 2)]
        for runner in both:
            it.go(runner)
        await asyncio.sleep(2.5)
        for runner in both:
            runner.lanes[0].differences.append(differing(5))
        await asyncio.sleep(2)
        assert started(it.log.records, "processor_diverged") == [
            ProcessorDiverged(
                at_ns=traffic.EPOCH_NS,
                reason="a copy of counting concludes otherwise than the log says",
                name="counting",
                fact="counting/5/0",
                mine_sha256="mine5",
                theirs_sha256="theirs5",
            )
        ]
        [(_, source, subject)] = it.said("processor_diverged")
        assert source == "/processors/counting"
        assert subject == event_subject("processor_diverged", "counting/5/0")
        assert caplog.messages == [f"{subject} was said before"]
        assert [runner.lanes[0].differences for runner in both] == [[], []]

    play(tmp_path, story)


def test_a_difference_that_the_log_did_not_take_is_told_later(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        it.go(runner)
        await asyncio.sleep(2.5)
        it.desk.publish_errors = [None, LogUnavailableError("away")]
        runner.lanes[0].differences.extend([differing(5), differing(6)])
        await asyncio.sleep(3)
        told = started(it.log.records, "processor_diverged")
        assert [each.fact for each in told] == ["counting/5/0", "counting/6/0"]

    play(tmp_path, story)


def test_of_very_many_differences_the_first_are_told(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.active(("counting", 1))
        runner = it.runner(Counting())
        it.go(runner)
        await asyncio.sleep(2.5)
        runner.lanes[0].differences.extend(map(differing, range(DIFFERENCES_TOLD_MAX + 9)))
        await asyncio.sleep(3)
        told = started(it.log.records, "processor_diverged")
        assert len(told) == DIFFERENCES_TOLD_MAX
        assert runner.lanes[0].differences == []

    play(tmp_path, story)


@pytest.mark.parametrize("error", [LogUnavailableError("not there"), LogFullError("not there")])
def test_it_asks_for_the_log_ten_times_a_second_until_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: NemesisError
) -> None:
    caplog.set_level(logging.INFO)

    async def story(it: Story) -> None:
        it.active(("counting", 1))
        it.desk.away = error
        runner = it.runner(Counting())
        it.go(runner)
        await asyncio.sleep(0.35)
        assert it.desk.asked_at == [0, 0.1, 0.2, 0.3]
        assert caplog.messages == ["waiting for the log: not there"]  # once is enough
        it.desk.away = None
        await asyncio.sleep(3)
        assert runner.status()[0].stage == "reading"
        assert len(it.said("processor_started")) == 1

    play(tmp_path, story)
