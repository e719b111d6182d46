"""Which nodes may write: named on the command line or in a file, one a line."""

from pathlib import Path
from typing import Annotated

import typer

NodesOption = Annotated[
    str,
    typer.Option("--nodes", help="Nodes that may write: a,b,c or a file with one a line."),
]


def node_roles(nodes: str) -> list[str]:
    """`node/NAME` for each node.

    Raises:
        BadNameError: a name that cannot be a node's.
    """
    from nemesis.streams.permissions import user_of

    path = Path(nodes)
    if "/" in nodes and not path.is_file():
        raise typer.BadParameter(f"no such file: {nodes}", param_hint="--nodes")
    text = path.read_text() if nodes and path.is_file() else nodes.replace(",", "\n")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    roles = [f"node/{name}" for name in dict.fromkeys(lines) if name]
    for role in roles:
        user_of(role)
    return roles
