"""`nemesis job`: tell the log of a job that others start, and of its end."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import ByOption, ReasonOption, open_as_operator, signed
from nemesis.cli.output import say

if TYPE_CHECKING:
    from nemesis.streams.log import Log

job = typer.Typer(no_args_is_help=True, help="Tell the log of a job that others start.")
Degree = Annotated[int, typer.Option(min=1, help="Parallel degree.")]


@job.command("submit")
def submit_job(
    name: Annotated[str, typer.Argument(help="Its name, another for each run.")],
    *,
    nodes: Annotated[str, typer.Option("--nodes", help="a,b,c in the order of the ranks.")],
    ranks_per_node: Annotated[int, typer.Option(min=1, max=1024, help="Ranks of a node.")] = 8,
    spares: Annotated[str, typer.Option("--spares", help="Nodes that may take over.")] = "",
    world_min: Annotated[int, typer.Option(min=1, help="Fewer ranks are not worth it.")] = 1,
    tp: Degree = 1,
    pp: Degree = 1,
    cp: Degree = 1,
    ep: Degree = 1,
    by: ByOption = "",
    reason: ReasonOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Let NEMESIS look after a job: rank r is on node r // ranks-per-node (changes the cluster)."""
    import time

    from nemesis.actors.agent.submission import submit
    from nemesis.schemas.operated import JobSubmitted

    who = signed(by, reason)
    data = JobSubmitted(
        at_ns=time.time_ns(),
        by=who["by"],
        reason=who["reason"],
        job=name,
        nodes=_names(nodes),
        ranks_per_node=ranks_per_node,
        spares=_names(spares),
        world_min=world_min,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
    )
    run_on_loop(_tell((cell, server, context, credentials), lambda log: submit(log, data)))
    say(f"{name}: {len(data.nodes) * ranks_per_node} ranks on {', '.join(data.nodes)}")


@job.command("end")
def end_job(
    name: Annotated[str, typer.Argument(help="Its name.")],
    *,
    by: ByOption = "",
    reason: ReasonOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
) -> None:
    """Say that a job is over: its ranks are nobody's concern any more (changes the cluster)."""
    from nemesis.actors.agent.submission import end

    who = signed(by, reason)
    run_on_loop(_tell((cell, server, context, credentials), lambda log: end(log, name, **who)))
    say(f"{name} is over")


async def _tell(
    where: tuple[str, str, str, Path | None], what: "Callable[[Log], Awaitable[None]]"
) -> None:
    async with await open_as_operator(*where) as log:
        await what(log)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for each in text.split(",") if (name := each.strip()))
