"""`nemesis doctor`: what this node and this installation can and cannot see, and what mends it."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.producers.doctor.finding import Finding
    from nemesis.streams.contexts import Target


def doctor(
    *,
    node: Annotated[
        str, typer.Option(help="Name of this node in the log; its host name if not given.")
    ] = "",
    root: Annotated[
        Path, typer.Option(help="Read /proc, /sys and /dev below this folder: a copy of a node.")
    ] = Path("/"),
    dcgm: Annotated[str, typer.Option(help="DCGM exporter's page.", metavar="URL")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Look at this node and this installation as a producer and a job would; change nothing.

    Devices, kernel, libraries, clock, disk, seeds, and whether the log answers; each gap with what
    mends it. Exit 0: nothing to mend; 1: something is.
    """
    import socket

    from nemesis.producers.doctor import installation
    from nemesis.producers.doctor import node as of_node
    from nemesis.producers.node.root import Root
    from nemesis.streams.server import state_folder

    if not root.is_dir():
        raise typer.BadParameter(f"no such folder: {root}", param_hint="--root")
    name = node or socket.gethostname().partition(".")[0] or "localhost"
    folder = state_folder(cell)
    found = [
        *of_node.look(name, folder, root, dcgm),
        installation.nvidia_binding(Root(root)),
        installation.torch(),
        installation.nccl(os.environ.get("NEMESIS_NCCL", "")),
        installation.model(),
        installation.disk(folder),
        *installation.seeds(credentials or folder / "credentials"),
        installation.scheduler(os.environ),
        _log(name, cell, server, context, credentials),
    ]
    amiss = [each for each in found if each.amiss]
    if json:
        print_json({"node": name, "amiss": len(amiss), "findings": found})
    else:
        _print(found, amiss)
    raise typer.Exit(1 if amiss else 0)


def _log(node: str, cell: str, server: str, context: str, credentials: Path | None) -> "Finding":
    from nemesis.producers.doctor.finding import Finding
    from nemesis.schemas.errors import NemesisError
    from nemesis.streams.contexts import NoCellError, find

    try:
        target = find(
            server=server or None,
            context=context or None,
            cell=cell,
            credentials_folder=credentials,
        )
        return run_on_loop(_reached(target, node))
    except NoCellError as error:
        return Finding(area="cell", name="log", state="not here", says=f"not asked: {error}")
    except NemesisError as error:
        return Finding(area="cell", name="log", state="broken", says=error.message, mend=error.hint)


async def _reached(target: "Target", node: str) -> "Finding":
    from nemesis.producers.doctor.finding import Finding
    from nemesis.streams.connection import without_password
    from nemesis.streams.credentials import seed_path
    from nemesis.streams.keeper import fill_ppm

    roles = [f"producer/{node}", f"node/{node}", "reader", "exporter"]
    folder = target.credentials_folder
    if folder is not None:
        roles = [role for role in roles if seed_path(folder, role).exists()] or roles
    began_s = time.monotonic()
    async with await target.connect(roles[0], name="nemesis doctor", timeout_s=4.0) as log:
        share = await fill_ppm(log) / 10_000
    took_ms = (time.monotonic() - began_s) * 1000
    says = f"{without_password(target.url)} answers {roles[0]} in {took_ms:.0f} ms"
    return Finding(area="cell", name="log", state="ok", says=f"{says}, {share:.0f} % full")


def _print(found: list["Finding"], amiss: list["Finding"]) -> None:
    width = max(len(each.name) for each in found)
    for each in found:
        say(f"{each.state:<9} {each.name:<{width}}  {each.says}")
        if each.mend:
            say(f"{'':<9} {'':<{width}}  mend: {each.mend}")
    say(f"{len(amiss)} to mend" if amiss else "nothing to mend")
