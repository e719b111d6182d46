"""`nemesis provision` and `nemesis credentials`: a NATS cluster that exists becomes a cell."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nemesis.cli.cell import ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.nodes import NodesOption, SwitchesOption, collector_roles, node_roles
from nemesis.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from nemesis.streams.provision import Limits, Provisioned

LEADER_WAIT_S: Final = 30.0
"""Servers that have just found one another answer nothing until they have chosen who leads."""
LEADER_LOOK_S: Final = 0.5


def provision(
    *,
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; 1 on drift.")] = False,
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Of each stream.")] = 1,
    log_gib: Annotated[int, typer.Option(min=1, help="How large the log may grow.")] = 8,
    store_gib: Annotated[int, typer.Option(min=1, help="Each of the other streams.")] = 1,
    json: JsonOption = False,
) -> None:
    """Create the streams of a cell where they are missing, and tell what differs from them.

    What exists is never changed: a person decides. Signs in as the role admin.
    """
    if not server and not context:
        raise typer.BadParameter("name a server with --server URL or --context NAME")
    from nemesis.streams.provision import Limits

    limits = Limits(log_bytes=log_gib << 30, store_bytes=store_gib << 30, replicas=replicas)
    found = run_on_loop(_provision(server, context, credentials, limits, create=not check))
    if json:
        print_json(found)
    else:
        _print(found)
    if check and (found.drift or found.missing):
        raise typer.Exit(1)


async def _provision(
    server: str, context: str, folder: Path | None, limits: "Limits", *, create: bool
) -> "Provisioned":
    from nemesis.streams.contexts import find
    from nemesis.streams.errors import LogUnavailableError
    from nemesis.streams.provision import provision as make_streams

    target = find(server=server or None, context=context or None, credentials_folder=folder)
    async with await target.connect("admin", name="nemesis-provision") as log:
        patient_until_s = time.monotonic() + LEADER_WAIT_S
        while True:
            try:
                return await make_streams(log.connection, limits, create=create)
            except LogUnavailableError:
                if time.monotonic() > patient_until_s:
                    raise
                await asyncio.sleep(LEADER_LOOK_S)


def _print(found: "Provisioned") -> None:
    for name in found.created:
        typer.echo(f"created  {name}")
    for name in found.missing:
        typer.echo(f"missing  {name}")
    for drift in found.drift:
        typer.echo(f"drift    {drift}")
    if not found.created and not found.missing and not found.drift:
        typer.echo("all streams are as they should be")


def credentials(
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the seeds, one file a role.")],
    nodes: NodesOption = "",
    switches: SwitchesOption = "",
    json: JsonOption = False,
) -> None:
    """Make the seed of every role that has none, and print the `authorization` block for them.

    The block belongs into the NATS server's configuration (or `users` of it into an account's);
    it holds public keys only.
    """
    import msgspec

    from nemesis.schemas.errors import NemesisError
    from nemesis.streams.credentials import ensure
    from nemesis.streams.permissions import server_users, standing_roles

    try:
        keys = ensure(out, [*standing_roles(), *node_roles(nodes), *collector_roles(switches)])
    except OSError as error:
        raise NemesisError(
            f"cannot write seeds to {out}: {error.strerror}", hint="name another folder with --out"
        ) from error
    authorization = {"users": server_users(keys)}
    if json:
        print_json({"folder": str(out), "roles": keys, "authorization": authorization})
        return
    block = msgspec.json.format(msgspec.json.encode(authorization)).decode()
    typer.echo(f"authorization: {block}")
    typer.echo(f"{len(keys)} seeds are in {out}; a node needs only its own file", err=True)
