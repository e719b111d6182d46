"""`nemesis collector`: what a switch's counters show, from JSON lines that others fetch."""

from pathlib import Path
from typing import Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.telling import tell


def collector(
    switch: Annotated[str, typer.Argument(help="Name of the switch in the log, as `leaf03`.")],
    *,
    file: Annotated[
        Path | None, typer.Option(help="Follow this file of JSON lines, also over its rotation.")
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="Listen for JSON lines on this Unix socket.")
    ] = None,
    about: Annotated[
        Path | None, typer.Option(help="JSON: its tier, transport, and what its ports lead to.")
    ] = None,
    period: Annotated[float, typer.Option(min=0.2, help="Seconds from fact to fact.")] = 5.0,
    state: Annotated[Path | None, typer.Option(help="Folder for the spool.")] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Publish the ports of a switch, until Ctrl-C.

    Takes what gnmic prints (json, event) and SONiC's COUNTERS tables. It needs the seed
    collector-SWITCH.nk and no credential of the switch. Exit 4: one of this switch runs already.
    """
    import logging
    import os

    from nemesis.producers.switch.collector import About, Collector, Settings, about_in
    from nemesis.schemas.tokens import token_of
    from nemesis.streams.server import state_folder

    if (file is None) == (socket is None):
        raise typer.BadParameter("give one of --file and --socket")
    folder = state or state_folder(cell) / "collectors" / token_of(switch)
    settings = Settings(
        switch=switch,
        state=folder,
        file=file,
        socket=socket,
        about=about_in(about) if about else About(),
        period_s=period,
    )
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    where = (cell, server, context, credentials)
    tell(
        "collector",
        switch,
        "collecting",
        where,
        lambda target: Collector(settings, target, _tell_unknown),
    )


def _tell_unknown(count: int) -> None:
    typer.echo(
        f"{count} lines told of no port: expected are gnmic's json or event, or SONiC's COUNTERS",
        err=True,
    )
