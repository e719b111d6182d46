"""Starts the exporter on a log and ends it in order."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from nemesis.streams import pulse
from nemesis.streams.contexts import Target
from nemesis.streams.provision import require_streams
from nemesis.views.exporter.live import ROLE, Live
from nemesis.views.exporter.web import application
from nemesis.views.http_server import serve_until_ended


async def serve(
    target: Target, *, bind: str, port: int, pulses: Path, up: Callable[[str], None]
) -> None:
    """Serve the metrics of a log until cancelled; `up` gets the address.

    Raises:
        WrongCredentialsError, LogUnavailableError, NoStreamsError: there is no log to read.
        PortTakenError: cannot listen there.
    """
    async with await target.connect(ROLE, name="nemesis exporter") as log:
        await require_streams(log.connection, target.url)
        live = Live(log)
        task = asyncio.create_task(live.run(), name="reading the log")
        try:
            serving = serve_until_ended(application(live), task, bind=bind, port=port, up=up)
            await pulse.beside(serving, pulses, "exporter", log.is_connected)
        finally:
            task.cancel()
            await asyncio.wait({task})
