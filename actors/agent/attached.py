"""An agent whose ranks come by themselves: what it leaves for them to find, and what it leaves out.

Ranks that torchrun or srun started have the variable NEMESIS_AGENT, the agent's socket, and beside
that a file which says what launched ranks find in their environment (training/attach.py).
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.launch import Launch
from nemesis.schemas.errors import NemesisError
from nemesis.streams.replacing import replace_file

SOCKET: Final = "agent.sock"
_PATH_BYTES_MAX: Final = 107
"""Of a socket's path, man 7 unix."""
_OF_EARLIER_RANKS: Final = ("plan.json", "store.json")


class LongPathError(NemesisError):
    """The agent's folder lies too deep for sockets."""

    exit_code = 2


def prepare(folder: Path, launch: Launch) -> Path:
    """Make a folder ready for an agent; the socket that ranks are to be told of.

    What an earlier life of the agent kept counts only while ranks of it live.

    Raises:
        LongPathError: no socket can lie there.
    """
    path = folder / SOCKET
    longest = folder / f"rank_{max(launch.ranks)}.tap"
    if len(os.fsencode(max(path, longest, key=lambda each: len(str(each))))) > _PATH_BYTES_MAX:
        raise LongPathError(
            f"{folder} lies too deep for a socket", hint="set NEMESIS_STATE_DIR to a shorter path"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _has_ranks(path):
        for name in _OF_EARLIER_RANKS:
            (folder / name).unlink(missing_ok=True)
    told = {"job": launch.job, "host": launch.host}
    replace_file(folder / "attached.json", msgspec.json.encode(told))
    return path


def _has_ranks(socket_path: Path) -> bool:
    """Whether a process lives that was told of this socket."""
    wanted = b"NEMESIS_AGENT=" + os.fsencode(socket_path)
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in environment.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue  # it ended, or is somebody else's
    return False
