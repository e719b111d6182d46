"""How commands speak: data on stdout, progress on stderr where somebody looks."""

import sys
import time
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def say(line: str) -> None:
    """One line for people; words of others in it cannot command the terminal."""
    from nemesis.schemas.printable import one_line

    typer.echo(one_line(line))


def print_json(document: Any) -> None:
    """One JSON document, or one line of a stream of them."""
    import msgspec

    typer.echo(msgspec.json.encode(document).decode())


class Progress:
    """A line on a terminal that says how far it is; nothing where nobody looks."""

    def __init__(self, total_count: int, what: str = "facts") -> None:
        """`total_count` of `what`; 0: nobody knows."""
        self._total_count = total_count
        self._what = what
        self._shown = sys.stderr.isatty()
        self._last_s = 0.0

    def at(self, count: int) -> None:
        """So many have passed."""
        now_s = time.monotonic()
        if self._shown and now_s - self._last_s > 0.2:
            self._last_s = now_s
            share = f", {min(100, 100 * count // self._total_count)} %" if self._total_count else ""
            print(f"\r{count} {self._what}{share}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._shown and self._last_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
