"""`nemesis sink`: events of the log to whoever knows nothing of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_until_told

if TYPE_CHECKING:
    from nemesis.actors.sink.delivery import Receiver

sink = typer.Typer(no_args_is_help=True, help="Hand events on: webhooks, OpenTelemetry, syslog.")
NameOption = Annotated[
    str, typer.Option("--name", help="Of this sink: it goes on where one of that name stopped.")
]
FactOption = Annotated[
    list[str] | None,
    typer.Option("--fact", help="A fact to hand on, in place of what a pager is for; repeatable."),
]


@sink.callback()
def _sinks() -> None:
    """Hand events on, each until it is taken or given up."""


@sink.command("webhook")
def webhook(
    url: Annotated[str, typer.Argument(metavar="URL")],
    *,
    secret: Annotated[Path, typer.Option(help="File with whsec_<base64>, known to both.")],
    name: NameOption = "webhook",
    fact: FactOption = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Post events to a URL: CloudEvents, signed as Standard Webhooks are. Ctrl-C ends it.

    Needs the seed sink.nk. What is not taken is tried for three minutes, then told to the log as
    delivery_failed. Exit 2: no secret there; 4: plain http to another machine.
    """
    from nemesis.actors.sink.posting import check_url
    from nemesis.actors.sink.signing import secret_in
    from nemesis.actors.sink.webhook import Webhook

    check_url(url)
    receiver = Webhook(url, secret_in(secret))
    _serve(receiver, name, fact, cell, server, context, credentials)


@sink.command("syslog")
def syslog(
    address: Annotated[str, typer.Argument(help="A socket file, or HOST:PORT.")] = "/dev/log",
    *,
    tcp: Annotated[
        bool, typer.Option("--tcp", help="HOST:PORT by TCP; UDP loses unnoticed.")
    ] = False,
    name: NameOption = "syslog",
    fact: FactOption = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Write events as lines to a syslog daemon, facility daemon. Ctrl-C ends it.

    Needs the seed sink.nk. What nobody takes is tried for three minutes, then told to the log as
    delivery_failed.
    """
    from nemesis.actors.sink.syslog import Syslog

    _serve(Syslog(address, tcp=tcp), name, fact, cell, server, context, credentials)


@sink.command("otlp")
def otlp(
    endpoint: Annotated[
        str,
        typer.Argument(metavar="URL", envvar="OTEL_EXPORTER_OTLP_ENDPOINT", help="Of a collector."),
    ] = "http://127.0.0.1:4318",
    *,
    name: NameOption = "otlp",
    fact: FactOption = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Send events to an OpenTelemetry collector as log records (OTLP, HTTP, JSON). Ctrl-C ends it.

    Needs the seed sink.nk; reads OTEL_EXPORTER_OTLP_HEADERS. What is not taken is tried for three
    minutes, then told to the log as delivery_failed. Exit 4: plain http to another machine.
    """
    import os

    from nemesis.actors.sink.otlp import Otlp, headers_in
    from nemesis.actors.sink.posting import check_url

    check_url(endpoint)
    receiver = Otlp(endpoint, headers_in(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")))
    _serve(receiver, name, fact, cell, server, context, credentials)


def _serve(
    receiver: "Receiver",
    name: str,
    facts: list[str] | None,
    cell: str,
    server: str,
    context: str,
    credentials: Path | None,
) -> None:
    from nemesis.actors.sink.delivery import FACTS, Delivery, SinkRunningError
    from nemesis.cli.cell import say_up
    from nemesis.schemas.registry import EVENTS
    from nemesis.schemas.tokens import token_of
    from nemesis.streams import pulse
    from nemesis.streams.alone import alone
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    if unknown := sorted(set(facts or ()) - set(EVENTS)):
        says = f"no such fact: {unknown[0][:60]}; `nemesis schema list` lists them"
        raise typer.BadParameter(says, param_hint="--fact")
    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )
    folder = state_folder(cell) / "sinks" / token_of(name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def run() -> None:
        await say_up(target, "sink", cell, server, context)
        async with await target.connect("sink", name=f"sink-{name}") as log, receiver:
            delivery = Delivery(log, receiver, name, folder, facts=facts or FACTS)
            pulses = pulse.pulses_folder(state_folder(cell))
            await pulse.beside(delivery.run(), pulses, f"sink-{name}", log.is_connected)

    with alone(folder / "lock", SinkRunningError(f"a sink called {name} runs here already")):
        run_until_told(run())
