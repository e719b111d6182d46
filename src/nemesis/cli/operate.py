"""How a person's word gets into the log: signed, with a reason, and told who was first.

Shared by the commands of the operator. Everything is a fact of the operator's credential; no
command talks to a process, healer and actors read it from the log.
"""

import os
import sys
import time
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import open_log
from nemesis.cli.durations import spoken
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nemesis.schemas.operated import Operation
    from nemesis.streams.log import Log
    from nemesis.views.hands import Hands

_INVENTORIES = "nemesis.telemetry.*.inventory"
BYTES_MAX = {"--by": 256, "--reason": 4096}
"""Of words that every reader of the log shows; a fact would hold 64 KiB in all."""
ReasonOption = Annotated[
    str, typer.Option("--reason", help="Why, for the record; asked for on a terminal.")
]
ByOption = Annotated[str, typer.Option("--by", help="Who; the login name if not given.")]


class BadUsageError(NemesisError):
    """The command cannot be understood as it was typed."""

    exit_code = 2


class UnknownNameError(NemesisError):
    """The log knows no such decision, job or node."""

    exit_code = 3


class NothingToDoError(NemesisError):
    """There is nothing of that kind to lift, lower or reset."""

    exit_code = 3


class TooLateError(NemesisError):
    """It was decided otherwise, began or ended before."""

    exit_code = 4


def signed(by: str, reason: str) -> dict[str, str]:
    """Who says it and why, asking where somebody is there to answer.

    Raises:
        BadUsageError: nobody to ask, bytes that are no text, or too many.
    """
    import getpass

    try:
        by = by or getpass.getuser()
    except (KeyError, OSError):
        raise BadUsageError("no login name here", hint="say who you are with --by") from None
    if not reason.strip():
        if not sys.stdin.isatty():
            raise BadUsageError("no reason given", hint='say why, for the record: --reason "..."')
        reason = typer.prompt("Why, for the record", err=True)
    for (option, most), word in zip(BYTES_MAX.items(), (by, reason), strict=True):
        if not _is_text(word):
            raise BadUsageError(f"{word[:60]!r} is not UTF-8", hint="say it in plain characters")
        if (size := len(word.encode())) > most:
            raise BadUsageError(f"{option} of {size} bytes, expected at most {most}")
    return {"by": by, "reason": reason.strip()}


def _is_text(word: str) -> bool:
    """Not so where a shell passed bytes that are no UTF-8: a fact could not hold them."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


async def open_as_operator(cell: str, server: str, context: str, credentials: Path | None) -> "Log":
    """The log, for writing what a person says.

    Raises: as `nemesis.cli.cell.open_log`.
    """
    return await open_log(cell, server, context, credentials, role="operator")


async def read_hands(log: "Log") -> "Hands":
    """What people said and what waits for them, as of the log's end and its last tick."""
    from nemesis.replay.slices import matching
    from nemesis.schemas.facts import EVENTS_SUBJECT
    from nemesis.views.hands import Hands

    hands = Hands()
    async for record in matching(log, EVENTS_SUBJECT):
        hands.see(record)
    await see_tick(log, hands)
    return hands


async def seen_nodes(log: "Log") -> set[str]:
    """Nodes that told what they are made of."""
    from nemesis.schemas.tokens import name_of
    from nemesis.streams.lookup import subjects

    return {name_of(each.split(".")[2]) for each in await subjects(log, _INVENTORIES)}


async def see_tick(log: "Log", hands: "Hands") -> None:
    """Take note of what time it is in the log."""
    from nemesis.streams.ticker import TICK_SUBJECT

    tick = await log.last(TICK_SUBJECT)
    if tick is not None:
        hands.see(tick)


async def write(log: "Log", hands: "Hands", act: "Operation", key: str, *, once: bool) -> int:
    """Put it into the log and see it in `hands`, with all that came before it; its sequence.

    `once`: only if nobody has said the same of `key` before; 0 where somebody was first.

    Raises:
        LogUnavailableError: no answer; it may or may not have been taken.
    """
    import msgspec

    from nemesis.schemas.facts import EVENTS_SUBJECT, encode_conclusion
    from nemesis.streams.errors import PositionMovedError

    at_ns = hands.log_time_ns or time.time_ns()
    act = msgspec.structs.replace(act, at_ns=at_ns)
    subject, payload = encode_conclusion(
        id=f"operator/{act.by}/{time.time_ns()}/{os.getpid()}",
        source=f"/operators/{act.by}",
        at_ns=at_ns,
        data=act,
        key=key,
    )
    seen = hands.seq
    try:
        seq = await log.publish(subject, payload, expected_last_subject_seq=0 if once else None)
    except PositionMovedError:
        seq = 0
    end = seq or (await log.bounds()).last_seq
    async for record in log.read_range(seen + 1, end, subject=EVENTS_SUBJECT):
        hands.see(record)
    return seq


def unknown(what: str, name: str, known: "Iterable[str]", *, hint: str) -> UnknownNameError:
    """The error for a name that the log does not know, with the nearest ones it does."""
    near = get_close_matches(name, sorted(set(known)), n=3, cutoff=0.5)
    return UnknownNameError(
        f"no {what} {name[:60]!r}", hint=f"do you mean {' or '.join(near)}?" if near else hint
    )


def until(now_ns: int, then_ns: int) -> str:
    """How long still, in whole seconds below a minute, else in its two largest units."""
    left_s = max(0, then_ns - now_ns) // 1_000_000_000
    return f"{left_s} s" if left_s < 60 else spoken(left_s)


def ago(now_ns: int, then_ns: int) -> str:
    """How long before."""
    return f"{until(then_ns, now_ns)} ago"


def document(hands: "Hands", **fields: Any) -> dict[str, Any]:
    """What a command says to programs: its own fields and what time it is in the log."""
    return {**fields, "log_time_ns": hands.log_time_ns}
