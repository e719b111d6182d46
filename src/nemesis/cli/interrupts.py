"""How a command ends that runs on an event loop: in order, and its exit status says who told it."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

import typer

_INTERRUPTED = 130
TERMINATED = 143
"""128 and the number of SIGTERM, as a shell has it."""
T = TypeVar("T")


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own; a Ctrl-C that comes while the loop is made waits until it is.

    `asyncio.run` takes Ctrl-C in order only once the loop runs: one moment earlier it leaves a
    half-made loop behind, and with it a page of text.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # Ctrl-C and its handlers are the main thread's
    told: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        told.append(number)

    usual = signal.signal(signal.SIGINT, wait)
    try:
        with asyncio.Runner() as runner:
            runner.get_loop()
            signal.signal(signal.SIGINT, usual)
            if told:
                raise KeyboardInterrupt
            return runner.run(work)
    finally:
        signal.signal(signal.SIGINT, usual)
        work.close()


def run_until_told(work: Coroutine[Any, Any, signal.Signals | None]) -> None:
    """Run it until it ends or a signal cancels it; it may say that it took the signal itself.

    Raises:
        typer.Exit: 130 after Ctrl-C; after SIGTERM the command is done like any other.
    """
    if run_on_loop(_until_told(work)) == signal.SIGINT:
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
