"""`nemesis breaker`: limits that were reached, and letting them go."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
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
    write,
)
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.hands import Hands

breaker = typer.Typer(no_args_is_help=True, help="Limits that were reached, and letting them go.")
REASONS: Final = ("expired", "no_rung", "unanswered", "undeliverable", "vetoed")
"""Why else a recovery is withheld; resetting one has it decided again."""


@breaker.command()
def show(
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Show every limit, and which has tripped: by whom and since when. Exit 1: one has."""
    hands = run_on_loop(_read(cell, server, context, credentials))
    if json:
        print_json(document(hands, tripped=list(hands.tripped.values()), limits=_limits(hands)))
    else:
        for limit, value in _limits(hands).items():
            say(f"{limit:<24} {value:>8}  {_standing(limit, hands)}")
    if hands.tripped:
        raise typer.Exit(1)


@breaker.command()
def reset(
    limit: Annotated[
        str,
        typer.Argument(help="A limit, or why a recovery is withheld; if left out: all limits."),
    ] = "",
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Let a tripped limit count from zero, and have decided again what it withheld
    (changes the cluster). Exit 3: nothing tripped.
    """
    who = signed(by, reason)
    hands, limits = run_on_loop(_reset(limit, who, (cell, server, context, credentials)))
    if json:
        print_json(document(hands, reset=limits, tripped=list(hands.tripped.values())))
        return
    for each in limits:
        say(f"{each} is reset: what it withheld is decided again")


async def _read(cell: str, server: str, context: str, credentials: Path | None) -> "Hands":
    async with await open_log(cell, server, context, credentials) as log:
        return await read_hands(log)


async def _reset(
    limit: str, who: dict[str, str], where: tuple[str, str, str, Path | None]
) -> tuple["Hands", list[str]]:
    from nemesis.schemas.operated import BreakerReset
    from nemesis.schemas.policy import LIMITS

    if limit and limit not in (*LIMITS, *REASONS):
        expected = ", ".join((*LIMITS, *REASONS))
        raise BadUsageError(f"no limit {limit[:60]!r}", hint=f"expected one of: {expected}")
    async with await open_as_operator(*where) as log:
        hands = await read_hands(log)
        held = {*(each.limit for each in hands.tripped.values()), *_withheld_by(hands)}
        limits = [limit] if limit else sorted({each.limit for each in hands.tripped.values()})
        if not limits or not held.issuperset(limits):
            what = f"{limit} has not tripped" if limit else "no limit has tripped"
            stands = ", ".join(sorted(held)) or "nothing"
            raise NothingToDoError(what, hint=f"in the way now: {stands}")
        for each in limits:
            await write(log, hands, BreakerReset(at_ns=0, limit=each, **who), each, once=False)
    return hands, limits


def _withheld_by(hands: "Hands") -> set[str]:
    return {each.limit for each in hands.withheld.values()}


def _limits(hands: "Hands") -> dict[str, int]:
    from nemesis.schemas.policy import LIMITS

    return {limit: getattr(hands.policy, limit) for limit in LIMITS}


def _standing(limit: str, hands: "Hands") -> str:
    found = [each for each in hands.tripped.values() if each.limit == limit]
    if not found:
        return "ok"
    who = ", ".join(f"{e.job} {ago(hands.log_time_ns, e.at_ns)}" for e in found)
    return f"TRIPPED by {who}; `nemesis breaker reset {limit}`"
