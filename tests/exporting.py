"""An exporter of a log that holds one verdict."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nemesis.streams import pulse
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from nemesis.views.exporter.serving import serve
from tests.replay_logs import Log
from tests.test_dashboard_board import verdict


@asynccontextmanager
async def exported(server: Server, folder: Path) -> AsyncIterator[str]:
    """Its address while it serves; at the end it is cancelled, and ends by that."""
    log = Log()
    log.event(verdict(), key="i-1")
    attribution = await server.connect("processor/attribution")
    await attribution.publish(log.records[-1].subject, log.records[-1].payload)
    target = Target(url=server.url, credentials_folder=server.credentials_folder)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    pulses = pulse.pulses_folder(folder)
    serving = asyncio.ensure_future(
        serve(target, bind="127.0.0.1", port=0, pulses=pulses, up=address.set_result)
    )
    try:
        yield await address
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    assert serving.cancelled()
