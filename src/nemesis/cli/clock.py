"""`nemesis clock`: the ticker and the keeper of a log whose parts run as services of their own."""

import asyncio

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    QuietOption,
    ServerOption,
    say_up,
)
from nemesis.cli.interrupts import run_until_told


def clock(
    *,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Tick each second and measure the log each minute, until Ctrl-C. Any number may run.

    `nemesis serve` does this too: it is for logs whose parts are services of their own.
    """
    import logging
    import time

    from nemesis.streams import crew, pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    target = find(
        server=server or None,
        context=context or None,
        cell=cell,
        credentials_folder=credentials,
    )

    async def run() -> None:
        if not quiet:
            await say_up(target, "keeper", cell, server, context)
        async with (
            await target.connect("keeper", name="clock") as log,
            crew.clockwork(target, time.time_ns, logging.getLogger(__name__).warning),
        ):
            folder = pulse.pulses_folder(state_folder(cell))
            await pulse.beside(asyncio.Event().wait(), folder, "clock", log.is_connected)

    run_until_told(run())
