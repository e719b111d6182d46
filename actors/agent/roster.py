"""What an agent keeps for its next life: the plan that it follows, the processes that it started.

A rank outlives its agent. The next life must neither start it twice nor overlook that it ended
meanwhile; a process that has its number and not its start time is another one (proc_pid_stat(5),
field 22), and so is every one after a boot.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.following import Accepted
from nemesis.streams.replacing import replace_file

ROSTER: Final = "ranks.json"
PLAN: Final = "plan.json"
"""Their files in an agent's folder."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 22 - 3
"""Fields are counted from 1, and what follows the name in parentheses is the third."""


class Life(msgspec.Struct, kw_only=True, frozen=True):
    """One process of a rank."""

    rank: int
    pid: int
    epoch: int
    """Of the membership that it was started for."""
    is_beside: bool = False
    """It was started for none: it waits to join."""
    started: str = ""
    """Boot of the kernel and start time of the process."""

    @property
    def is_there(self) -> bool:
        """Whether it has not ended."""
        return bool(self.started) and _started(self.pid) == self.started

    def end(self) -> None:
        """Let nothing of it run on, nor of what it started."""
        if self.is_there:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.end_children()

    def end_children(self) -> None:
        """Let nothing run on of a process that has ended: its group is its own as long as it
        has members."""
        if not Path(f"/proc/{self.pid}").exists():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class Roster:
    """The lives that were begun and not seen to end, in a file."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._lives: dict[int, Life] = {}
        self.was_kept: Final = path.exists()
        """An earlier life of the agent started ranks."""
        if path.exists():
            lives = msgspec.json.decode(path.read_bytes(), type=list[Life])
            self._lives = {life.rank: life for life in lives}

    @property
    def lives(self) -> tuple[Life, ...]:
        """By rank."""
        return tuple(life for _, life in sorted(self._lives.items()))

    def begin(self, life: Life) -> None:
        """A process was started."""
        self._lives[life.rank] = msgspec.structs.replace(life, started=_started(life.pid))
        self._keep()

    def end(self, rank: int, pid: int) -> None:
        """A process ended, and that was told."""
        life = self._lives.get(rank)
        if life is not None and life.pid == pid:
            del self._lives[rank]
            self._keep()

    def _keep(self) -> None:
        _kept(self._path, msgspec.json.encode(self.lives))


class KeptPlan:
    """The plan that an agent follows, in a file."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self.accepted: Accepted | None = None
        if path.exists():
            self.accepted = msgspec.json.decode(path.read_bytes(), type=Accepted)

    def keep(self, accepted: Accepted) -> None:
        """From here on this one counts."""
        self.accepted = accepted
        _kept(self._path, msgspec.json.encode(accepted))


def _kept(path: Path, content: bytes) -> None:
    """Write it down; what the disk does not take is no reason not to follow a plan, nor to leave a
    dead rank untold: the next life of the agent asks for its plans, and sees ranks connect."""
    try:
        replace_file(path, content)
    except OSError as error:
        sys.stderr.write(f"nemesis: {path} cannot be written ({error.strerror}), going on\n")


def _started(pid: int) -> str:
    """What tells a process from others that had its number; "" where there is none that runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else f"{BOOT.read_text().strip()} {fields[_START_FIELD]}"
