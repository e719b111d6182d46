"""The environment of a rank's process, as `env` or /proc/PID/environ print it: which rank, where.

torchrun sets RANK, srun SLURM_PROCID and SLURMD_NODENAME, mpirun OMPI_COMM_WORLD_RANK.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

HOST_OF_RANK: Final = "host"
_SET: Final = re.compile(
    r"(?:export |declare -x )?([A-Z][A-Z0-9_]{1,60})=\"?([^\"\s]{0,200})\"?\s*\Z"
)
_RANK: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_HOST: Final = ("SLURMD_NODENAME", "HOSTNAME", "HOST")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,62}\Z")


class Environment(Reader):
    """Collects what places a process; a rank set anew begins another one."""

    starts = (_SET,)

    def __init__(self) -> None:
        self._set: dict[str, str] = {}
        self._line: TextLine | None = None

    def take(self, line: TextLine) -> Iterable[Note]:
        """The process before, where this line begins another one."""
        match = _SET.match(line.text)
        if match is None or match[1] not in (*_RANK, *_HOST):
            return ()
        done = self._done() if match[1] in self._set else []
        self._set[match[1]] = match[2]
        if match[1] in _RANK:
            self._line = self._line or line
        return done

    def end(self) -> Iterable[Note]:
        """The last process."""
        return self._done()

    def _done(self) -> list[Note]:
        told, line = self._set, self._line
        self._set, self._line = {}, None
        rank = next((told[name] for name in _RANK if name in told), "")
        host = next((told[name] for name in _HOST if name in told), "")
        if line is None or not rank.isdecimal() or len(rank) > 7 or not _NAME.match(host):
            return []
        self.known = True
        component = f"rank/job/{int(rank)}"
        setting = SettingRead(**unplaced(host), component=component, name=HOST_OF_RANK, value=host)
        return [note(line, setting)]
