"""The command `nemesis`: one module a command, imported when it is used."""

import os
import sys

import msgspec

from nemesis.schemas.errors import NemesisError


def main() -> None:
    """Run the command line; every expected failure is one line and a documented exit status."""
    from nemesis.cli.app import app

    try:
        app(standalone_mode=True)
    except NemesisError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output left; point stdout elsewhere so that the exit is silent too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _complain(error: NemesisError) -> None:
    if "--json" in sys.argv or "--jsonl" in sys.argv:
        body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        print(msgspec.json.encode(body).decode(), file=sys.stderr)
        return
    hint = f"; {error.hint}" if error.hint else ""
    print(f"nemesis: {error.message}{hint}", file=sys.stderr)
