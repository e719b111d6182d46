"""`nemesis job nodes`: where the ranks of a job are to be started, for who starts them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import unknown
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.streams.log import Log
    from nemesis.views.queue import Queue, Row

Form = Literal["lines", "comma", "slots", "ranks"]


class NotPlacedError(NemesisError):
    """A job that has no nodes."""

    exit_code = 3


def nodes(
    name: Annotated[str, typer.Argument(help="The job.")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is placed.")] = False,
    form: Annotated[
        Form, typer.Option("--as", help="A node a line, one line, `slots=8`, or a line a rank.")
    ] = "lines",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the nodes of a job in the order of its ranks, as it began: rank 0 is on the first.

    `--as slots` is a hostfile of Open MPI and DeepSpeed, `--as ranks` one of Slurm's arbitrary
    distribution. Exit 3: no such job, it waits still, or was rejected or taken back meanwhile.
    """
    row = run_on_loop(_placed((cell, server, context, credentials), name, wait=wait))
    names = _names(row)
    if json:
        print_json(
            {
                "job": name,
                "nodes": names,
                "ranks_per_node": row.ranks_per_node,
                "spares": row.spares,
            }
        )
        return
    for line in _lines(names, row.ranks_per_node, form):
        say(line)


def _names(row: "Row") -> tuple[str, ...]:
    from nemesis.schemas.node_ranges import parse_nodes

    return parse_nodes(row.nodes)


def _lines(names: tuple[str, ...], ranks_per_node: int, form: Form) -> list[str]:
    match form:
        case "lines":
            return [*names]
        case "comma":
            return [",".join(names)]
        case "slots":
            return [f"{name} slots={ranks_per_node}" for name in names]
        case "ranks":
            return [name for name in names for _ in range(ranks_per_node)]


async def _placed(where: tuple[str, str, str, Path | None], name: str, *, wait: bool) -> "Row":
    from nemesis.processors.fold import Input
    from nemesis.replay.slices import matching
    from nemesis.schemas.facts import EVENTS_SUBJECT
    from nemesis.views.queue import Queue

    async with await open_log(*where) as log:
        found, seq = Queue(), 0
        async for record in matching(log, EVENTS_SUBJECT):
            found.take(Input(record))
            seq = record.seq
        row = found.rows.get(name)
        if row is None:
            hint = f"waiting or running: {', '.join(sorted(found.rows)) or 'none'}"
            raise unknown("job", name, found.rows, hint=hint)
        if row.state == "waits" and wait:
            row = await _begun(log, found, name, seq + 1)
    if row.state == "waits":
        raise NotPlacedError(
            f"{name} has no nodes yet: {row.why or 'not looked at'}",
            hint="--wait waits until it has",
        )
    return row


async def _begun(log: "Log", found: "Queue", name: str, from_seq: int) -> "Row":
    """Raises: NotPlacedError, it was rejected or taken back."""
    from nemesis.processors.fold import Input
    from nemesis.schemas.facts import event_subject

    async for record in log.follow(from_seq, subject=event_subject("*", name)):
        found.take(Input(record))
        row = found.rows.get(name)
        if row is None:
            raise NotPlacedError(f"{name} was rejected or taken back while it was waited for")
        if row.state == "runs":
            return row
    raise AssertionError("a log that is followed does not end")
