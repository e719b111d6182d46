"""How `nemesis producer` and `nemesis collector` run: for a log, whether it answers or not."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from nemesis.cli.interrupts import run_until_told

if TYPE_CHECKING:
    from nemesis.streams.contexts import Target

Where = tuple[str, str, str, Path | None]
"""The options that say where the log is: cell, server, context, credentials."""


class Teller(Protocol):
    """What watches something and tells of it."""

    def run(self) -> Coroutine[Any, Any, object]:
        """Until it is cancelled."""
        ...

    def is_connected(self) -> bool:
        """Whether it reaches its log."""
        ...


def tell(
    role: str, name: str, doing: str, where: Where, begin: "Callable[[Target], Teller]"
) -> None:
    """Do `doing` for the log until Ctrl-C, in the role of that name, and show meanwhile that it
    lives.

    Raises:
        NemesisError: no such log, or no seed for this role.
    """
    from nemesis.cli.cell import shown_name
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    cell, server, context, credentials = where
    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )
    target.login(f"{role}/{name}")  # who has no seed tells nobody

    async def run() -> None:
        working = begin(target)
        where_shown = shown_name(cell, server, context)
        typer.echo(f"{doing} {name} for {where_shown}, Ctrl-C ends", err=True)
        folder = pulse.pulses_folder(state_folder(cell))
        await pulse.beside(working.run(), folder, f"{role}-{name}", working.is_connected)

    run_until_told(run())
