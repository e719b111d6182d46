"""`nemesis codes`: what a code of a driver means, what it follows, and what to do."""

from typing import Annotated, Final

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.schemas.errors import NemesisError

NOTHING_YET: Final = ("none", "watch", "collect_more")
ALONE: Final = (
    "is the first step for the device by this code alone; "
    "`nemesis triage` weighs all evidence and the job, and may keep off the whole node"
)


class NoSuchCodeError(NemesisError):
    """A code that the catalogue does not hold."""

    exit_code = 3


def codes(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODE]", help="79, xid 79, xid:79, or xid, sxid, aer, nic."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what an Xid, SXid, AER or NIC health code means. Without one, all of them.

    Exit status: 0, or 3 where no such code is known.
    """
    from nemesis.processors.attribution.code_catalogue import code_rows

    words = " ".join(wanted or [])
    asked = "".join(words.lower().replace(":", " ").split())
    found = [
        row for row in code_rows() if asked in ("", row.code, row.family, row.family + row.code)
    ]
    if json:
        print_json([row._asdict() for row in found])
    else:
        for row in found:
            say(f"{row.family} {row.code}: {row.meaning} ({row.severity}; {row.action})")
            if row.follows:
                say(f"  may only follow: {row.follows}")
            if asked:
                say(f"  source: {row.source}")
            if asked and row.action not in NOTHING_YET:
                say(f"  {row.action} {ALONE}")
    if not found:
        raise NoSuchCodeError(
            f"no code {words[:40]!r} is known, expected 79, xid 79, or xid, sxid, aer, nic",
            hint="`nemesis codes` lists all of them",
        )
