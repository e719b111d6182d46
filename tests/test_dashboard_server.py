"""Promises of the page's server: who may ask, what it answers, what it never does."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from nemesis.replay.slices import matching
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.operated import NoteAdded
from nemesis.streams.contexts import Target
from nemesis.streams.errors import InputGapError, LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.server import Server
from nemesis.views.dashboard import live as live_reading
from nemesis.views.dashboard import web as routes
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.guard import ExposedError, check_bind, may_ask_for
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.live import reading
from nemesis.views.dashboard.replays import REPLAYS_MAX, NoReplayError, Replays, open_replay
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.test_dashboard_board import verdict

RECORDING = Path(__file__).parent / "recordings" / "gpu-off-bus.ndjson.zst"
STATIC = routes.STATIC


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """The address of the app while it runs."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def asked(body: Callable[[aiohttp.ClientSession, str], Awaitable[None]]) -> None:
    """Run a conversation with a page of recordings only."""

    async def run() -> None:
        app = routes.application(Hub(Board(cell="lab")), None, Replays(), names=["nem.example"])
        async with served(app) as url, aiohttp.ClientSession() as session:
            await body(session, url)

    asyncio.run(run())


async def sent(session: aiohttp.ClientSession, url: str, content: bytes, **query: str) -> Any:
    """(status, document) of a recording that the page sends."""
    async with session.post(
        f"{url}/api/replays", params=query, data=content, headers={"Origin": url}
    ) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await (answer.json() if is_json else answer.text())


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("127.0.0.1:8711", True), ("localhost:8711", True), ("LOCALHOST", True),
        ("[::1]:8711", True), ("[::1]", True), ("10.1.2.3:8711", True), ("nem.example:80", True),
        ("evil.example:8711", False), ("localhost.evil.example", False), ("", False),
        ("127.0.0.1.evil.example:8711", False),
    ],
)  # fmt: skip
def test_only_addresses_and_known_names_may_be_asked_for(host: str, may: bool) -> None:
    assert may_ask_for(host, ["nem.example"]) is may


def test_listening_beyond_loopback_must_be_meant() -> None:
    for address in ("127.0.0.1", "::1", "localhost"):
        check_bind(address, exposed=False)
    for address in ("0.0.0.0", "10.1.2.3", "::"):  # noqa: S104  # what is refused
        with pytest.raises(ExposedError, match="without signing in"):
            check_bind(address, exposed=False)
        check_bind(address, exposed=True)


def test_the_command_refuses_to_be_open_to_all_and_says_what_that_means() -> None:
    ran = nemesis("dashboard", "--bind", "0.0.0.0")  # noqa: S104
    assert ran.returncode == 4
    assert "read every fact of the log" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_page_of_somebody_else_is_turned_away() -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(f"{url}/", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
        for origin in ("http://evil.example", "null"):
            async with session.post(
                f"{url}/api/replays", data=b"x", headers={"Origin": origin}
            ) as answer:
                assert answer.status == 403

    asked(body)


def test_every_answer_forbids_scripts_and_frames_of_others() -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        for path in ("/", "/static/main.js", "/api/state", "/nothing", "/healthz"):
            async with session.get(url + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] in ("no-cache", "no-store")

    asked(body)


def test_nothing_can_be_changed_but_a_recording_looked_at() -> None:
    app = routes.application(Hub(Board(cell="")), None, Replays(), names=[])
    methods = {(r.method, r.resource.canonical) for r in app.router.routes() if r.resource}
    changing = {(m, where) for m, where in methods if m not in ("GET", "HEAD")}
    assert changing == {("POST", "/api/replays")}


def test_a_recording_is_verified_and_shown_at_any_moment() -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        status, replay = await sent(session, url, RECORDING.read_bytes(), name="x.ndjson.zst")
        assert (status, replay["verdict"]) == (200, "equal")

        async def state(at_ms: int) -> Any:
            query = {"replay": replay["id"], "at": str(at_ms)}
            async with session.get(f"{url}/api/state", params=query) as answer:
                assert answer.status == 200
                return await answer.json()

        end = await state(replay["to_ms"])
        assert len(end["incidents"]) == 1
        start = await state(replay["from_ms"])
        assert start["incidents"] == []
        assert await state(replay["to_ms"]) == end, "there and back again"
        query = {"replay": replay["id"], "id": end["incidents"][0]["id"]}
        async with session.get(f"{url}/api/incident", params=query) as answer:
            story = await answer.json()
        assert "Xid" in story["said"]["evidence"][0]["text"]
        assert story["seen"]["fact"] == "kernel"

    asked(body)


def test_what_is_no_recording_or_too_large_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        status, said = await sent(session, url, b"garbage\n", name="x.ndjson")
        assert status == 422
        assert "expected the header of a recording" in said["error"]["message"]
        damaged = bytearray(RECORDING.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        status, _ = await sent(session, url, bytes(damaged), name="x.ndjson.zst")
        assert status == 422
        monkeypatch.setattr(routes, "UPLOAD_BYTES_MAX", 1000)
        status, _ = await sent(session, url, RECORDING.read_bytes(), name="x.ndjson.zst")
        assert status == 413

    asked(body)


def test_an_upload_goes_by_its_own_name_and_is_told_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        status, said = await sent(session, url, b"garbage\n", name="mine.ndjson")
        assert (status, said["error"]["message"][:12]) == (422, "mine.ndjson:")
        monkeypatch.setattr(tempfile, "tempdir", "/dev/full/none")
        status, said = await sent(session, url, b"garbage\n", name="mine.ndjson")
        assert (status, said["error"]["code"]) == (507, "bad_upload")

    asked(body)


def test_only_the_latest_recordings_are_held() -> None:
    replays = Replays()
    replay = open_replay(RECORDING, "x")
    ids = [replays.add(replay) for _ in range(REPLAYS_MAX + 1)]
    with pytest.raises(NoReplayError):
        replays.get(ids[0])
    assert replays.get(ids[-1]) is replay


async def messages(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """(id, document) of each server-sent event."""
    id = ""
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            yield id, msgspec.json.decode(line[6:])


@pytest.mark.server
def test_a_browser_hears_of_changes_and_takes_up_where_it_was(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        async with (
            reading(target, cell="test", where="") as live,
            served(routes.application(live.hub, live, Replays(), names=[])) as url,
            aiohttp.ClientSession() as session,
            await server.connect("processor/attribution") as log,
        ):
            await until(lambda: live.hub.ready, "the past is read")
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 200
            async with session.get(f"{url}/api/state") as answer:
                state = await answer.json()

            async def say(incident: str) -> None:
                subject, payload = encode_conclusion(
                    id=incident, source="/x", at_ns=1, data=verdict(incident), key=incident
                )
                await log.publish(subject, payload)

            async def heard(where: dict[str, str], incident: str) -> str:
                async with session.get(f"{url}/api/changes", **where) as answer:  # type: ignore[arg-type]
                    async for id, changes in messages(answer):
                        if incident in {row["id"] for row in changes.get("incidents", [])}:
                            return id
                raise AssertionError(f"{incident} was not heard of")

            await say("i-1")
            params = {"since": f"{state['run']}-{state['version']}"}
            async with asyncio.timeout(30):
                id = await heard({"params": params}, "i-1")  # type: ignore[dict-item]
                await say("i-2")
                again = {"headers": {"Last-Event-ID": id}}
                assert await heard(again, "i-2") != id  # type: ignore[arg-type]
            async with session.get(f"{url}/api/fact", params={"seq": "1"}) as answer:
                assert (await answer.json())["subject"] == "nemesis.events.fault_attributed.i-1"

    in_cell(tmp_path, body)


@pytest.mark.server
def test_a_log_that_was_rolled_back_is_read_anew(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        async with (
            reading(target, cell="test", where="") as live,
            await server.connect("processor/attribution") as log,
        ):
            await until(lambda: live.hub.ready, "the past is read")
            subject, payload = encode_conclusion(
                id="1", source="/x", at_ns=1, data=verdict("i-1"), key="i-1"
            )
            await log.publish(subject, payload)
            await until(lambda: "i-1" in live.hub.board.incidents.by_id, "it is read")
            run = live.hub.run
            live.hub.board.last_seq += 1000  # as if more had been read than there is
            await until(lambda: live.hub.run != run and live.hub.ready, "it is read anew")
            assert "i-1" in live.hub.board.incidents.by_id
            assert live.hub.board.last_seq < 1000

    in_cell(tmp_path, body)


@pytest.mark.server
@pytest.mark.parametrize("error", [LogUnavailableError("away"), InputGapError("a gap")])
def test_a_log_that_goes_away_while_the_past_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: NemesisError
) -> None:
    tried: list[str] = []

    async def breaking(log: Log, subject: str) -> AsyncIterator[Record]:
        tried.append(subject)
        async for record in matching(log, subject):
            yield record
            if len(tried) < 3:
                raise error

    monkeypatch.setattr(live_reading, "matching", breaking)

    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        subject, payload = encode_conclusion(
            id="1", source="/x", at_ns=1, data=verdict("i-1"), key="i-1"
        )
        async with await server.connect("processor/attribution") as log:
            await log.publish(subject, payload)
        async with reading(target, cell="test", where="") as live:
            await live.until_ready()
            assert len(tried) > 3
            assert live.hub.connected
            assert "i-1" in live.hub.board.incidents.by_id

    in_cell(tmp_path, body)


@pytest.mark.server
def test_many_events_are_few_messages(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        async with (
            reading(target, cell="test", where="") as live,
            served(routes.application(live.hub, live, Replays(), names=[])) as url,
            aiohttp.ClientSession() as session,
            await server.connect("operator") as log,
        ):
            await until(lambda: live.hub.ready, "the past is read")
            since = {"since": f"{live.hub.run}-{live.hub.board.version}"}
            async with session.get(f"{url}/api/changes", params=since) as answer:
                for number in range(400):
                    note = NoteAdded(at_ns=1, by="ann", reason="", text="x", incident="i-1")
                    subject, payload = encode_conclusion(
                        id=str(number), source="/x", at_ns=1, data=note, key="i-1"
                    )
                    await log.publish(subject, payload)
                rows_count = messages_count = last_seq = 0
                async for _, changes in messages(answer):
                    messages_count += 1
                    rows_count += len(changes.get("feed", []))
                    last_seq = changes["log"]["last_seq"]
                    if last_seq >= 400:
                        break
            assert messages_count < 100
            assert rows_count <= 400

    in_cell(tmp_path, body)


def test_the_page_has_no_way_to_turn_words_into_markup() -> None:
    scripts = sorted(STATIC.glob("*.js"))
    assert scripts
    for script in scripts:
        text = script.read_text()
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
        ):
            assert forbidden not in text, script.name
        assert text.startswith("// "), f"{script.name} does not say what it is for"
        assert text.count("\n") <= 400, script.name
    page = (STATIC / "index.html").read_text()
    assert " style=" not in page
    assert " onclick=" not in page
