"""`scontrol show node` and `sinfo -R`: the state of nodes, and why somebody took them out."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_NODE: Final = re.compile(r"\s*NodeName=([\w.-]+)\b")
_STATE: Final = re.compile(r"\bState=([A-Z_+*~#!%$@^-]+)")
_REASON: Final = re.compile(r"\bReason=(.+?)(?: \[\w+@[^\]]*\])?\s*\Z")
_SINFO_HEAD: Final = re.compile(r"REASON\s+USER\s+TIMESTAMP\s+NODELIST")
_SINFO_ROW: Final = re.compile(r"(\S.*?)\s{2,}\S+\s+\d{4}-\d\d-\d\dT\S+\s+([\w.-]+)\s*\Z")


class SchedulerNodes:
    """Reads states of nodes."""

    def __init__(self) -> None:
        self.known = False
        self._node = ""
        self._table = False

    def take(self, line: TextLine) -> Iterable[Note]:
        """A state or a reason."""
        text = line.text
        if _SINFO_HEAD.match(text):
            self.known = self._table = True
            return ()
        if self._table and (match := _SINFO_ROW.match(text)):
            return [_note(line, match[2], "slurm.reason", match[1])]
        if match := _NODE.match(text):
            self.known, self._node = True, match[1]
        if not self._node:
            return ()
        found = [
            _note(line, self._node, name, match[1])
            for name, pattern in (("slurm.state", _STATE), ("slurm.reason", _REASON))
            if (match := pattern.search(text))
        ]
        return found

    def end(self) -> Iterable[Note]:
        """Nothing waits for the end."""
        return ()


def _note(line: TextLine, node: str, name: str, value: str) -> Note:
    component = f"node/{node}"
    return note(
        line, SettingRead(**unplaced(node), component=component, name=name, value=value[:500])
    )
