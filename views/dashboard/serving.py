"""Starts the page's server and ends it in order: on a log, or on one recording without any log."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from nemesis.streams.contexts import Target
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.live import reading
from nemesis.views.dashboard.replays import Replays, open_replay
from nemesis.views.dashboard.web import application
from nemesis.views.http_server import serve_until_ended


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
        await serve_until_ended(app, live.task, bind=bind, port=port, up=up)


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
    await serve_until_ended(app, None, bind=bind, port=port, query=f"?replay={id}", up=up)
