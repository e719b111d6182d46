"""`nemesis act`: processes that carry decisions out. Started by a supervisor or as a service."""

from pathlib import Path

import typer

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
) -> None:
    """Hold jobs and give them their new membership, as the healer decided. Runs until SIGTERM."""
    import asyncio
    import signal

    from nemesis.actors.job import JobActor
    from nemesis.streams.contexts import find

    async def run() -> None:
        target = find(server=server, context=context, cell=cell, credentials_folder=credentials)
        async with await target.connect("actor/job", name=f"actor-job-{name}") as log:
            running = asyncio.ensure_future(JobActor(log, name).run())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            try:
                await running
            except asyncio.CancelledError:
                if not running.cancelled():
                    raise

    asyncio.run(run())
