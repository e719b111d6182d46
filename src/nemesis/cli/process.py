"""`nemesis process`: keep processors at work."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    QuietOption,
    ServerOption,
    say_up,
)
from nemesis.cli.interrupts import run_until_told

if TYPE_CHECKING:
    from nemesis.streams.contexts import Target


def process(
    processors: Annotated[
        list[str] | None, typer.Argument(help="Their names; without, all of this release.")
    ] = None,
    *,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Each processor in a process of its own.")
    ] = False,
    copies: Annotated[int, typer.Option(min=1, max=8, help="Copies of each process.")] = 1,
    once: Annotated[
        bool, typer.Option("--once", help="Not supervised: the first end is the end.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Run processors until Ctrl-C: read the log, conclude, write each conclusion once."""
    import logging

    from nemesis.processors.catalogue import CATALOGUE
    from nemesis.streams.contexts import find
    from nemesis.streams.copy import check_names

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    names = processors or sorted(CATALOGUE)
    check_names(names, CATALOGUE)
    target = find(
        server=server or None,
        context=context or None,
        cell=cell,
        credentials_folder=credentials,
    )

    async def tell() -> None:
        if not quiet:
            await say_up(target, f"processor/{names[0]}", cell, server, context)

    if once:
        run_until_told(_copy(names, target, cell, tell))
        return
    command = [sys.executable, "-m", "nemesis.cli", "process", "--once", "--quiet", "--cell", cell]
    command += ["--server", server] if server else []
    command += ["--context", context] if context else []
    command += ["--credentials", str(credentials)] if credentials else []
    groups = [[name] for name in names] if apart else [list(names)]
    commands = {
        f"{'+'.join(group)} {number}": [*command, *group]
        for group in groups
        for number in range(copies)
    }
    run_until_told(_supervise(commands, tell))


async def _copy(
    names: list[str], target: "Target", cell: str, tell: Callable[[], Awaitable[None]]
) -> signal.Signals | None:
    from nemesis.cli.models import catalogue
    from nemesis.streams.copy import run_copy
    from nemesis.streams.server import state_folder
    from nemesis.streams.status import copies_folder

    await tell()
    folder = copies_folder(state_folder(cell))
    return await run_copy(names, catalogue(), connect=target.connect, folder=folder)


async def _supervise(commands: dict[str, list[str]], tell: Callable[[], Awaitable[None]]) -> None:
    from nemesis.streams.supervisor import Supervisor

    await tell()
    async with Supervisor(commands):
        await asyncio.Event().wait()
