"""A producer's way to the log: in order, through outages, without flooding it."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.schemas.facts import Record, decode_observation
from nemesis.schemas.observed import KernelLineLogged, Observation, SampleTaken, SpoolAnnounced
from nemesis.streams import publisher as publisher_module
from nemesis.streams.batch import Message
from nemesis.streams.errors import LogFullError
from nemesis.streams.keeper import Rate, measure
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.publisher import Publisher
from nemesis.streams.server import Server
from nemesis.streams.spool import Spool, SpoolError
from tests.cells import in_cell, publish_for_ever, until

OTHER = "nemesis.telemetry.n002.sample"
NOW_NS = 1_796_000_000_000_000_000


class Origin:
    """Stamps as producers make them."""

    def __init__(self, start_ns: int = 1) -> None:
        self.start_ns = start_ns
        self.last: dict[str, int] = {}

    def stamp(self, kind: str, at_ns: int) -> Mapping[str, Any]:
        self.last[kind] = self.last.get(kind, 0) + 1
        return {"node": "n001", "start_ns": self.start_ns, "n": self.last[kind], "at_ns": at_ns}

    def sample(self) -> SampleTaken:
        return SampleTaken(**self.stamp("sample", NOW_NS))

    def kernel(self, text: str = "x") -> KernelLineLogged:
        return KernelLineLogged(**self.stamp("kernel", NOW_NS), text=text)


class Running:
    """A publisher and the task that carries for it."""

    def __init__(self, log: Log, origin: Origin, path: Path, **options: Any) -> None:
        self.rates: list[Rate] = []
        self.publisher = Publisher(
            origin.stamp, lambda: NOW_NS, path, on_rate=self.rates.append, **options
        )
        self.log = log

    async def __aenter__(self) -> Publisher:
        self.task = asyncio.ensure_future(self.publisher.run(self.log))
        await asyncio.sleep(0)  # it has the log from here on
        return self.publisher

    async def __aexit__(self, *problem: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.publisher.close()


def facts(records: list[Record]) -> list[Observation]:
    return [decode_observation(r.subject.rpartition(".")[2], r.payload) for r in records]


async def all_facts(server: Server) -> list[Observation]:
    async with await server.connect("reader") as log:
        return facts([r async for r in log.read_range(1, 10**9) if ".n001." in r.subject])


def as_node(
    folder: Path, body: Callable[[Server, Log], Awaitable[None]], limits: Limits | None = None
) -> None:
    async def run(server: Server) -> None:
        async with await server.connect("node/n001") as log:
            await body(server, log)

    in_cell(folder, run, limits=limits)


@pytest.mark.server
def test_facts_arrive_once_in_the_order_they_were_offered(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        offered: list[Observation] = []
        async with Running(log, origin, tmp_path / "spool") as publisher:
            for number in range(1500):
                offered.append(origin.kernel() if number % 7 == 0 else origin.sample())
                publisher.offer(offered[-1])
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await publisher.drained()
            assert publisher.waiting_count == 0
        assert await all_facts(server) == offered

    as_node(tmp_path, body)


@pytest.mark.server
def test_a_burst_beyond_memory_goes_through_the_disk_in_order_and_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "MEMORY_MESSAGES_MAX", 10)

    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        offered = [origin.sample() for _ in range(3000)]
        async with Running(log, origin, tmp_path / "spool") as publisher:
            for each in offered:
                publisher.offer(each)
            await publisher.drained()
        assert await all_facts(server) == offered
        assert (tmp_path / "spool").stat().st_size == 0

    as_node(tmp_path, body)


@pytest.mark.server
def test_on_a_full_disk_facts_go_from_memory_and_samples_give_way_to_kernel_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spool: Spool, message: Message) -> bool:
        return False

    monkeypatch.setattr(publisher_module, "MEMORY_MESSAGES_MAX", 10)
    monkeypatch.setattr(Spool, "append", refuse)

    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        lines: list[Observation] = [origin.kernel(), origin.kernel()]
        samples: list[Observation] = [origin.sample() for _ in range(11)]
        async with Running(log, origin, tmp_path / "spool", durable={"kernel"}) as publisher:
            for each in [*lines, *samples]:
                publisher.offer(each)
            await publisher.drained()
            assert publisher.dropped_count == 3
            publisher.offer(last := origin.kernel())
            await publisher.drained()
        assert await all_facts(server) == [*lines, *samples[3:], last]

    as_node(tmp_path, body)


@pytest.mark.server
def test_an_outage_is_announced_and_what_was_seen_meanwhile_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "AWAY_S", 0.3)

    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        offered = [origin.sample() for _ in range(40)]
        async with Running(log, origin, tmp_path / "spool") as publisher:
            for each in offered[:10]:
                publisher.offer(each)
            await publisher.drained()
            await server.kill()
            for each in offered[10:20]:
                publisher.offer(each)
            await until(lambda: not publisher._queue, "some are on their way")
            for each in offered[20:30]:
                publisher.offer(each)
            await until(lambda: (tmp_path / "spool").stat().st_size > 0, "facts are spooled")
            for each in offered[30:]:
                publisher.offer(each)
            await server.restart()
            await publisher.drained()
        found = await all_facts(server)
        told = found.pop(10)
        assert isinstance(told, SpoolAnnounced)
        assert (told.since_ns, told.dropped_count) == (NOW_NS, 0)
        assert told.spooled_count >= 20
        assert found == offered

    as_node(tmp_path, body)


@pytest.mark.server
def test_what_an_earlier_life_could_not_deliver_is_delivered_as_its_own(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        first = Origin(start_ns=1)
        old = [first.sample() for _ in range(3)]
        before = Publisher(first.stamp, lambda: NOW_NS, tmp_path / "spool")
        for each in old:
            before.offer(each)
        before.close()
        second = Origin(start_ns=2)
        new = [second.sample()]
        async with Running(log, second, tmp_path / "spool") as publisher:
            assert publisher.waiting_count == 3
            publisher.offer(new[0])
            await publisher.drained()
        announced, *rest = await all_facts(server)
        assert isinstance(announced, SpoolAnnounced)
        assert announced.start_ns == 2
        assert announced.spooled_count >= 3
        assert rest == old + new

    as_node(tmp_path, body)


@pytest.mark.server
def test_a_fact_that_is_refused_for_good_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        stranger = SampleTaken(node="n002", start_ns=1, n=1, at_ns=NOW_NS)
        huge = origin.kernel("x" * 2**20 + "x")
        async with Running(log, origin, tmp_path / "spool") as publisher:
            good = [origin.sample() for _ in range(4)]
            for each in (good[0], stranger, good[1], huge, good[2], good[3]):
                publisher.offer(each)
            await publisher.drained()
            assert publisher.dropped_count == 2
        assert await all_facts(server) == good

    as_node(tmp_path, body)


@pytest.mark.server
def test_when_the_log_is_full_only_kernel_facts_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "FULL_RETRY_S", 0.05)

    async def body(server: Server, log: Log) -> None:
        origin = Origin()
        running = Running(log, origin, tmp_path / "spool")
        async with running as publisher:
            async with await server.connect("sim") as sim:
                with pytest.raises(LogFullError):
                    await publish_for_ever(sim, OTHER, b"x" * 1000, ttl_s=2)
            publisher.offer(origin.sample())
            publisher.offer(origin.kernel())
            await until(lambda: running.rates == ["kernel"], "the producer holds back")
            publisher.offer(origin.sample())
            assert publisher.dropped_count == 2
            await publisher.drained()  # once samples have expired there is room again
        kernel = KernelLineLogged(node="n001", start_ns=1, n=1, at_ns=NOW_NS, text="x")
        assert await all_facts(server) == [kernel]

    as_node(tmp_path, body, Limits(log_bytes=32 * 1024))


@pytest.mark.server
def test_the_fill_level_in_the_log_sets_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "FILL_PERIOD_S", 0.05)

    async def body(server: Server, log: Log) -> None:
        running = Running(log, Origin(), tmp_path / "spool")
        async with (
            running as publisher,
            await server.connect("sim") as sim,
            await server.connect("keeper") as keeper,
        ):
            for target_ppm, rate in ((850_000, "half"), (920_000, "kernel")):
                while (await measure(keeper, NOW_NS)).fill_ppm < target_ppm:
                    await sim.publish(OTHER, b"x" * 1000)
                await until(lambda rate=rate: publisher.rate == rate, rate)
            assert running.rates == ["half", "kernel"]

    as_node(tmp_path, body, Limits(log_bytes=128 * 1024))


messages = st.builds(
    Message, subject=st.text("abc.", min_size=1, max_size=8), payload=st.binary(max_size=40)
)


@given(st.lists(messages, max_size=12), st.integers(0, 12), st.integers(0, 400))
def test_a_spool_gives_back_what_it_took_also_after_a_crash_in_mid_write(
    tmp_path_factory: pytest.TempPathFactory, kept: list[Message], dropped: int, cut_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    spool = Spool(path, 10_000)
    assert all(spool.append(each) for each in kept)
    assert spool.head(100) == kept
    assert len(spool) == len(kept)
    spool.drop(min(dropped, len(kept)))
    assert spool.head(100) == kept[min(dropped, len(kept)) :]
    spool.close()
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(max(0, size - cut_bytes))
    again = Spool(path, 10_000)
    whole = again.head(100)
    assert whole == kept[: len(whole)]  # a prefix: order is never lost
    assert len(again) == len(whole)
    again.put_first([Message(subject="a", payload=b"first")])
    assert again.head(1)[0].payload == b"first"
    assert again.head(100)[1:] == whole
    again.close()


def test_a_spool_full_of_kernel_lines_refuses_and_a_folder_that_cannot_be_is_named(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "spool", 120)
    assert spool.append(framed("kernel", 1, 60))
    assert not spool.append(framed("kernel", 2, 60))
    assert len(spool) == 1
    spool.close()
    with pytest.raises(SpoolError, match="cannot open the spool"):
        Spool(tmp_path / "spool" / "below", 100)


KINDS = ("sample", "kernel", "device_state", "process")


def framed(kind: str, number: int, size: int) -> Message:
    payload = number.to_bytes(4, "little") + b"x" * size
    return Message(subject=f"nemesis.telemetry.n001.{kind}", payload=payload)


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 60)), min_size=20, max_size=60),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_the_oldest_telemetry_makes_room_and_no_line_of_a_kernel_does(
    tmp_path_factory: pytest.TempPathFactory,
    offered: list[tuple[str, int]],
    delivered: int,
    on_way: int,
) -> None:
    spool = Spool(tmp_path_factory.mktemp("s") / "spool", 1000)
    kept: list[Message] = []
    held: list[Message] = []
    for number, (kind, size) in enumerate(offered):
        message = framed(kind, number, size)
        if number == 6:  # some were delivered, and some are on their way
            spool.head(delivered)
            spool.drop(delivered)
            kept = kept[delivered:]
            held = spool.head(on_way)
        if spool.append(message):
            kept.append(message)
    left = spool.head(100)
    assert left[: len(held)] == held
    assert [each for each in kept if each in left] == left  # in order
    lost = [each for each in kept if each not in left]
    assert len(lost) == spool.evicted_count
    assert not {each.subject.rpartition(".")[2] for each in lost} & {"kernel", "process"}
    newest_lost = max((kept.index(each) for each in lost), default=0)
    older = kept[len(held) : newest_lost]
    assert all(e in lost or e.subject.rpartition(".")[2] in ("kernel", "process") for e in older)
    spool.close()
    again = Spool(spool._path, 1000)
    assert again.head(100)[-len(left) :] == left  # before them, what was delivered
    again.close()


@pytest.mark.parametrize("taken_bytes", [7, -1])
def test_a_full_disk_refuses_a_message_and_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_bytes: int
) -> None:
    spool = Spool(tmp_path / "spool", 10_000)
    first, second, third = (Message(subject=f"s.{k}", payload=b"x" * 50) for k in range(3))
    assert spool.append(first)
    whole = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if taken_bytes < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, data[:taken_bytes], at)

    monkeypatch.setattr("nemesis.streams.spool.os.pwrite", full)
    assert not spool.append(second)
    monkeypatch.undo()
    assert spool.append(third)
    assert spool.head(9) == [first, third]
    spool.close()
    again = Spool(tmp_path / "spool", 10_000)
    assert again.head(9) == [first, third]
    again.close()
