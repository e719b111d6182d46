"""`nemesis act`: processes that carry decisions out. Started by a supervisor or as a service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nemesis.streams.log import Log

_Where = tuple[str, str, str, Path | None]

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

    where = (cell, server, context, credentials)
    run_until_told(
        _at_work("actor/job", name, where, lambda log: JobActor(log, name).run(), quiet=quiet)
    )


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

    from nemesis.actors.archivist import Archivist
    from nemesis.schemas.tokens import token_of
    from nemesis.streams.server import state_folder

    alarm = _alarm()
    own = state_folder(cell) / "archivist" / token_of(name)

    async def archive(log: "Log") -> None:
        await Archivist(log, own, cell=cell, alarm=alarm).run()

    where = (cell, server, context, credentials)
    run_until_told(_at_work("archivist", name, where, archive, quiet=quiet))


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

    where = (cell, server, context, credentials)
    run_until_told(
        _at_work("actor/solver", name, where, lambda log: SolverActor(log).run(), quiet=quiet)
    )


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
    from nemesis.actors.advisor.key import key_of
    from nemesis.actors.advisor.settings import settings_of
    from nemesis.cli.advise import library

    told = settings_of(settings)
    key = key_of(told.key_file)
    model_of = library()
    alarm = _alarm()

    async def advise(log: "Log") -> None:
        from nemesis.actors.advisor.advisor import Advisor

        async with model_of(told, key) as model:
            await Advisor(log, model, told, alarm).run()

    where = (cell, server, context, credentials)
    run_until_told(_at_work("actor/advisor", name, where, advise, quiet=quiet))


def _alarm() -> "Callable[[str], None]":
    """Where an actor says what somebody should see to."""
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    return logging.getLogger(__name__).warning


async def _at_work(
    role: str,
    name: str,
    where: _Where,
    work: "Callable[[Log], Coroutine[None, None, object]]",
    *,
    quiet: bool,
) -> None:
    """Find the log, say that it is read, and do the work on it, telling meanwhile that it lives."""
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    cell, server, context, credentials = where
    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=credentials
    )
    if not quiet:
        await say_up(target, role, cell, server, context)
    async with await target.connect(role, name=f"{role}-{name}".replace("/", "-")) as log:
        pulses = pulse.pulses_folder(state_folder(cell))
        await pulse.beside(work(log), pulses, name, log.is_connected)
