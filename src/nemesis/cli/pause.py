"""`nemesis pause` and `nemesis resume`: decide, but do not act, on a job, a node or everything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import (
    BadUsageError,
    ByOption,
    NothingToDoError,
    ReasonOption,
    ago,
    document,
    open_as_operator,
    read_hands,
    signed,
    unknown,
    write,
)
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.hands import Hands


def pause(
    scope: Annotated[str, typer.Argument(help="A job, a node, or ALL.")] = "ALL",
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Begin nothing more there; what is being carried out is ended. Exit 3: no such job or node."""
    who = signed(by, reason)
    hands, scopes = run_on_loop(_set(scope, who, (cell, server, context, credentials), there=True))
    if json:
        print_json(document(hands, paused=hands.paused, written=scopes))
        return
    name = scopes[0] if scopes else scope
    if scopes:
        say(f"{name} is paused: decisions are recorded, nothing is begun before `nemesis resume`")
    for other, said in hands.paused.items():
        if other not in scopes:
            when = ago(hands.log_time_ns, said.at_ns)
            say(f"{other} was paused already, by {said.by} {when}: {said.reason}")


def resume(
    scope: Annotated[
        str, typer.Argument(help="A job, a node, or ALL; may be left out where one is paused.")
    ] = "",
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Act again on what was paused (changes the cluster). Exit 3: it is not paused."""
    who = signed(by, reason)
    hands, scopes = run_on_loop(_set(scope, who, (cell, server, context, credentials), there=False))
    if json:
        print_json(document(hands, paused=hands.paused, written=scopes))
        return
    say(f"{scopes[0]} is no longer paused: what is due is decided and done again")
    for other, said in hands.paused.items():
        say(f"{other} is still paused, by {said.by}: {said.reason}")


async def _set(
    scope: str, who: dict[str, str], where: tuple[str, str, str, Path | None], *, there: bool
) -> tuple["Hands", list[str]]:
    """What is paused afterwards, and the scope that was written, none where it was so before."""
    from nemesis.schemas.operated import PauseSet

    async with await open_as_operator(*where) as log:
        hands = await read_hands(log)
        if there:
            name = _known(scope, hands)
            if name in hands.paused:
                return hands, []
        else:
            name = _paused(scope, hands)
        act = PauseSet(at_ns=0, scope=name, paused=there, **who)
        await write(log, hands, act, name, once=False)
    return hands, [name]


def _known(scope: str, hands: "Hands") -> str:
    """The scope that a person means.

    Raises:
        UnknownNameError: no such job or node.
        BadUsageError: a job and a node have this name.
    """
    if scope.upper() == "ALL":
        return "ALL"
    scopes = [*(f"job/{job}" for job in hands.jobs), *(f"node/{node}" for node in hands.nodes)]
    if scope in scopes:
        return scope
    meant = [each for each in scopes if each.partition("/")[2] == scope]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise BadUsageError(f"{scope!r} is a job and a node", hint=f"say {' or '.join(meant)}")
    names = [*scopes, *(each.partition("/")[2] for each in scopes)]
    jobs = ", ".join(sorted(hands.jobs)) or "none"
    raise unknown("job or node", scope, names, hint=f"jobs: {jobs}")


def _paused(scope: str, hands: "Hands") -> str:
    """The pause that a person means to lift.

    Raises:
        NothingToDoError: it is not paused.
        BadUsageError: more than one is, and none was named.
    """
    paused = ", ".join(hands.paused)
    if not scope:
        if len(hands.paused) > 1:
            raise BadUsageError("more than one scope is paused", hint=f"say which: {paused}")
        if not hands.paused:
            raise NothingToDoError("nothing is paused", hint="`nemesis status` says what holds")
        return next(iter(hands.paused))
    for each in ("ALL" if scope.upper() == "ALL" else scope, f"job/{scope}", f"node/{scope}"):
        if each in hands.paused:
            return each
    raise NothingToDoError(f"{scope[:60]} is not paused", hint=f"paused: {paused or 'nothing'}")
