"""Which log a command reads: the cell that runs on this machine, or a server that was named."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nemesis.streams.contexts import Target
    from nemesis.streams.log import Log

_TIMEOUT_S = 4.0  # a person waits

CellOption = Annotated[
    str, typer.Option("--cell", help="A cell on this machine.", envvar="NEMESIS_CELL")
]
ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        help="URL of a NATS server instead, or of several: a,b,c.",
        envvar="NEMESIS_SERVER",
    ),
]
ContextOption = Annotated[
    str, typer.Option("--context", help="A context of the `nats` tool instead.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Do not say that it is up.")]
CredsOption = Annotated[
    Path | None,
    typer.Option("--credentials", help="Folder of seeds.", envvar="NEMESIS_CREDENTIALS"),
]


async def open_log(
    cell: str, server: str, context: str, credentials: Path | None, *, role: str = "reader"
) -> "Log":
    """The log, for reading, or for what else a role may do.

    Raises:
        NoCellError: no such cell runs here.
        LogUnavailableError: no server answers.
        NoStreamsError: a server on which no log was made.
        WrongCredentialsError: the server does not accept them.
    """
    from nemesis.streams.contexts import find
    from nemesis.streams.provision import require_streams

    target = find(
        server=server or None,
        context=context or None,
        cell=cell,
        credentials_folder=credentials,
    )
    log = await target.connect(role, name="nemesis", timeout_s=_TIMEOUT_S)
    try:
        await require_streams(log.connection, target.url)
    except BaseException:
        await log.close()
        raise
    return log


async def say_up(target: "Target", role: str, cell: str, server: str, context: str) -> None:
    """Tell whoever started it that it reads; a supervised child is told to be quiet.

    Raises: as `open_log`.
    """
    from nemesis.streams.provision import require_streams

    async with await target.connect(role, name="nemesis") as log:
        await require_streams(log.connection, target.url)
    what = shown_name(cell, server, context)
    typer.echo(f"reading {what if server or context else f'cell {cell}'}, Ctrl-C ends", err=True)


def shown_name(cell: str, server: str, context: str) -> str:
    """What to call the log that these options mean; no password is in it."""
    from nemesis.streams.connection import without_password

    return context or without_password(server) or cell
