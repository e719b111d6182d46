"""`nemesis codes`: what a code of a driver means, what it follows, and what to do."""

from typing import Annotated

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.schemas.errors import NemesisError


class NoSuchCodeError(NemesisError):
    """A code that the catalogue does not hold."""

    exit_code = 3


def codes(
    wanted: Annotated[
        str, typer.Argument(metavar="[CODE]", help="A number, xid79, or xid, sxid, aer, nic.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Say what an Xid, SXid, AER or NIC health code means. Without one, all of them.

    Exit status: 0, or 3 where no such code is known.
    """
    from nemesis.processors.attribution.code_catalogue import code_rows

    asked = "".join(wanted.lower().split())
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
            if wanted:
                say(f"  source: {row.source}")
    if not found:
        raise NoSuchCodeError(
            f"no code {wanted!r} is known, expected a number such as 79, or xid, sxid, aer, nic",
            hint="`nemesis codes` lists all of them",
        )
