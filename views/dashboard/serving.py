"""Starts the page's server and ends it in order: on a log, or on one recording without any log."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from aiohttp import web

from nemesis.schemas.errors import NemesisError
from nemesis.streams.contexts import Target
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.live import reading
from nemesis.views.dashboard.replays import Replays, open_replay
from nemesis.views.dashboard.web import application

SHUTDOWN_S: Final = 1.0


class PortTakenError(NemesisError):
    """Something else listens there, or nobody may."""


async def serve_live(
    target: Target,
    *,
    cell: str,
    where: str,
    bind: str,
    port: int,
    names: Iterable[str],
    up: Callable[[str], None],
) -> None:
    """Serve the page of a log until cancelled; `up` gets the address.

    Raises:
        WrongCredentialsError, LogUnavailableError, NoStreamsError: there is no log to read.
        PortTakenError: cannot listen there.
    """
    async with reading(target, cell=cell, where=where) as live:
        app = application(live.hub, live, Replays(), names=names)
        await _serve(app, live.task, bind=bind, port=port, up=up)


async def serve_recording(
    path: Path, *, bind: str, port: int, names: Iterable[str], up: Callable[[str], None]
) -> None:
    """Serve the page of one recording until cancelled.

    Raises:
        NoRecordingError, CorruptRecordingError, NewerRecordingError, TooLargeError: as they say.
        PortTakenError: cannot listen there.
    """
    replays = Replays()
    id = replays.add(await asyncio.to_thread(open_replay, path, path.name))
    app = application(Hub(Board(cell="")), None, replays, names=names)
    await _serve(app, None, bind=bind, port=port, query=f"?replay={id}", up=up)


async def _serve(
    app: web.Application,
    task: asyncio.Task[None] | None,
    *,
    bind: str,
    port: int,
    query: str = "",
    up: Callable[[str], None],
) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, bind, port)
        try:
            await site.start()
        except OSError as error:
            raise PortTakenError(
                f"cannot listen on {bind} port {port}: {error.strerror or error}",
                hint="say another --port, or 0 for any free one",
            ) from error
        host = f"[{bind}]" if ":" in bind else bind
        up(f"http://{host}:{runner.addresses[0][1]}/{query}")
        await (task if task is not None else asyncio.Event().wait())
    finally:
        await runner.cleanup()
