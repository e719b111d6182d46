"""`nemesis protect` and `nemesis unprotect`: a node that is left alone, whatever happens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import (
    ByOption,
    NothingToDoError,
    ReasonOption,
    document,
    open_as_operator,
    read_hands,
    seen_nodes,
    signed,
    unknown,
    write,
)
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.hands import Hands

NodeArgument = Annotated[str, typer.Argument(help="A node that a job or an inventory names.")]


def protect(
    node: NodeArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Leave a node alone: its living processes, and as a spare. Exit 3: no such node."""
    who = signed(by, reason)
    hands = run_on_loop(_set(node, who, (cell, server, context, credentials), there=True))
    if json:
        print_json(document(hands, protected=hands.protected))
        return
    said = hands.protected[node]
    say(f"node {node} is protected, by {said.by}: {said.reason}")


def unprotect(
    node: NodeArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Treat a protected node like any other again (changes the cluster). Exit 3: it is not."""
    who = signed(by, reason)
    hands = run_on_loop(_set(node, who, (cell, server, context, credentials), there=False))
    if json:
        print_json(document(hands, protected=hands.protected))
        return
    say(f"node {node} is no longer protected by hand")
    if node in hands.policy.protected_nodes:
        say(f"the policy protects {node} still: `nemesis policy show`")


async def _set(
    node: str, who: dict[str, str], where: tuple[str, str, str, Path | None], *, there: bool
) -> "Hands":
    from nemesis.schemas.operated import NodeProtected

    async with await open_as_operator(*where) as log:
        hands = await read_hands(log)
        if there:
            known = hands.nodes | await seen_nodes(log)
            if node not in known:
                hint = f"{len(known)} nodes are known, by inventory or from jobs"
                raise unknown("node", node, known, hint=hint)
            if node in hands.protected:
                return hands
        elif node not in hands.protected:
            names = ", ".join(sorted(hands.protected)) or "none"
            raise NothingToDoError(
                f"node {node[:60]} is not protected by hand", hint=f"protected: {names}"
            )
        act = NodeProtected(at_ns=0, node=node, protected=there, **who)
        await write(log, hands, act, node, once=False)
    return hands
