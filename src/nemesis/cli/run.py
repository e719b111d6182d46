"""`nemesis run`: torchrun's command line, for a job that survives the loss of a rank."""

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.agent import NodeOption
from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import TERMINATED, run_until_told

if TYPE_CHECKING:
    from nemesis.streams.contexts import Target

JobOption = Annotated[
    str, typer.Option("--job", help="Its name in the log; if left out, the script's and the time.")
]
Degree = Annotated[int, typer.Option(min=1, help="Parallel degree.")]


def run(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="-- TORCHRUN-ARGUMENTS", help="As they follow `torchrun`."),
    ],
    *,
    job: JobOption = "",
    node: NodeOption = "",
    tp: Degree = 1,
    pp: Degree = 1,
    cp: Degree = 1,
    ep: Degree = 1,
    submitted: Annotated[
        bool, typer.Option("--submitted", help="Somebody told the log of the job already.")
    ] = False,
    come_back: Annotated[
        bool, typer.Option("--come-back", help="Start a rank that was left out beside the job.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option(min=1.0, help="Seconds to await a decision on a lost rank; then it ends."),
    ] = 60.0,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Train as `torchrun` would, and go on without a rank that is lost (changes the cluster).

    `nemesis run -- --nproc-per-node 4 train.py --lr 1e-3`: the same options, the same environment
    for the script. Starts the agent of this node and the ranks, tells the log of the job, shows
    what the ranks print. Where no cell runs and no server is named, the job trains alone.
    Exit status: 0 the job has come to its end; 1 it has not; 2 usage; 3 no such node, no server;
    4 an agent of this node runs already; 130 and 143 it was told to end, by Ctrl-C or SIGTERM.
    """
    import logging

    from nemesis.actors.agent.arguments import asked_of, check_command
    from nemesis.actors.agent.job import Job, run_job
    from nemesis.actors.agent.submission import check_degrees
    from nemesis.cli.agent import name_of_node, say
    from nemesis.streams.server import state_folder

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    asked = asked_of(arguments)
    check_degrees(asked.world, tp=tp, cp=cp, pp=pp, ep=ep)
    check_command(asked.command)
    target = _target(cell, server, context, credentials, must=submitted)
    wanted = Job(
        asked=asked,
        name=job,
        node=name_of_node(node),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        is_submitted=submitted,
        comes_back=come_back,
        patience_s=patience,
        agents_folder=state_folder(cell) / "agents",
    )

    _end_as(run_job(wanted, target, say))


def _end_as(job: Awaitable[bool]) -> None:
    """Run a job and exit as it ended."""
    ends: list[bool] = []

    async def work() -> None:
        ends.append(await job)

    run_until_told(work())
    if not ends:
        raise typer.Exit(TERMINATED)
    if not ends[0]:
        raise typer.Exit(1)


def _target(
    cell: str, server: str, context: str, credentials: Path | None, *, must: bool
) -> "Target | None":
    """Where NEMESIS is; None where nobody said that it is anywhere, and no cell runs here."""
    from nemesis.cli.agent import say
    from nemesis.streams.contexts import NoCellError, find

    try:
        return find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
    except NoCellError:
        if must:
            raise
        say(f"no cell {cell} runs here, the job trains alone")
        return None
