"""Who may write telemetry: nodes and switches, named on the command line or in a file."""

from pathlib import Path
from typing import Annotated

import typer

NodesOption = Annotated[
    str,
    typer.Option("--nodes", help="Nodes that may write: a,b,c or a file with one a line."),
]
SwitchesOption = Annotated[
    str,
    typer.Option("--switches", help="Switches whose collectors may write, in the same forms."),
]


def node_roles(nodes: str) -> list[str]:
    """`node/NAME` and `producer/NAME` for each node: its agent, and what watches its devices.

    Raises:
        BadNameError: a name that cannot be a node's.
    """
    return [
        *_roles("node", nodes, "--nodes"),
        *(role.replace("node/", "producer/", 1) for role in _roles("node", nodes, "--nodes")),
    ]


def collector_roles(switches: str) -> list[str]:
    """`collector/NAME` for each switch.

    Raises:
        BadNameError: a name that cannot be a switch's.
    """
    return _roles("collector", switches, "--switches")


def _roles(kind: str, names: str, option: str) -> list[str]:
    from nemesis.streams.permissions import user_of

    path = Path(names)
    if "/" in names and not path.is_file():
        raise typer.BadParameter(f"no such file: {names}", param_hint=option)
    text = path.read_text() if names and path.is_file() else names.replace(",", "\n")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    roles = [f"{kind}/{name}" for name in dict.fromkeys(lines) if name]
    for role in roles:
        user_of(role)
    return roles
