"""`nemesis act`: processes that carry decisions out. Started by a supervisor or as a service."""

from pathlib import Path

import typer

from nemesis.cli.cell import QuietOption, say_up
from nemesis.cli.interrupts import run_until_told

act = typer.Typer(no_args_is_help=True, help="Carry decisions out.")


@act.callback()
def _actors() -> None:
    """Carry decisions out: one process an actor."""


@act.command("job")
def job(
    name: str = typer.Option(
        "job-1", help="This copy's own name: another for each copy, the same after a restart."
    ),
    server: str | None = typer.Option(None, help="The NATS server, for example nats://host:4222."),
    context: str | None = typer.Option(None, help="A NATS context instead."),
    cell: str = typer.Option("local", help="The cell whose server runs here."),
    credentials: Path | None = typer.Option(None, help="Folder of seeds, with --server."),
    quiet: QuietOption = False,
) -> None:
    """Hold jobs and give them their new membership, as the healer decided. Ctrl-C ends it."""
    from nemesis.actors.job import JobActor
    from nemesis.streams.contexts import find

    async def run() -> None:
        target = find(server=server, context=context, cell=cell, credentials_folder=credentials)
        if not quiet:
            await say_up(target, "actor/job", cell, server or "", context or "")
        async with await target.connect("actor/job", name=f"actor-job-{name}") as log:
            await JobActor(log, name).run()

    run_until_told(run())
