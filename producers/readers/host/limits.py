"""`ulimit -a`, /proc/<pid>/limits and `free`: what a process may take, and what is left."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

# bash: `max locked memory  (kbytes, -l) 64`; zsh: `-l: locked-in-memory size (kbytes)  64`
_ULIMIT: Final = re.compile(
    r"(?:-\w: )?(max locked memory|locked-in-memory size|open files|file descriptors"
    r"|max user processes|processes)\s+\((?:(kbytes|bytes), ?)?(?:-\w|kbytes)\)\s+(\d+|unlimited)"
)
_PROC: Final = re.compile(
    r"Max (locked memory|open files|processes)\s+(\d+|unlimited)\s+(?:\d+|unlimited)\s+(?:\w+)"
)
_NAMES: Final = {
    "max locked memory": "memlock",
    "locked-in-memory size": "memlock",
    "locked memory": "memlock",
    "open files": "nofile",
    "file descriptors": "nofile",
    "max user processes": "nproc",
    "processes": "nproc",
}
_FREE_HEAD: Final = re.compile(r"\s+total\s+used\s+free\s+shared\s+buff/cache\s+available")
_FREE_ROW: Final = re.compile(r"Mem:((?:\s+[\d.]+[KMGTP]?i?B?){6})")
_SHM: Final = re.compile(r"(?:shm|tmpfs)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d+)%\s+/dev/shm\s*\Z")


class Limits(Reader):
    """Reads limits of processes and of the host's memory."""

    starts = (_FREE_HEAD, _ULIMIT, _PROC, _FREE_ROW, _SHM)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A limit, or what is left of the memory."""
        text = line.text
        if _FREE_HEAD.match(text):
            self.known = True
        elif match := _ULIMIT.match(text):
            scale = 1 if match[2] == "bytes" else 1024
            return [self._limit(line, _NAMES[match[1]], match[3], scale)]
        elif match := _PROC.match(text):
            return [self._limit(line, _NAMES[match[1]], match[2], 1)]
        elif match := _FREE_ROW.match(text):
            row = match[1].split()
            value = f"{row[5]} of {row[0]}"
            return [self._setting(line, "node//", "memory.available", value)]
        elif match := _SHM.match(text):
            return [self._setting(line, "config//shm", "used_percent", match[4])]
        return ()

    def _limit(self, line: TextLine, name: str, value: str, scale: int) -> Note:
        if name == "memlock" and value.isdecimal():
            value = str(int(value[:15]) * scale)
        unit = "limit_bytes" if name == "memlock" else "limit"
        return self._setting(line, f"config//{name}", unit, value)

    def _setting(self, line: TextLine, component: str, name: str, value: str) -> Note:
        self.known = True
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )
