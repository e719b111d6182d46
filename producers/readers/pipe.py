"""Takes what comes through a pipe into a temporary file, because evidence is read twice."""

import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

SPOOL_BYTES_MAX: Final = 1024 * 1024 * 1024
STDIN: Final = frozenset({"-", "/dev/stdin"})
_BLOCK_BYTES: Final = 1024 * 1024


def is_pipe(root: Path) -> bool:
    """Whether it can be read once only: `-`, /dev/stdin, or what a shell makes of `<(command)`.

    Raises:
        OSError: it cannot be reached.
    """
    if root.as_posix() in STDIN:
        return True
    mode = root.stat().st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def spooled(root: Path) -> tuple[IO[bytes], bool]:
    """A file with all that comes, deleted when it is closed, and whether there was too much.

    Raises:
        OSError: it cannot be read, or there is no room for it.
    """
    # closed by whoever holds the bundle, at the latest when the process ends
    file = tempfile.NamedTemporaryFile(prefix="nemesis-triage-")  # noqa: SIM115
    left_bytes = SPOOL_BYTES_MAX
    number = os.dup(sys.stdin.fileno()) if root.as_posix() in STDIN else os.open(root, os.O_RDONLY)
    with os.fdopen(number, "rb", buffering=0) as stream:
        while block := stream.read(min(_BLOCK_BYTES, left_bytes)):
            file.write(block)
            left_bytes -= len(block)
        cut = left_bytes == 0 and bool(stream.read(1))
    file.flush()
    return file, cut
