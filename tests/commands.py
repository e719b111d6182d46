"""Runs `nemesis` within the test's own process, and finds what a run of it started."""

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import msgspec

from nemesis.cli import main


class Ran(msgspec.Struct):
    """What a command said and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def nemesis(*arguments: str, **variables: str) -> Ran:
    """Run the command with these environment variables."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch("sys.argv", ["nemesis", *arguments]),
        mock.patch.dict(os.environ, variables),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Ran(code, stdout.getvalue(), stderr.getvalue())


def processes_of(state: Path) -> list[int]:
    """Processes whose command line names this folder; a zombie has none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(state).encode() in words:
                found.append(int(entry.name))
    return found
