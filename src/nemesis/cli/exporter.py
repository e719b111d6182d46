"""`nemesis exporter`: the log in Prometheus' terms, for scrapes."""

from typing import Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.output import print_json, say

PORT = 9711


def exporter(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = PORT,
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option("--expose", help="Listen beyond loopback: all who reach it may scrape.")
    ] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document when it is up.")] = False,
) -> None:
    """Serve /metrics for Prometheus, counted from the log's first event on. It changes nothing.

    Needs the seed exporter.nk. /readyz says when the past is counted; until then /metrics answers
    503. Exit 3: no log to read. Exit 4: to listen beyond this machine without --expose.
    """
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder
    from nemesis.views.dashboard.guard import check_bind
    from nemesis.views.exporter.serving import serve

    check_bind(bind, exposed=expose, shows="every metric")
    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )

    def up(url: str) -> None:
        if json:
            print_json({"url": f"{url}metrics"})
        else:
            say(f"metrics  {url}metrics")
            say("Ctrl-C ends it; it only reads")

    pulses = pulse.pulses_folder(state_folder(cell))
    run_until_told(serve(target, bind=bind, port=port, pulses=pulses, up=up))
