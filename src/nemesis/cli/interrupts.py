"""How a command that runs until it is told ends: in order, and its exit status says who told it."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import typer

_INTERRUPTED = 130


def run_until_told(work: Coroutine[Any, Any, signal.Signals | None]) -> None:
    """Run it until it ends or a signal cancels it; it may say that it took the signal itself.

    Raises:
        typer.Exit: 130 after Ctrl-C; after SIGTERM the command is done like any other.
    """
    if asyncio.run(_until_told(work)) == signal.SIGINT:
        raise typer.Exit(_INTERRUPTED)


async def _until_told(work: Coroutine[Any, Any, signal.Signals | None]) -> signal.Signals | None:
    told: list[signal.Signals] = []
    running = asyncio.ensure_future(work)

    def end(number: signal.Signals) -> None:
        if not told:  # a second Ctrl-C does not cut the orderly end short
            running.cancel()
        told.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await running
    except asyncio.CancelledError:
        if not told:
            raise
        return told[0]
