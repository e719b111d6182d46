"""`nemesis act`: processes that carry decisions out. Started by a supervisor or as a service."""

from pathlib import Path
from typing import Annotated

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    QuietOption,
    ServerOption,
    say_up,
)
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
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Hold jobs and give them their new membership, as the healer decided. Ctrl-C ends it."""
    from nemesis.actors.job import JobActor
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    async def run() -> None:
        target = find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
        if not quiet:
            await say_up(target, "actor/job", cell, server, context)
        async with await target.connect("actor/job", name=f"actor-job-{name}") as log:
            folder = pulse.pulses_folder(state_folder(cell))
            await pulse.beside(JobActor(log, name).run(), folder, name, log.is_connected)

    run_until_told(run())


@act.command("archivist")
def archivist(
    name: str = typer.Option(
        "archivist-1", help="This copy's own name: another for each copy on one machine."
    ),
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Keep closed incidents for ever, with all that replay needs of them. Ctrl-C ends it."""
    import logging

    from nemesis.actors.archivist import Archivist
    from nemesis.schemas.tokens import token_of
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    alarm = logging.getLogger(__name__).warning

    async def run() -> None:
        target = find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
        if not quiet:
            await say_up(target, "archivist", cell, server, context)
        folder = state_folder(cell)
        async with await target.connect("archivist", name=name) as log:
            own = folder / "archivist" / token_of(name)
            working = Archivist(log, own, cell=cell, alarm=alarm).run()
            await pulse.beside(working, pulse.pulses_folder(folder), name, log.is_connected)

    run_until_told(run())


@act.command("solver")
def solver(
    name: str = typer.Option("solver-1", help="This copy's own name: another for each copy."),
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Propose places for jobs that the scheduler asks about. Ctrl-C ends it.

    It is asked where `solver_wait_ns` of the scheduler's settings is above 0.
    """
    from nemesis.actors.solver.actor import SolverActor
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    async def run() -> None:
        target = find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
        if not quiet:
            await say_up(target, "actor/solver", cell, server, context)
        async with await target.connect("actor/solver", name=f"actor-solver-{name}") as log:
            folder = pulse.pulses_folder(state_folder(cell))
            await pulse.beside(SolverActor(log).run(), folder, name, log.is_connected)

    run_until_told(run())


@act.command("advisor")
def advisor(
    settings: Annotated[
        Path | None, typer.Option(help="What of the advisor's settings is to differ.")
    ] = None,
    name: str = typer.Option(
        "advisor-1", help="This copy's own name: another for each copy on one machine."
    ),
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Advise on jobs that were rejected or wait; the scheduler decides. Ctrl-C ends it.

    Exit 3: there is no key, or what it needs is not installed; 4: others can read the key.
    """
    import logging

    from nemesis.actors.advisor.key import key_of
    from nemesis.actors.advisor.settings import settings_of
    from nemesis.cli.advise import library
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    told = settings_of(settings)
    key = key_of(told.key_file)
    model_of = library()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    alarm = logging.getLogger(__name__).warning

    async def run() -> None:
        from nemesis.actors.advisor.advisor import Advisor

        target = find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
        if not quiet:
            await say_up(target, "actor/advisor", cell, server, context)
        async with (
            await target.connect("actor/advisor", name=f"actor-advisor-{name}") as log,
            model_of(told, key) as model,
        ):
            working = Advisor(log, model, told, alarm).run()
            folder = pulse.pulses_folder(state_folder(cell))
            await pulse.beside(working, folder, name, log.is_connected)

    run_until_told(run())
