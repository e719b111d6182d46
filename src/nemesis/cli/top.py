"""`nemesis top`: the page in a terminal, live or once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    shown_name,
)
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.output import print_json

if TYPE_CHECKING:
    from nemesis.views.dashboard.live import Live

_FRAME_S = 0.5


def top(
    once: Annotated[bool, typer.Option("--once", "-1", help="Show it once and leave.")] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, once.")] = False,
) -> None:
    """Watch the cluster: alarms, what waits for you, incidents, parts not well, feed. Only reads.

    Ctrl-C leaves. What is not a terminal gets it once. Exit 3: no log to read.
    """
    run_until_told(_run(once, cell, server, context, credentials, json=json))


async def _run(
    once: bool, cell: str, server: str, context: str, credentials: Path | None, *, json: bool
) -> None:
    from rich.console import Console

    from nemesis.streams.contexts import find
    from nemesis.views.dashboard.live import reading
    from nemesis.views.dashboard.terminal import screen

    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )
    name = shown_name(cell, server, context)
    where = "" if server or context else f" --cell {cell}"
    console = Console(highlight=False)
    async with reading(target, cell=name, where=where) as live:
        await live.until_ready()
        if json:
            print_json(_document(live))
        elif once or not console.is_terminal:
            console.print(screen(_document(live), height=max(24, console.height)))
        else:
            await _watch(live, console)


async def _watch(live: "Live", console: Any) -> None:
    import asyncio

    from rich.live import Live as Screen

    from nemesis.views.dashboard.terminal import screen

    with Screen(console=console, screen=True, auto_refresh=False) as shown:
        while True:
            live.check()
            shown.update(screen(_document(live), height=console.height), refresh=True)
            await asyncio.sleep(_FRAME_S)


def _document(live: "Live") -> dict[str, Any]:
    return {"connected": live.hub.connected, **live.hub.board.document()}
