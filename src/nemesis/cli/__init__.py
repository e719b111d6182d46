"""The command `nemesis`: one module a command, imported when it is used."""

import io
import os
import sys

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.printable import one_line


def main() -> None:
    """Run the command line; every expected failure is one line and a documented exit status."""
    _take_any_streams()
    try:
        from nemesis.cli.app import app  # takes a while, and Ctrl-C may come at once

        app(standalone_mode=True)
    except NemesisError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()  # its reader left
        sys.exit(1)
    except OSError as error:
        # errors of files are explained where they are read; this is the output, on a full disk
        place = error.filename or "cannot write"
        _complain(NemesisError(f"{place}: {error.strerror or error}"))
        _drop_output()
        sys.exit(1)


def _take_any_streams() -> None:
    """Work where standard streams are closed, or cannot spell what is to be said."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the number, so that no other file gets it
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Point stdout elsewhere, so that what is left in its buffer ends silently."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: NemesisError) -> None:
    if "--json" in sys.argv or "--jsonl" in sys.argv:
        body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        print(msgspec.json.encode(body).decode(), file=sys.stderr)
        return
    hint = f"; {error.hint}" if error.hint else ""
    print(one_line(f"nemesis: {error.message}{hint}"), file=sys.stderr)
