"""`nemesis serve`: a cell of this machine's own, up until Ctrl-C."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.nodes import NodesOption, node_roles
from nemesis.cli.output import print_json, say

if TYPE_CHECKING:
    from nemesis.streams.serving import Serving


def serve(
    *,
    cell: CellOption = "local",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any free one.")
    ] = 0,
    nodes: NodesOption = "",
    copies: Annotated[
        int, typer.Option(min=1, max=8, help="Copies of the processors and of the job actor.")
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="One JSON document when all is up.")] = False,
) -> None:
    """Run a cell: NATS server, clock, processors, job actor. Ctrl-C ends everything.

    The log stays where it is and is taken up again at the next start. Without --nodes, the nodes
    that could write before still can.
    """
    import logging

    from nemesis.streams.serving import serving

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    roles = node_roles(nodes)
    alarm = logging.getLogger(__name__).warning

    os.umask(0o077)  # seeds and records are nobody else's

    async def run() -> None:
        async with serving(cell, roles=roles, port=port, copies=copies, alarm=alarm) as up:
            if json:
                print_json(up)
            else:
                _print(up)
            await asyncio.Event().wait()

    run_until_told(run())


def _print(up: "Serving") -> None:
    nodes = f"{len(up.nodes)} nodes" if up.nodes else "no node yet, see --nodes"
    lines = [
        ("cell", f"{up.cell}, process {up.pid}"),
        ("server", f"{up.url}, process {up.server_pid}"),
        ("log", up.log_folder),
        ("credentials", f"{up.credentials_folder}, one seed a role; {nodes}"),
        ("clock", "ticks each second"),
        ("keeper", "measures the log each minute"),
    ]
    for name in up.processors:
        how = "activated now" if name in up.activated else "as the log says"
        lines.append((name, f"{_copies(up.copies)}, {how}"))
    lines.append(("job-actor", _copies(up.copies)))
    policy = "as the log says" if up.has_policy else "none: decisions are recorded, not applied"
    lines.append(("policy", policy))
    lines += [("drift", str(each)) for each in up.drift]
    for name, text in lines:
        say(f"{name:<12} {text}")
    say(f"look with `nemesis status --cell {up.cell}`; Ctrl-C ends it")


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"
