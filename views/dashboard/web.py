"""The routes of the page. All of them look up; the one thing taken in is a recording."""

import asyncio
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from nemesis.processors.fold import Input
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.printable import one_line
from nemesis.schemas.tokens import token_of
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.guard import guard, set_headers
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.incident_page import incident_document, pretty
from nemesis.views.dashboard.live import Live
from nemesis.views.dashboard.replays import Replay, Replays, open_replay
from nemesis.views.dashboard.sse import Streams
from nemesis.views.incidents import first_seen
from nemesis.views.shown import as_document, blocks_of

STATIC: Final = Path(__file__).with_name("static")
UPLOAD_BYTES_MAX: Final = 64 * 2**20
FEED_ROWS_MAX: Final = 500
_CHART_LIBRARY: Final = ("plotly", "package_data", "plotly.min.js")


class BadUploadError(NemesisError):
    """A file that found no room."""


class Site:
    """What the routes share."""

    def __init__(self, hub: Hub, live: Live | None, replays: Replays) -> None:
        self.hub: Final = hub
        self.live: Final = live
        self.replays: Final = replays
        self.streams: Final = Streams(hub)
        self._verifying: Final = asyncio.Lock()

    async def health(self, request: web.Request) -> web.Response:
        """For supervisors: whether the log is being read."""
        hub = self.hub
        status = 200 if self.live is None or (hub.ready and hub.connected) else 503
        return _json({"ready": hub.ready, "connected": hub.connected}, status=status)

    async def state(self, request: web.Request) -> web.Response:
        """The whole page, now or at a moment of a recording."""
        if "replay" in request.query:
            return _json((await self._board(request)).document() | {"ready": True})
        return _raw_json(self.hub.state())

    async def feed(self, request: web.Request) -> web.Response:
        """Rows of the feed before a sequence that hold words."""
        board = await self._board(request)
        before = _number(request, "before", 1 << 62)
        limit = min(FEED_ROWS_MAX, _number(request, "limit", 200))
        return _json(board.feed.before(before, limit, request.query.get("words", "")))

    async def incident(self, request: web.Request) -> web.Response:
        """One incident, whole."""
        board = await self._board(request)
        incident = board.incidents.by_id.get(board.incidents.named(request.query.get("id", "")))
        if incident is None:
            raise web.HTTPNotFound(text="no such incident\n")
        document = incident_document(incident)
        if incident.first_seen is None:
            record = await self._record(request, incident.first_seq)
            incident.first_seen = first_seen(record) if record is not None else None
            document = incident_document(incident)
        return _json(document)

    async def goodput(self, request: web.Request) -> web.Response:
        """Where the time of a job went, over time."""
        return _json((await self._board(request)).course(request.query.get("job", "")))

    async def fact(self, request: web.Request) -> web.Response:
        """One record of the log, as text for people."""
        record = await self._record(request, _number(request, "seq", 0))
        if record is None:
            raise web.HTTPNotFound(text="the log does not have it any more\n")
        document = as_document(Input(record))
        return _json({"seq": record.seq, "subject": document["subject"], "raw": pretty(document)})

    async def node(self, request: web.Request) -> web.Response:
        """One node: its parts, what is wrong with them, and its newest readings."""
        name = request.query.get("name", "")
        document = (await self._board(request)).node(name)
        if document is None:
            raise web.HTTPNotFound(text="no such node\n")
        if "replay" not in request.query and self.live is not None:
            document["sample"] = await _sample(self.live, name)
        return _json(document)

    async def take_recording(self, request: web.Request) -> web.Response:
        """Verify a recording that was dropped on the page, and hold it."""
        name = one_line(request.query.get("name", "recording"))[-80:]
        with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
            suffix = ".ndjson.zst" if name.endswith(".zst") else ".ndjson"
            path = Path(folder) / f"recording{suffix}"
            await _save(request, path)
            async with self._verifying:  # one at a time: it takes a core
                replay = await asyncio.to_thread(_opened, path, name)
        return _json({"id": self.replays.add(replay), **replay.document()})

    async def replay(self, request: web.Request) -> web.Response:
        """What is known of a recording."""
        return _json(self.replays.get(request.query.get("replay", "")).document())

    async def _board(self, request: web.Request) -> Board:
        if id := request.query.get("replay"):
            return await self.replays.get(id).board_at(_number(request, "at", 1 << 62))
        return self.hub.board

    async def _record(self, request: web.Request, seq: int) -> Record | None:
        if id := request.query.get("replay"):
            return self.replays.get(id).fact(seq)
        return await self.live.fact(seq) if self.live is not None else None


def application(
    hub: Hub, live: Live | None, replays: Replays, *, names: Iterable[str]
) -> web.Application:
    """The page's server; `live` None: only recordings are looked at.

    `names`: host names it may be asked for besides addresses.
    """
    site = Site(hub, live, replays)
    app = web.Application(middlewares=[guard(names), _explained], client_max_size=UPLOAD_BYTES_MAX)
    app.on_response_prepare.append(set_headers)
    app.router.add_get("/", _index)
    app.router.add_get("/healthz", site.health)
    app.router.add_get("/api/state", site.state)
    app.router.add_get("/api/changes", site.streams.serve)
    app.router.add_get("/api/feed", site.feed)
    app.router.add_get("/api/incident", site.incident)
    app.router.add_get("/api/fact", site.fact)
    app.router.add_get("/api/goodput", site.goodput)
    app.router.add_get("/api/node", site.node)
    app.router.add_get("/api/replay", site.replay)
    app.router.add_post("/api/replays", site.take_recording)
    app.router.add_get("/vendor/charts.js", _charts)
    app.router.add_static("/static/", STATIC)

    async def close(app: web.Application) -> None:
        await site.streams.close()

    app.on_shutdown.append(close)
    return app


@web.middleware
async def _explained(request: web.Request, handler: Any) -> web.StreamResponse:
    """Expected failures say what and what to do, in one line."""
    try:
        answer: web.StreamResponse = await handler(request)
    except NemesisError as error:
        return _failure(error, status=404 if error.exit_code == 3 else 422)
    except OSError as error:
        said = BadUploadError(
            f"this machine could not hold it: {error.strerror or error}",
            hint="make room for temporary files, or name a folder that has some in TMPDIR",
        )
        return _failure(said, status=507)
    return answer


def _failure(error: NemesisError, *, status: int) -> web.Response:
    body = {"error": {"code": error.code, "message": one_line(error.message),
                      "hint": one_line(error.hint)}}  # fmt: skip
    return _json(body, status=status)


async def _sample(live: Live, node: str) -> dict[str, Any] | None:
    """The newest readings of a node's GPUs."""
    record = await live.last_sample(token_of(node))
    item = Input(record) if record is not None else None
    if record is None or item is None or item.decoded() is None:
        return None
    blocks = blocks_of(item.value)
    return {"stored_ms": record.stored_ns // 1_000_000, "gpus": blocks["gpu"]}


async def _index(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(STATIC / "index.html")


async def _charts(request: web.Request) -> web.StreamResponse:
    """The charting library, out of the wheel that is installed; found without importing it."""
    package, *rest = _CHART_LIBRARY
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise web.HTTPNotFound(text="no charts: plotly is not installed\n")
    path = Path(spec.submodule_search_locations[0]).joinpath(*rest)
    return web.FileResponse(path)


async def _save(request: web.Request, path: Path) -> None:
    """Write a request's body to a file, in bounded memory.

    Raises:
        HTTPRequestEntityTooLarge: more than UPLOAD_BYTES_MAX.
    """
    size_bytes = 0
    with path.open("wb") as file:
        async for chunk in request.content.iter_chunked(1 << 16):
            size_bytes += len(chunk)
            if size_bytes > UPLOAD_BYTES_MAX:
                raise web.HTTPRequestEntityTooLarge(UPLOAD_BYTES_MAX, size_bytes)
            file.write(chunk)


def _opened(path: Path, name: str) -> Replay:
    """The recording in a file that its sender knows by another name.

    Raises: as `open_replay`.
    """
    try:
        return open_replay(path, name)
    except NemesisError as error:
        error.message = error.message.replace(str(path), name)
        raise


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default


def _json(document: Any, *, status: int = 200) -> web.Response:
    return _raw_json(msgspec.json.encode(document), status=status)


def _raw_json(body: bytes, *, status: int = 200) -> web.Response:
    response = web.Response(
        body=body,
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
    if len(body) > 1 << 14:
        response.enable_compression()
    return response
