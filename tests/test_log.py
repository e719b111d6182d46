"""Writing to the log and reading it back, against a real server."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from nemesis.schemas.registry import EVENTS, TELEMETRY
from nemesis.streams.batch import parse_time_ns
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    UndeliverableError,
)
from nemesis.streams.log import SNAPSHOT_TTL_S, TELEMETRY_TTL_S, Log, Message, ttl_of
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from tests.cells import back, in_cell, publish_for_ever, until

SAMPLE = "nemesis.telemetry.n001.sample"
CURSOR = "nemesis.cursor.healer"
DECIDED = "nemesis.events.recovery_decided.llama"


def decided(number: int) -> Message:
    return Message(subject=DECIDED, payload=b"%d" % number)


def cursor(expected: int, payload: bytes = b"p") -> Message:
    return Message(subject=CURSOR, payload=payload, expected_last_subject_seq=expected)


def as_healer(
    folder: Path, body: Callable[[Server, Log], Awaitable[None]], limits: Limits | None = None
) -> None:
    async def run(server: Server) -> None:
        async with await server.connect("processor/healer") as log:
            await body(server, log)

    in_cell(folder, run, limits=limits)


@pytest.mark.server
def test_a_batch_is_stored_in_a_row_and_its_last_sequence_comes_back(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        assert await log.commit([decided(0)]) == 1
        assert await log.commit([*map(decided, range(1, 998)), cursor(0)]) == 999
        records = [record async for record in log.read_range(1, 999)]
        assert [record.seq for record in records] == list(range(1, 1000))
        assert [record.payload for record in records[:998]] == [b"%d" % n for n in range(998)]
        assert records[-1].subject == CURSOR
        assert [r.stored_ns for r in records] == sorted(r.stored_ns for r in records)

    as_healer(tmp_path, body)


@pytest.mark.server
def test_a_batch_with_a_stale_position_leaves_nothing_behind(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        await log.commit([decided(0), cursor(0)])
        for stale in (0, 1, 3):
            with pytest.raises(PositionMovedError):
                await log.commit([decided(9), cursor(stale)])
            with pytest.raises(PositionMovedError):
                await log.publish(CURSOR, b"p", expected_last_subject_seq=stale)
        assert (await log.bounds()).last_seq == 2
        assert await log.commit([decided(1), cursor(2)]) == 4

    as_healer(tmp_path, body)


@pytest.mark.server
def test_of_two_writers_who_expect_the_same_one_wins(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        async with await server.connect("processor/healer") as other:
            position = 0
            for number in range(20):
                outcomes = await asyncio.gather(
                    log.commit([decided(number), cursor(position)]),
                    other.commit([decided(number), cursor(position)]),
                    return_exceptions=True,
                )
                won = [each for each in outcomes if isinstance(each, int)]
                lost = [each for each in outcomes if isinstance(each, PositionMovedError)]
                assert (len(won), len(lost)) == (1, 1), outcomes
                position = won[0]
            assert (await log.bounds()).last_seq == 40

    as_healer(tmp_path, body)


@pytest.mark.server
def test_what_will_never_be_taken_is_told_at_once(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        for message in (
            Message(subject=DECIDED, payload=b"x" * 2**20 + b"x"),
            Message(subject="nemesis.elsewhere.x", payload=b""),
            Message(subject="nemesis.events.two words.x", payload=b""),
            Message(subject="nemesis.events.attempt_started.x", payload=b""),
        ):
            with pytest.raises(UndeliverableError):
                await log.commit([message])
            with pytest.raises(UndeliverableError):
                await log.commit([decided(0), message, cursor(0)])
        for count in (0, 1001):
            with pytest.raises(UndeliverableError, match=f"{count} messages"):
                await log.commit([decided(0)] * count)
        assert (await log.bounds()).messages_count == 0
        assert log.connection.refused_count >= 2
        assert "permissions violation" in log.connection.errors[-1]

    as_healer(tmp_path, body)


@pytest.mark.server
def test_single_messages_are_read_back(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        empty = await log.bounds()
        assert (empty.first_seq, empty.last_seq, empty.last_stored_ns) == (0, 0, 0)
        assert await log.last(CURSOR) is None
        assert await log.get(1) is None
        await log.commit([decided(7), cursor(0, b"here")])
        found = await log.get(1)
        assert found is not None
        assert (found.seq, found.subject, found.payload) == (1, DECIDED, b"7")
        last = await log.last(CURSOR)
        assert last is not None
        assert (last.seq, last.payload) == (2, b"here")
        assert await log.get(3) is None
        assert await log.get(0) is None
        bounds = await log.bounds()
        assert (bounds.first_seq, bounds.last_seq, bounds.messages_count) == (1, 2, 2)
        assert 0 < bounds.used_bytes < bounds.limit_bytes
        assert bounds.last_stored_ns == last.stored_ns

    as_healer(tmp_path, body)


@pytest.mark.server
def test_a_full_log_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        await log.publish(DECIDED, b"first")
        with pytest.raises(LogFullError):
            await publish_for_ever(log, DECIDED, b"x" * 4000)
        with pytest.raises(LogFullError):
            await log.commit([Message(subject=DECIDED, payload=b"x" * 4000), cursor(0)])
        first = await log.get(1)
        assert first is not None
        assert first.payload == b"first"

    as_healer(tmp_path, body, Limits(log_bytes=64 * 1024))


@pytest.mark.server
def test_an_answer_that_cannot_come_is_not_waited_for(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # it will never answer
        waiting = asyncio.ensure_future(log.commit([decided(0), cursor(0)], timeout_s=60))
        await until(lambda: bool(log.connection._waiting), "the commit is on its way")
        await server.kill()
        with pytest.raises(LogUnavailableError, match="the connection broke"):
            await waiting
        await until(lambda: log.lost_count > 0, "the loss is noticed")
        with pytest.raises(LogUnavailableError, match="not connected"):
            await log.publish(DECIDED, b"")
        with pytest.raises(LogUnavailableError):
            await log.connection.flush()
        await server.restart()
        await back(log)
        record = await log.last(CURSOR)  # stored or not: the same again is safe
        if record is None:
            await log.commit([decided(0), cursor(0)])
        with pytest.raises(PositionMovedError):
            await log.commit([decided(0), cursor(0)])

    as_healer(tmp_path, body)


@pytest.mark.server
def test_a_missing_stream_is_unavailable_and_not_a_crash(tmp_path: Path) -> None:
    async def body(server: Server, log: Log) -> None:
        admin = await server.connect("admin")
        nowhere = Log(admin.connection, stream="NOWHERE")
        with pytest.raises(LogUnavailableError, match="NOWHERE: stream not found"):
            await nowhere.bounds()
        with pytest.raises(LogUnavailableError, match="nobody answers"):
            await log.connection.request("$JS.API.CONSUMER.MSG.NEXT.NEMESIS.none", b"")
        await admin.close()
        with pytest.raises(LogUnavailableError):
            await admin.bounds()

    as_healer(tmp_path, body)


@pytest.mark.server
def test_a_connection_that_is_closed_while_it_reconnects_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def connect_to_server(client: Client, address: object) -> None:
        """Loses the first cancellation, as asyncio.wait_for may when a connection is refused."""
        try:
            tries.append("begun")
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            tries.append("cancelled")
            if tries.count("cancelled") == 1:
                raise ConnectionRefusedError from None
            raise

    async def body(server: Server) -> None:
        node = await server.connect("node/n001")
        monkeypatch.setattr(Client, "_connect_to_server", connect_to_server)
        await server.kill()
        await until(lambda: tries == ["begun"], "it tries to reconnect")
        await node.close()
        assert tries[1] == "cancelled"
        assert node.connection.client.is_closed
        assert not [t for t in asyncio.all_tasks() if "reconnect" in repr(t.get_coro())]
        monkeypatch.undo()

    in_cell(tmp_path, body)


@pytest.mark.server
def test_closing_ends_what_waits(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        log = await server.connect("actor/job")
        plan = asyncio.ensure_future(log.connection.request("nemesis.report.x", timeout_s=60))
        other = await server.connect("node/n001")

        async def ignore(msg: Msg) -> None:
            return

        await other.connection.subscribe("nemesis.plan.n001", ignore)
        await other.connection.flush()
        answer = asyncio.ensure_future(
            log.connection.request("nemesis.plan.n001", b"", timeout_s=60)
        )
        with pytest.raises(LogUnavailableError, match=r"no answer on .* within 0\.1 s"):
            await log.connection.request("nemesis.plan.n001", b"", timeout_s=0.1)
        with pytest.raises(UndeliverableError, match=r"may not publish to nemesis\.report\.x"):
            await plan
        await log.close()
        with pytest.raises(LogUnavailableError, match="closed"):
            await answer
        await other.close()

    in_cell(tmp_path, body)


def test_every_kind_is_kept_as_the_table_of_facts_says() -> None:
    for token, kind in TELEMETRY.items():
        expected = "never" if kind.kept_for_ever else TELEMETRY_TTL_S
        assert ttl_of(f"nemesis.telemetry.n001.{token}") == expected
    for token, kind in EVENTS.items():
        assert kind.kept_for_ever
        assert ttl_of(f"nemesis.events.{token}.x") == "never"
    assert ttl_of("nemesis.events.of_a_newer_release.x") == "never"
    assert ttl_of("nemesis.telemetry.n001.of_a_newer_release") == TELEMETRY_TTL_S
    assert ttl_of("nemesis.cursor.healer") == "never"
    assert ttl_of("nemesis.cursor.healer.snapshot") == SNAPSHOT_TTL_S


@pytest.mark.parametrize(
    ("text", "at_ns"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("2026-11-30T05:00:00.123456789Z", 1_796_014_800_123_456_789),
        ("0001-01-01T00:00:00Z", 0),
    ],
)
def test_the_servers_times_are_whole_nanoseconds(text: str, at_ns: int) -> None:
    assert parse_time_ns(text) == at_ns
