"""`nemesis approve` and `nemesis veto`: a person's word on one decision."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import (
    ByOption,
    ReasonOption,
    TooLateError,
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
    from nemesis.views.hands import Decided, Hands

DecisionArgument = Annotated[str, typer.Argument(help="Its name, as `nemesis decisions` lists it.")]
Word = Literal["approve", "veto"]


def approve(
    decision: DecisionArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Let a waiting decision go ahead (changes the cluster). Exit 3: unknown, 4: too late."""
    who = signed(by, reason)
    _answer("approve", decision, who, (cell, server, context, credentials), json=json)


def veto(
    decision: DecisionArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Forbid a decision that nobody has begun to carry out. Exit 3: unknown, 4: too late."""
    who = signed(by, reason)
    _answer("veto", decision, who, (cell, server, context, credentials), json=json)


def _answer(
    word: Word,
    name: str,
    who: dict[str, str],
    where: tuple[str, str, str, Path | None],
    *,
    json: bool,
) -> None:
    hands, decided = run_on_loop(_write(word, name, who, where))
    pauses = hands.pauses(decided) if word == "approve" else []
    if json:
        print_json(document(hands, decision=decided, paused=pauses))
        return
    what = f"{decided.decision}: {decided.action} of {decided.target}"
    if word == "veto":
        say(f"{what} will not be done; look with `nemesis decisions`")
        return
    say(f"{what} goes ahead" + (f", {decided.world} ranks go on" if decided.world else ""))
    for scope in pauses:
        say(f"{scope} is paused: nothing happens before `nemesis resume {scope}`")


async def _write(
    word: Word, name: str, who: dict[str, str], where: tuple[str, str, str, Path | None]
) -> tuple["Hands", "Decided"]:
    from nemesis.schemas.operated import DecisionApproved, DecisionVetoed

    struct = DecisionApproved if word == "approve" else DecisionVetoed
    async with await open_as_operator(*where) as log:
        hands = await read_hands(log)
        decided = hands.decisions.get(name)
        if decided is None:
            waiting = ", ".join(each.decision for each in hands.waiting()) or "none"
            hint = f"waiting: {waiting}; `nemesis decisions --all` lists every one"
            raise unknown("decision", name, hands.decisions, hint=hint)
        _check(word, decided, hands)
        act = struct(at_ns=0, decision=name, **who)
        seq = await write(log, hands, act, name, once=True)
        if not seq or decided.answer.seq != seq:
            _check(word, decided, hands)
            raise TooLateError(f"{name} was answered by somebody else just now")
    return hands, decided


def _check(word: Word, decided: "Decided", hands: "Hands") -> None:
    """Whether this word can still be said.

    Raises:
        TooLateError: no, and why.
    """
    state, now_ns, answer = decided.state_at(hands.log_time_ns), hands.log_time_ns, decided.answer
    if state == "waiting" or (word == "veto" and state in ("approved", "due")):
        return
    name = decided.decision
    when = ago(now_ns, answer.at_ns)
    why = {
        "approved": f"{name} was approved by {answer.by} {when}: {answer.reason}",
        "vetoed": f"{name} was vetoed by {answer.by} {when}: {answer.reason}",
        "due": f"{name} needs no approval, its mode is act",
        "expired": f"{name} expired {ago(now_ns, decided.deadline_ns)}, nothing was done",
        "superseded": f"{name} makes way for a later decision or membership of {decided.job}",
        "advice": f"{name} is advice: {decided.action} is for a person to do",
        "recorded": f"{name} is only recorded, its mode is shadow",
        "void": f"{name} is void: the log moved on before it was written",
        "under way": f"{name} is being carried out",
        "done": f"{name} was carried out",
        "failed": f"{name} was tried and failed",
        "withdrawn": f"{name} was withdrawn before anything was done",
        "unknown": f"{name} was tried, nobody can say whether it took place",
    }[state]
    raise TooLateError(why, hint=_next(decided, hands))


def _next(decided: "Decided", hands: "Hands") -> str:
    """What a person can do now."""
    if hands.waiting():
        return "`nemesis decisions` lists what waits now"
    stuck = hands.withheld.get(decided.job)
    if stuck is not None and stuck.limit in ("expired", "vetoed"):
        return f"`nemesis breaker reset {stuck.limit}` has it decided again"
    return f"`nemesis incident {decided.incident}` tells the story"
