"""`nemesis dashboard`: the page, served by a process that alone reads the log."""

from pathlib import Path
from typing import Annotated

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    shown_name,
)
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.output import print_json, say


def dashboard(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8711,
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option("--expose", help="Listen beyond loopback: all who reach it may read.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which browsers ask for it; repeatable."),
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(help="Open the page on this recording; needs no log.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document when it is up.")] = False,
) -> None:
    """Serve the page: cluster, incidents, evidence, decisions that wait. It changes nothing.

    Browsers hold no credential; approvals are commands to type. Exit 3: no log to read. Exit 4: to
    listen beyond this machine without --expose.
    """
    from nemesis.views.dashboard.guard import check_bind
    from nemesis.views.dashboard.serving import serve_live, serve_recording

    check_bind(bind, exposed=expose)

    def up(url: str) -> None:
        if json:
            print_json({"url": url})
        else:
            say(f"page  {url}")
            say("Ctrl-C ends it; it only reads")

    if recording is not None:
        run_until_told(serve_recording(recording, bind=bind, port=port, names=host or [], up=up))
        return
    from nemesis.streams.contexts import find

    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )
    where = f" --server {shown_name('', server, '')}" if server else f" --context {context}"
    run_until_told(
        serve_live(
            target,
            cell=shown_name(cell, server, context),
            where=where if server or context else f" --cell {cell}",
            bind=bind,
            port=port,
            names=host or [],
            up=up,
        )
    )
