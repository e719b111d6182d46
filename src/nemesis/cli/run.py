"""`nemesis run`: keep processors at work."""

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption

if TYPE_CHECKING:
    from nemesis.streams.contexts import Target


def run(
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
    if once:
        asyncio.run(_copy(names, target, cell))
        return
    command = [sys.executable, "-m", "nemesis.cli", "run", "--once", "--cell", cell]
    command += ["--server", server] if server else []
    command += ["--context", context] if context else []
    command += ["--credentials", str(credentials)] if credentials else []
    groups = [[name] for name in names] if apart else [list(names)]
    asyncio.run(
        _supervise(
            {
                f"{'+'.join(group)} {number}": [*command, *group]
                for group in groups
                for number in range(copies)
            }
        )
    )


async def _copy(names: list[str], target: "Target", cell: str) -> None:
    from nemesis.processors.catalogue import CATALOGUE
    from nemesis.streams.copy import run_copy
    from nemesis.streams.server import state_folder
    from nemesis.streams.status import copies_folder

    folder = copies_folder(state_folder(cell))
    await run_copy(names, CATALOGUE, connect=target.connect, folder=folder)


async def _supervise(commands: dict[str, list[str]]) -> None:
    from nemesis.streams.supervisor import Supervisor

    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with Supervisor(commands):
        await over.wait()
