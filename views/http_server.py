"""Starts an HTTP server of ours, says where it listens, and ends it in order."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from nemesis.schemas.errors import NemesisError

SHUTDOWN_S: Final = 1.0


class PortTakenError(NemesisError):
    """Something else listens there, or nobody may."""


async def serve_until_ended(
    app: web.Application,
    task: asyncio.Task[None] | None,
    *,
    bind: str,
    port: int,
    query: str = "",
    up: Callable[[str], None],
) -> None:
    """Serve until cancelled, or until `task` ends; `up` gets the address.

    Raises:
        PortTakenError: cannot listen there.
    """
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
