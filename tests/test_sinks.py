"""Promises of `nemesis sink`: each event once in order, signed, and what nobody takes is said."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from nemesis.actors.sink import signing
from nemesis.actors.sink.delivery import Delivery, Event, PassingError, RefusedError, event_of
from nemesis.actors.sink.otlp import Otlp, headers_in
from nemesis.actors.sink.syslog import Syslog, line_of
from nemesis.actors.sink.webhook import CONTENT_TYPE, Webhook
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, decode_conclusion
from nemesis.streams.log import Log
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.replay_logs import START_NS
from tests.replay_logs import Log as HandMade
from tests.test_dashboard_board import recovery, verdict
from tests.test_dashboard_server import served

SECRET = b"0123456789abcdef01234567"
PATIENT = 50


class Hooks:
    """A receiver that answers as it is told, and remembers what it took."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.taken: list[tuple[str, bytes]] = []
        self.last_headers: dict[str, str] = {}

    async def take(self, request: web.Request) -> web.Response:
        self.asked += 1
        body = await request.read()
        self.last_headers = dict(request.headers)
        status = self.answers.pop(0) if self.answers else 204
        if status < 300:
            self.taken.append((request.headers["webhook-id"], body))
        headers = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=headers)


def with_hooks(folder: Path, hooks: Hooks, body: Callable[[Server, str], Awaitable[None]]) -> None:
    """A cell, and a receiver beside it."""

    async def run(server: Server) -> None:
        app = web.Application()
        app.router.add_post("/hook", hooks.take)
        async with served(app) as url:
            await body(server, f"{url}/hook")

    in_cell(folder, run)


async def write(server: Server, role: str, *facts: msgspec.Struct, start: int = 0) -> list[bytes]:
    made = HandMade()
    async with await server.connect(role) as log:
        for number, data in enumerate(facts, start=start):
            made.event(data, key=f"k{number}", id=f"{role}/{number}/0")
            await log.publish(made.records[-1].subject, made.records[-1].payload)
    return [record.payload for record in made.records]


class Sink:
    """A delivery that runs beside a test."""

    def __init__(self, server: Server, url: str, folder: Path, tries: int = PATIENT) -> None:
        self._server, self._url, self._folder, self._tries = server, url, folder, tries

    async def __aenter__(self) -> None:
        self._log: Log = await self._server.connect("sink")
        self._hook = await Webhook(self._url, SECRET).__aenter__()
        delivery = Delivery(
            self._log, self._hook, "pager", self._folder, tries=self._tries, wait_s=0.01
        )
        self._task = asyncio.ensure_future(delivery.run())
        await until((self._folder / "position.json").exists, "it has begun")

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._hook.__aexit__()
        await self._log.close()


@pytest.mark.server
def test_what_a_receiver_refuses_for_a_while_comes_in_order_once_and_as_it_is(
    tmp_path: Path,
) -> None:
    hooks = Hooks(503, 429, 204)

    async def body(server: Server, url: str) -> None:
        async with Sink(server, url, tmp_path / "sink"):
            sent = await write(server, "processor/attribution", verdict("i-1"), verdict("i-2"))
            await until(lambda: len(hooks.taken) == 2, "both are taken")
        assert [each for _, each in hooks.taken] == sent
        assert hooks.asked == 4
        assert hooks.last_headers["Content-Type"] == CONTENT_TYPE
        id, at = hooks.last_headers["webhook-id"], int(hooks.last_headers["webhook-timestamp"])
        assert (
            signing.headers(SECRET, id, at, sent[-1])["webhook-signature"]
            == (hooks.last_headers["webhook-signature"])
        )
        # away, and back: what came meanwhile is delivered, and nothing twice
        missed = await write(server, "processor/attribution", verdict("i-3"), start=2)
        async with Sink(server, url, tmp_path / "sink"):
            await until(lambda: len(hooks.taken) == 3, "what was missed is taken")
        assert hooks.taken[-1][1] == missed[0]

    with_hooks(tmp_path, hooks, body)


@pytest.mark.server
def test_what_nobody_will_take_becomes_a_fact_and_holds_nothing_up(tmp_path: Path) -> None:
    hooks = Hooks(410, 302, 500, 500, 204)

    async def body(server: Server, url: str) -> None:
        async with Sink(server, url, tmp_path / "sink", tries=2):
            facts = [verdict(f"i-{n}") for n in range(4)]
            await write(server, "processor/attribution", *facts)
            await write(server, "processor/healer", recovery(), start=4)
            await until(lambda: len(hooks.taken) == 2, "what follows is taken")
        async with await server.connect("reader") as log:
            subject = "nemesis.events.delivery_failed.*"
            records = [r async for r in log.read_range(1, 10**9, subject=subject)]
        said = [decode_conclusion("delivery_failed", r.payload)[1] for r in records]
        assert [(each.event, each.attempts, each.error) for each in said] == [
            ("processor/attribution/0/0", 1, "status 410"),
            ("processor/attribution/1/0", 1, "status 302"),
            ("processor/attribution/2/0", 2, "status 500"),
        ]
        assert [id for id, _ in hooks.taken] == [
            "processor/attribution/3/0", "processor/healer/4/0",
        ]  # fmt: skip

    with_hooks(tmp_path, hooks, body)


def test_a_collector_gets_a_record_that_the_protocol_takes_and_its_refusal_is_one() -> None:
    logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    bodies: list[bytes] = []
    partial = {"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "no"}}

    async def take(request: web.Request) -> web.Response:
        assert request.headers["api-key"] == "a b"
        bodies.append(await request.read())
        return web.json_response({} if len(bodies) == 1 else partial)

    async def conversation() -> None:
        app = web.Application()
        app.router.add_post("/v1/logs", take)
        async with served(app) as url, Otlp(url, headers_in("api-key=a%20b"), lambda: 9) as sink:
            await sink.deliver(event())
            with pytest.raises(RefusedError):
                await sink.deliver(event())

    asyncio.run(conversation())
    told = json_format.Parse(bodies[0], logs.ExportLogsServiceRequest())
    (record,) = told.resource_logs[0].scope_logs[0].log_records
    assert (record.severity_number, record.event_name) == (13, "dev.nemesis.fault_attributed.v1")
    assert (record.time_unix_nano, record.observed_time_unix_nano) == (START_NS, 9)
    attributes = {each.key: each.value.string_value for each in record.attributes}
    assert attributes["nemesis.incident"] == "i-1"
    assert attributes["cloudevents.event_id"] == "attribution/7/0"


@pytest.mark.parametrize("text", ["api-key", "=x", "a=b,c"])
def test_headers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(NemesisError):
        headers_in(text)


def test_the_signature_is_that_of_the_standard(tmp_path: Path) -> None:
    # the example of the specification's own libraries
    path = tmp_path / "secret"
    path.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    signed = signing.headers(
        signing.secret_in(path), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("text", ["", "hunter2", "whsec_c2hvcnQ=", "whsec_***"])
def test_a_file_without_a_secret_is_refused_with_how_to_make_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret").write_text(text)
    with pytest.raises(signing.BadSecretError) as refused:
        signing.secret_in(tmp_path / "secret")
    assert "openssl rand" in refused.value.hint


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("webhook", "http://pager.example/x"), 4, "unencrypted"),
        (("webhook", "ftp://pager.example/x"), 1, "not a web address"),
        (("webhook", "https://pager.example/x"), 2, "no-secret"),
    ],
)
def test_a_hook_that_could_not_be_trusted_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    ran = nemesis("sink", *arguments, "--secret", str(tmp_path / "no-secret"))
    assert ran.returncode == status
    assert says in ran.stderr


def event() -> Event:
    made = HandMade()
    made.event(verdict(reason="the GPU\nis gone"), key="i-1", id="attribution/7/0")
    return Event("attribution/7/0", "fault_attributed", "i-1", made.records[-1].payload)


def test_a_line_for_syslog_is_one_line_with_what_of_what_and_why() -> None:
    line = line_of(event())
    assert line.startswith("fault_attributed i-1 incident=i-1 id=attribution/7/0: the GPU")
    assert "\n" not in line


@pytest.mark.parametrize("body", [b"[1]", b'{"id": "a", "data": null}', b'{"id": "a"}', b"x"])
def test_what_is_no_event_reaches_no_receiver(body: bytes) -> None:
    assert event_of(Record(7, "nemesis.events.fault_attributed.i-1", START_NS, body)) is None


def test_lines_over_tcp_end_as_a_stream_of_lines_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as daemon:

        async def conversation() -> None:
            async with Syslog(f"127.0.0.1:{daemon.getsockname()[1]}", tcp=True) as sink:
                await sink.deliver(event())
                await sink.deliver(event())

        asyncio.run(conversation())
        connection, _ = daemon.accept()
        with connection, connection.makefile("rb") as lines:
            first, second = lines.readlines()
    assert first == second
    assert first.startswith(b"<28>nemesis: fault_attributed i-1")
    assert b"\0" not in first


@pytest.mark.parametrize("id", ["a\nb", "a\0"])
def test_an_id_that_would_break_a_header_is_refused_and_stops_no_sink(id: str) -> None:
    async def conversation() -> None:
        app = web.Application()
        app.router.add_post("/", Hooks().take)
        async with served(app) as url, Webhook(url, SECRET) as hook:
            with pytest.raises(RefusedError, match="no such header"):
                await hook.deliver(Event(id, "f", "k", b"{}"))

    asyncio.run(conversation())


def test_a_daemon_gets_the_line_and_one_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    daemon.bind(str(path))
    daemon.settimeout(5)

    async def conversation() -> bytes:
        async with Syslog(str(path)) as sink:
            await sink.deliver(event())
            got = daemon.recv(2000)
            daemon.close()
            with pytest.raises(PassingError):
                await sink.deliver(event())
            return got

    got = asyncio.run(conversation())
    facility_daemon_warning = b"<28>nemesis: "
    assert got.startswith(facility_daemon_warning + b"fault_attributed i-1")
