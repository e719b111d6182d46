"""Which log a command reads: the cell that runs on this machine, or a server that was named."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nemesis.streams.log import Log

_TIMEOUT_S = 4.0  # a person waits

CellOption = Annotated[
    str, typer.Option("--cell", help="A cell on this machine.", envvar="NEMESIS_CELL")
]
ServerOption = Annotated[
    str, typer.Option("--server", help="URL of a NATS server instead.", envvar="NEMESIS_SERVER")
]
ContextOption = Annotated[
    str, typer.Option("--context", help="A context of the `nats` tool instead.")
]
CredsOption = Annotated[
    Path | None,
    typer.Option("--credentials", help="Folder of seeds.", envvar="NEMESIS_CREDENTIALS"),
]


async def open_log(cell: str, server: str, context: str, credentials: Path | None) -> "Log":
    """The log, for reading.

    Raises:
        NoCellError: no such cell runs here.
        LogUnavailableError: no server answers.
        WrongCredentialsError: the server does not accept them.
    """
    from nemesis.streams.contexts import find

    target = find(
        server=server or None,
        context=context or None,
        cell=cell,
        credentials_folder=credentials,
    )
    return await target.connect("reader", name="nemesis", timeout_s=_TIMEOUT_S)


def shown_name(cell: str, server: str, context: str) -> str:
    """What to call the log that these options mean; no password is in it."""
    from nemesis.streams.connection import without_password

    return context or without_password(server) or cell
