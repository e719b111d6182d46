"""`nemesis agent`: the agent of one node, beside ranks that it starts or that find it."""

import socket
import sys
from typing import Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_until_told

NodeOption = Annotated[
    str, typer.Option("--node", help="This node's name in the log; else its host name.")
]


def agent(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Of each rank; without, ranks come."),
    ] = None,
    *,
    job: Annotated[
        str, typer.Option("--job", help="Its name in the log.", envvar="NEMESIS_JOB")
    ] = "",
    node: NodeOption = "",
    nodes: Annotated[
        str, typer.Option("--nnodes", help="Of the job.", envvar=["PET_NNODES", "SLURM_NNODES"])
    ] = "1",
    ranks: Annotated[
        str,
        typer.Option(
            "--nproc-per-node",
            help="Ranks of each node.",
            envvar=["PET_NPROC_PER_NODE", "SLURM_NTASKS_PER_NODE"],
        ),
    ] = "1",
    node_rank: Annotated[
        str, typer.Option(help="Of this node.", envvar=["PET_NODE_RANK", "SLURM_NODEID"])
    ] = "-1",
    rdzv_endpoint: Annotated[
        str, typer.Option(help="HOST:PORT where nodes meet.", envvar="PET_RDZV_ENDPOINT")
    ] = "",
    local_addr: Annotated[str, typer.Option(help="Address of this node for others.")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Serve the ranks of this node: watch them, tell the log, do what plans say. Ctrl-C ends it.

    Ranks of torchrun or srun find it by the variable that it prints. They run on when it ends, and
    are found again when it is started again. The job is submitted by whoever has the right:
    `nemesis job submit`. Needs torch: pip install 'nemesis-gpu\\[train]'. Exit status: 1 no torch;
    2 usage; 3 no such node, no server, or nodes did not meet; 4 an agent of this node runs already.
    """
    import logging

    from nemesis.actors.agent.arguments import LaunchUsageError, asked_of, check_command
    from nemesis.actors.agent.job import serve_ranks
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    if not job:
        raise LaunchUsageError("no job is named", hint="--job NAME, as it was submitted")
    options = ["--nnodes", nodes, "--nproc-per-node", ranks, "--node-rank", node_rank]
    options += ["--rdzv-endpoint", rdzv_endpoint, "--local-addr", local_addr, "--no-python"]
    asked = asked_of([*options, "--", *(command or [sys.executable])], {})
    check_command(asked.command)
    target = find(
        server=server or None,
        context=context or None,
        cell=cell,
        credentials_folder=credentials,
    )
    serving = serve_ranks(
        asked,
        target,
        say,
        job=job,
        node=name_of_node(node),
        agents_folder=state_folder(cell) / "agents",
        starts=bool(command),
    )
    run_until_told(serving)


def name_of_node(name: str) -> str:
    """As it was named, or as the host is called."""
    return name or socket.gethostname()


def say(line: str) -> None:
    """One line for who started it."""
    from nemesis.schemas.printable import one_line

    typer.echo(one_line(f"nemesis: {line}"), err=True)
