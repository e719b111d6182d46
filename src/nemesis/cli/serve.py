"""`nemesis serve`: a cell at work until Ctrl-C, on its own server or on one that runs."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.nodes import NodesOption, SwitchesOption, collector_roles, node_roles
from nemesis.cli.output import print_json, say

if TYPE_CHECKING:
    from nemesis.streams.serving import Serving


def serve(
    *,
    cell: CellOption = "local",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on loopback; 0: the last one, or any.")
    ] = 0,
    nodes: NodesOption = "",
    switches: SwitchesOption = "",
    copies: Annotated[
        int, typer.Option(min=1, max=8, help="Copies of the processors and of the job actor.")
    ] = 1,
    advisor: Annotated[
        Path | None, typer.Option(help="Settings of an advisor for jobs that wait.")
    ] = None,
    server: ServerOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document when all is up.")] = False,
) -> None:
    """Run a cell: NATS server, clock, processors, actors. Ctrl-C ends everything.

    The log stays where it is and is taken up again at the next start. Without --nodes and
    --switches, those that could write before still can. With --server, no server is started: the
    log is there.
    """
    import logging

    from nemesis.streams.contexts import find
    from nemesis.streams.serving import serving

    if server and (port or nodes or switches):
        raise typer.BadParameter(
            "--port, --nodes and --switches are of a server of our own, not of --server"
        )
    target = find(server=server, credentials_folder=credentials) if server else None

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    roles = [*node_roles(nodes), *collector_roles(switches)]
    alarm = logging.getLogger(__name__).warning

    advising, advises = _advising(advisor)
    os.umask(0o077)  # seeds and records are nobody else's

    async def run() -> None:
        async with serving(
            cell,
            roles=roles,
            port=port,
            copies=copies,
            alarm=alarm,
            target=target,
            advisor=advising,
        ) as up:
            if json:
                print_json(up)
            else:
                _print(up, advises)
            await asyncio.Event().wait()

    run_until_told(run())


def _advising(settings: Path | None) -> tuple[str, str]:
    """(settings of an advisor that can work, what is said of it).

    Raises:
        BadAdvisorSettingsError, OpenKeyError, NoAdvisorError: what stands in its way.
    """
    if settings is None:
        return "", ""
    from nemesis.actors.advisor.key import NoKeyError, key_of
    from nemesis.actors.advisor.settings import settings_of
    from nemesis.cli.advise import library

    try:
        key_of(settings_of(settings).key_file)
    except NoKeyError as error:
        return "", error.message
    library()
    return str(settings.resolve()), "advises on jobs that were rejected or wait"


def _print(up: "Serving", advises: str) -> None:
    lines = [("cell", f"{up.cell}, process {up.pid}")]
    if up.server_pid:
        nodes = f"{len(up.nodes)} nodes" if up.nodes else "no node yet, see --nodes"
        lines += [
            ("server", f"{up.url}, process {up.server_pid}"),
            ("log", up.log_folder),
            ("credentials", f"{up.credentials_folder}, one seed a role; {nodes}"),
        ]
    else:
        lines += [("server", f"{up.url}, not ours"), ("credentials", up.credentials_folder)]
    lines += [
        ("clock", "ticks each second"),
        ("keeper", "measures the log each minute"),
    ]
    for name in up.processors:
        how = "activated now" if name in up.activated else "as the log says"
        lines.append((name, f"{_copies(up.copies)}, {how}"))
    lines.append(("job-actor", _copies(up.copies)))
    lines.append(("archivist", "keeps closed incidents for ever"))
    if advises:
        lines.append(("advisor", advises))
    policy = "as the log says" if up.has_policy else "none: decisions are recorded, not applied"
    lines.append(("policy", policy))
    lines += [("drift", str(each)) for each in up.drift]
    for name, text in lines:
        say(f"{name:<12} {text}")
    where = f"--cell {up.cell}" if up.server_pid else "with the same --server and --credentials"
    say(f"look with `nemesis status {where}`; Ctrl-C ends it")


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"
