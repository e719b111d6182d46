"""Promises about a store that ends inside a batch: what survives is neither lost nor said twice."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Input
from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.kept import ProcessorAdvanced
from nemesis.streams.batch import Message
from nemesis.streams.deaths import DEATHS_MAX, Deaths
from nemesis.streams.errors import LogUnavailableError, ShortenedError
from nemesis.streams.lane import Lane, StaleCopyError, StepCrashedError
from nemesis.streams.outbox import Outbox
from nemesis.streams.position import Position, encode, position_of
from nemesis.streams.survivors import Survivors, read_survivors
from nemesis.streams.watch import RETRY_S, Watch
from tests.faults import traffic
from tests.faults.memory_log import Faults, MemoryClient, MemoryLog
from tests.faults.processors import Counting
from tests.faults.virtual_time import run

NAME = "counting"
CURSOR = "nemesis.cursor.counting"


def said(seq: int, k: int = 0, *, urgent: bool = False) -> Emission:
    return Emission(seq, f"nemesis.events.note_added.n{k}", b"{}", f"{NAME}/{seq}/{k}", urgent)


def full_outbox() -> Outbox:
    """Two conclusions of each of the inputs 4 to 6, and the state after 5."""
    box = Outbox(NAME, 1, Position(cursor_seq=9, in_seq=3))
    for seq in (4, 5, 6):
        box.add(seq, seq * 10, [said(seq, 0, urgent=seq == 4), said(seq, 1)])
        if seq == 5:
            box.add_state(5, 50, b"state")
        box.stepped(seq, seq * 10)
    return box


def test_what_survives_is_not_written_again() -> None:
    box = full_outbox()
    assert box.urgent
    box.survived(Survivors(input_seq=5, count=1, seq=12))
    assert not box.urgent
    assert (len(box), box.first()) == (4, said(5, 1))
    batch = box.next_batch()
    assert batch is not None
    assert (batch.conclusions_count, batch.advanced.in_seq, batch.advanced.snapshot) == (1, 5, True)


def test_a_state_before_the_last_survivor_comes_too_late() -> None:
    box = full_outbox()
    box.survived(Survivors(input_seq=6, count=1, seq=12))
    assert (len(box), box.first()) == (1, said(6, 1))
    assert not box.add_state(5, 50, b"state")
    assert box.add_state(6, 60, b"state")


def test_what_is_concluded_again_and_survives_is_not_taken() -> None:
    box = Outbox(NAME, 1, Position(cursor_seq=9, in_seq=3))
    box.survived(Survivors(input_seq=5, count=1, seq=12))
    assert not box.add(4, 40, [said(4, 0), said(4, 1)])
    assert box.add(5, 50, [said(5, 0), said(5, 1)])
    assert box.first() == said(5, 1)


def test_nothing_is_written_before_the_last_input_that_survives_is_stepped_again() -> None:
    box = Outbox(NAME, 1, Position(cursor_seq=9, in_seq=3))
    box.survived(Survivors(input_seq=5, count=1, seq=12))
    box.stepped(4, 40)
    assert box.held
    assert box.next_batch() is None
    box.stepped(5, 50)
    assert not box.held
    batch = box.next_batch()
    assert batch is not None
    assert batch.advanced == ProcessorAdvanced(in_seq=5, log_time_ns=50, version=1)


class Story:
    """A log in memory and copies of `counting`, fed by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.client = MemoryClient(self.log, Faults(0, delay_s=0))
        self.opened: list[Deaths] = []
        self.asked = 0
        self.away = 0
        """So many requests are not answered."""
        self.client.ask = self._ask  # type: ignore[method-assign]

    async def _ask(self) -> None:
        self.asked += 1
        if self.away:
            self.away -= 1
            raise LogUnavailableError("away")
        await asyncio.sleep(0)

    def made(self) -> Lane:
        deaths = Deaths(self.folder, "counting@1")
        self.opened.append(deaths)
        watch = Watch([self.client])
        return Lane(self.client, Counting(), deaths=deaths, watch=watch)

    async def begun(self) -> Lane:
        lane = self.made()
        assert await lane.open()
        lane.begin()
        return lane

    async def answering(self) -> Lane:
        """A lane whose position lies in the log, and one conclusion that it has not written."""
        self.log.append(traffic.tick(0), traffic.activation(NAME, 1, every=1))
        lane = await self.begun()
        for record in list(self.log.records):
            lane.feed(Input(record))
        await lane.committer.flush()
        self.line(lane, "ok")
        return lane

    def line(self, lane: Lane, text: str) -> int:
        seq = self.log.append(traffic.line(self.log.last_seq, text))
        lane.feed(Input(self.log.records[-1]))
        return seq

    def survives(self, lane: Lane) -> int:
        """The log holds the first conclusion that waits, without a position."""
        first = lane.committer.outbox.first()
        assert first is not None
        return self.log.append(Message(subject=first.subject, payload=first.payload))

    def breaks(self) -> None:
        """The connection breaks, and the log behind it may be another one."""
        self.client._broken += 1

    def end(self) -> None:
        for deaths in self.opened:
            deaths.close()
        self.opened.clear()


def play(folder: Path, story: Callable[[Story], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Story(folder)
        try:
            await story(made)
        finally:
            made.end()

    run(main())


def test_a_log_is_asked_what_it_holds_only_after_the_connection_broke(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        asked = it.asked
        await lane.verified()
        assert it.asked == asked
        fresh = await it.begun()
        asked = it.asked
        await fresh.verified()
        assert it.asked == asked
        await lane.verified()
        assert it.asked == asked
        it.breaks()
        await lane.verified()
        assert it.asked > asked
        asked = it.asked
        await lane.verified()
        assert it.asked == asked
        assert len(lane.committer.outbox) == 1

    play(tmp_path, story)


def test_a_copy_that_never_answered_has_nothing_to_lose(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        it.log.append(traffic.tick(0))
        lane = await it.begun()
        it.breaks()
        await lane.verified()
        assert lane.committer.outbox.survivors == Survivors()

    play(tmp_path, story)


def test_what_survived_of_a_batch_is_found_when_the_connection_is_back(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        in_seq = lane.read_seq
        seq = it.survives(lane)
        it.breaks()
        await lane.verified()
        outbox = lane.committer.outbox
        assert outbox.survivors == Survivors(input_seq=in_seq, count=1, seq=seq)
        assert len(outbox) == 0
        await lane.committer.flush()
        assert position_of(it.log.last(CURSOR)).in_seq == in_seq

    play(tmp_path, story)


def test_a_copy_that_opens_goes_on_behind_what_survived(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        seq = it.survives(lane)
        fresh = await it.begun()
        outbox = fresh.committer.outbox
        assert outbox.survivors == Survivors(input_seq=lane.read_seq, count=1, seq=seq)
        assert outbox.held
        for record in list(it.log.records):
            fresh.feed(Input(record))
        assert (len(outbox), outbox.held) == (0, False)

    play(tmp_path, story)


def test_a_log_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        it.survives(lane)
        it.breaks()
        await lane._watch.verified()
        it.away = 2
        before = asyncio.get_running_loop().time()
        await lane.verified()
        assert asyncio.get_running_loop().time() == pytest.approx(before + 2 * RETRY_S)
        assert len(lane.committer.outbox) == 0

    play(tmp_path, story)


@pytest.mark.parametrize("grown", ["nothing", "telemetry", "position"])
def test_a_log_without_the_position_that_was_seen_is_another_one(
    tmp_path: Path, grown: str
) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        at = lane.position.cursor_seq
        it.log.roll_back(2)
        while it.log.last_seq < at - 1:
            it.log.append(traffic.tick(it.log.last_seq))
        if grown == "telemetry":
            it.log.append(traffic.tick(9))
        if grown == "position":
            other = ProcessorAdvanced(in_seq=1, log_time_ns=0, version=1)
            it.log.append(Message(subject=CURSOR, payload=encode(other)))
        with pytest.raises(ShortenedError) as raised:
            await lane.verified()
        assert (raised.value.read_seq, raised.value.last_seq) == (at, it.log.last_seq)

    play(tmp_path, story)


def test_a_log_with_fewer_survivors_than_were_seen_is_another_one(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        seq = it.survives(lane)
        it.breaks()
        await lane.verified()
        it.log.roll_back(seq - 1)
        with pytest.raises(ShortenedError) as raised:
            await lane.verified()
        assert (raised.value.read_seq, raised.value.last_seq) == (seq, seq - 1)

    play(tmp_path, story)


def test_survivors_that_a_position_covers_may_be_gone(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        it.survives(lane)
        it.breaks()
        await lane.verified()
        await lane.committer.flush()
        it.breaks()
        await lane.verified()
        assert lane.committer.outbox.survivors == Survivors()

    play(tmp_path, story)


def test_a_log_that_was_exchanged_is_told_before_it_is_asked(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        lane._watch.arrived(it.log.records[-1])
        seq = it.log.last_seq
        it.log.roll_back(seq - 1)
        with pytest.raises(ShortenedError) as raised:
            await lane.verified()
        assert raised.value.read_seq == seq

    play(tmp_path, story)


def test_a_log_that_was_exchanged_while_it_was_away_is_told(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        lane._watch.arrived(it.log.records[-1])
        seq = it.log.last_seq
        it.breaks()
        await lane._watch.verified()
        it.away = 1
        verifying = asyncio.ensure_future(lane.verified())
        await asyncio.sleep(RETRY_S / 2)
        it.log.roll_back(seq - 1)
        with pytest.raises(ShortenedError) as raised:
            await verifying
        assert raised.value.read_seq == seq

    play(tmp_path, story)


@pytest.mark.parametrize("survives", [True, False])
def test_an_input_that_killed_and_was_answered_by_another_copy_is_not_skipped(
    tmp_path: Path, survives: bool
) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        seq = lane.read_seq
        killer = it.log.records[-1]
        for _ in range(DEATHS_MAX):
            it.end()
            it.made()
            it.opened[0].enter(killer)
        it.end()
        assert skipped_by(it, await it.begun()) == {seq: "the process died in this step"}
        for _ in range(DEATHS_MAX):
            it.end()
            it.made()
            it.opened[0].enter(killer)
        it.end()
        if survives:
            it.survives(lane)
        else:
            part = ProcessorAdvanced(in_seq=seq - 1, log_time_ns=0, version=1, written=1)
            it.log.append(Message(subject=CURSOR, payload=encode(part)))
        assert skipped_by(it, await it.begun()) == {}

    play(tmp_path, story)


def skipped_by(it: Story, lane: Lane) -> dict[int, str]:
    """What a copy skips that reads on to the end of the log."""
    for record in list(it.log.records):
        lane.feed(Input(record))
    return lane.fold.skips


async def skipping_last(it: Story) -> Lane:
    """A copy that skipped the last input of the log, on which others died."""
    for _ in range(DEATHS_MAX):
        it.end()
        it.made()
        it.opened[0].enter(it.log.records[-1])
    it.end()
    skipping = await it.begun()
    skipped_by(it, skipping)
    return skipping


def test_a_copy_that_skipped_what_survives_of_another_ones_answer_must_restore(
    tmp_path: Path,
) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        seq = lane.read_seq
        skipping = await skipping_last(it)
        assert skipping.fold.skips.keys() == {seq}
        it.survives(lane)
        it.breaks()
        with pytest.raises(StaleCopyError, match=rf"^counting: another copy answered input {seq}$"):
            await skipping.verified()

    play(tmp_path, story)


def test_a_copy_whose_skip_is_in_force_goes_on_behind_what_survived(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        seq = (await it.answering()).read_seq
        skipping = await skipping_last(it)
        assert skipping.fold.skips.keys() == {seq}
        await skipping.committer.flush()
        assert position_of(it.log.last(CURSOR)).skipped_seq == seq
        later = it.line(skipping, "ok")
        it.survives(skipping)
        it.breaks()
        await skipping.verified()
        assert skipping.committer.outbox.survivors.input_seq == later

    play(tmp_path, story)


def test_a_position_that_was_written_meanwhile_is_in_force_at_once(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        theirs = ProcessorAdvanced(in_seq=lane.read_seq, log_time_ns=0, version=1)
        it.log.append(Message(subject=CURSOR, payload=encode(theirs)))
        it.breaks()
        await lane.verified()
        assert lane.position == position_of(it.log.last(CURSOR))
        assert len(lane.committer.outbox) == 0
        assert lane.committer.standby

    play(tmp_path, story)


async def doomed(it: Story) -> tuple[Lane, int]:
    """A healthy copy that stepped nothing of it yet, and an input on which others died."""
    await it.answering()
    seq = it.log.append(traffic.line(99, "crash"))
    killer = Input(it.log.records[-1])
    for _ in range(DEATHS_MAX):
        it.end()
        lane = await it.begun()
        with pytest.raises(StepCrashedError):
            lane.feed(killer)
    healthy = await it.begun()
    it.end()
    skipping = await it.begun()
    skipping.feed(killer)
    it.survives(skipping)
    return healthy, seq


def test_a_skip_that_survives_is_known_to_every_copy(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        healthy, seq = await doomed(it)
        it.breaks()
        with pytest.raises(StaleCopyError, match=rf"^counting: another copy skipped \[{seq}\]$"):
            await healthy.verified()
        after = await it.begun()
        assert dict(after.fold.skips) == {seq: "ValueError: this step always crashes"}
        it.breaks()
        await after.verified()
        assert after.committer.outbox.survivors.skips.keys() == {seq}

    play(tmp_path, story)


def test_a_state_read_across_a_broken_connection_is_not_taken_up(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await it.answering()
        lane = it.made()
        opening = asyncio.ensure_future(lane.open())
        await asyncio.sleep(0)
        it.breaks()
        with pytest.raises(
            LogUnavailableError,
            match=r"^the connection broke while the state of counting came$",
        ):
            await opening
        assert lane.stage == "waiting"
        assert await lane.open()

    play(tmp_path, story)


def test_only_conclusions_of_the_processor_itself_count_as_survivors(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        it.line(lane, "burst 3")
        batch = lane.committer.outbox.next_batch()
        assert batch is not None
        *conclusions, _ = batch.messages
        counts = []
        for message in conclusions:
            it.log.append(message, traffic.activation(NAME, 1, number=7))
            found = await read_survivors(it.client, NAME, lane.position)
            counts.append((found.input_seq, found.count))
            assert found.seq == it.log.last_seq - 1
            assert await read_survivors(it.client, "count", lane.position) == Survivors()
        first, second = (
            decode_conclusion("note_added", conclusions[at].payload)[0] for at in (0, 1)
        )
        assert [int(each.id.split("/")[1]) for each in (first, second)] == [
            counts[0][0],
            counts[1][0],
        ]
        assert [count for _, count in counts] == [1, 1, 2, 3, 4]

    play(tmp_path, story)


def test_what_is_no_conclusion_of_the_processor_is_passed_over(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        mine = lane.committer.outbox.first()
        assert mine is not None
        others = {
            "of its runner": (
                mine.subject,
                mine.payload.replace(mine.id.encode(), b"counting/runner/1/1"),
            ),
            "of somebody else": (
                mine.subject,
                mine.payload.replace(b"/processors/counting", b"/operator"),
            ),
            "cut off": (mine.subject, mine.payload[:-9]),
            "not text": (mine.subject, mine.payload.replace(b"/processors/", b"/\xff/")),
            "of a node": ("nemesis.telemetry.n001.kernel", mine.payload),
        }
        for subject, payload in others.values():
            assert payload != mine.payload or subject != mine.subject
            it.log.append(Message(subject=subject, payload=payload))
        assert await read_survivors(it.client, NAME, lane.position) == Survivors()
        seq = it.survives(lane)
        found = await read_survivors(it.client, NAME, lane.position)
        assert found == Survivors(input_seq=lane.read_seq, count=1, seq=seq)

    play(tmp_path, story)


def test_what_survives_of_an_input_is_counted_on_from_its_position(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        lane = await it.answering()
        seq = lane.read_seq
        part = ProcessorAdvanced(in_seq=seq - 1, log_time_ns=0, version=1, written=3)
        it.log.append(Message(subject=CURSOR, payload=encode(part)))
        position = position_of(it.log.records[-1])
        last_seq = it.survives(lane)
        found = await read_survivors(it.client, NAME, position)
        assert found == Survivors(input_seq=seq, count=4, seq=last_seq)

    play(tmp_path, story)


def test_fewer_survive_where_the_input_or_the_count_is_lower() -> None:
    some = Survivors(input_seq=5, count=2, seq=9)
    assert Survivors(input_seq=4, count=3) < some
    assert Survivors(input_seq=5, count=1) < some
    assert not Survivors(input_seq=5, count=2) < some
    assert not Survivors(input_seq=6, count=0) < some
