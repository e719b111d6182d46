"""`nemesis job`: tell the log of a job that others start, and of its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.job_nodes import nodes
from nemesis.cli.operate import (
    BadUsageError,
    ByOption,
    ReasonOption,
    UnknownNameError,
    open_as_operator,
    read_hands,
    seen_nodes,
    signed,
    unknown,
)
from nemesis.cli.output import say

if TYPE_CHECKING:
    from nemesis.schemas.operated import JobSubmitted
    from nemesis.streams.log import Log

job = typer.Typer(no_args_is_help=True, help="Tell the log of a job that others start.")
job.command()(nodes)
_Where = tuple[str, str, str, Path | None]
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
    """Let NEMESIS look after a job: rank r is on node r // ranks-per-node (changes the cluster).

    Exit 2: names or numbers that cannot be; 3: a node for which the cell has no credential.
    """
    import time

    from nemesis.actors.agent.submission import described

    who = signed(by, reason)
    for what, each in (("job", name), *(("node", node) for node in _names(nodes, spares))):
        check_name(what, each)
    data = described(
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
    run_on_loop(_submit((cell, server, context, credentials), data))
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
    """Say that a job is over: its ranks are nobody's concern any more (changes the cluster).

    Exit 3: no such job runs.
    """
    who = signed(by, reason)
    run_on_loop(_end((cell, server, context, credentials), name, who))
    say(f"{name} is over")


async def _submit(where: _Where, data: "JobSubmitted") -> None:
    from nemesis.actors.agent.submission import submit

    async with await open_as_operator(*where) as log:
        await _check_nodes(where, log, data)
        await submit(log, data)


async def _end(where: _Where, name: str, who: dict[str, str]) -> None:
    from nemesis.actors.agent.submission import end

    async with await open_as_operator(*where) as log:
        jobs = (await read_hands(log)).jobs
        if name not in jobs:
            running = ", ".join(sorted(jobs)) or "none"
            raise unknown("running job", name, jobs, hint=f"running: {running}")
        await end(log, name, by=who["by"], reason=who["reason"])


async def _check_nodes(where: _Where, log: "Log", data: "JobSubmitted") -> None:
    """Every node may write: it has a seed in the cell's folder, or has written already.

    Where no seeds of nodes lie here, nobody can say so, and nothing is refused.

    Raises:
        UnknownNameError: one may not; names it.
    """
    from nemesis.streams import credentials
    from nemesis.streams.contexts import find

    cell, server, context, folder = where
    target = find(
        server=server or None, context=context or None, cell=cell, credentials_folder=folder
    )
    seeds = target.credentials_folder
    known = credentials.names(seeds, "node") if seeds else []
    strange = [name for name in (*data.node_names, *data.spares) if name not in set(known)]
    if not known or not strange:
        return
    written = await seen_nodes(log)
    for name in strange:
        if name not in written:
            some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise UnknownNameError(
                f"node {name[:60]!r} has no credential in this cell, expected one of {some}",
                hint="`nemesis serve --nodes` or `nemesis credentials --nodes` makes one",
            )


def check_name(what: str, name: str) -> None:
    """A name that people can type and a subject can hold.

    Raises:
        BadUsageError: it is blank somewhere, or cannot be seen.
        BadNameError: too long, or empty.
    """
    from nemesis.schemas.tokens import token_of

    token_of(name)
    if not name.isprintable() or " " in name:
        raise BadUsageError(
            f"{what} {name[:60]!r}, expected a name without blanks and control characters",
            hint=f"write {_plain(name)[:60]!r}",
        )


def _plain(name: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in name)
    return "-".join(shown.split()) or "job-1"


def _names(*texts: str) -> tuple[str, ...]:
    return tuple(name for text in texts for each in text.split(",") if (name := each.strip()))
