"""`nemesis decisions`: what waits for a person, and what became of the others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import document, read_hands, until
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.hands import Decided, Hands


def decisions(
    all_: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """List what waits for a person, soonest deadline first. Exit 1: something does."""
    hands = run_on_loop(_read(cell, server, context, credentials))
    waiting = hands.waiting()
    if json:
        over = list(hands.decisions.values()) if all_ else []
        rows = [_row(each, hands) for each in (over or waiting)]
        print_json(document(hands, decisions=rows, withheld=list(hands.withheld.values())))
    else:
        for line in attention(hands) or ["nothing waits for a person"]:
            say(line)
        for each in hands.decisions.values() if all_ else ():
            say(_line(each, hands))
    if waiting or hands.withheld:
        raise typer.Exit(1)


def attention(hands: "Hands") -> list[str]:
    """What a person must know of before anything else; used by `nemesis status` too."""
    lines: list[str] = []
    for each in hands.waiting():
        lines.append(
            f"WAITS FOR APPROVAL {each.decision}: {each.action} of {each.target},"
            f" {each.world} ranks go on, expires in {until(hands.log_time_ns, each.deadline_ns)};"
            f" `nemesis approve {each.decision}` or `nemesis veto {each.decision}`"
        )
        lines.append(f"  {each.reason}")
        lines += [f"  {scope} is paused: nothing happens before" for scope in hands.pauses(each)]
    for stuck in hands.withheld.values():
        lines.append(f"A PERSON MUST LOOK at {stuck.job} ({stuck.limit}): {stuck.reason}")
        if stuck.limit not in ("paused", "no_rung"):
            lines.append(f"  `nemesis breaker reset {stuck.limit}` has it decided again")
    for tripped in hands.tripped.values():
        lines.append(f"TRIPPED {tripped.limit}, by {tripped.job}: `nemesis breaker show`")
    for scope, said in hands.paused.items():
        lines.append(f"PAUSED {scope}, by {said.by}: {said.reason}")
    for node, said in hands.protected.items():
        lines.append(f"protected {node}, by {said.by}: {said.reason}")
    return lines


async def _read(cell: str, server: str, context: str, credentials: Path | None) -> "Hands":
    async with await open_log(cell, server, context, credentials) as log:
        return await read_hands(log)


def _row(each: "Decided", hands: "Hands") -> dict[str, object]:
    import msgspec

    row: dict[str, object] = msgspec.to_builtins(each)
    return row | {"state": each.state_at(hands.log_time_ns)}


def _line(each: "Decided", hands: "Hands") -> str:
    state = each.state_at(hands.log_time_ns)
    said = f", {each.answer.by}: {each.answer.reason}" if each.answer.by else ""
    return f"{each.decision:<12} {state:<11} {each.action:<20} {each.target}{said}"
