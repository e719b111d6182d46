"""The event log of a server's board: `ipmitool sel list` and `elist`, a line an event.

Columns are number, date, time, sensor, what happened, and whether it came or went; only events that
came are taken, and of them those that say that something failed.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.processors.attribution.host_lines import board
from nemesis.processors.attribution.severity import is_severe
from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import LogLineWritten

_EVENT: Final = re.compile(
    r"\s*[0-9a-f]{1,4} \|\s*(?:\d\d/\d\d/\d{2,4}|Pre-Init)\s*\|[^|]{1,20}\|"
    r"\s*(?P<says>\S[^|]*\|[^|]+)\|\s*(?P<how>Asserted|Deasserted)"
)
NOTES_MAX: Final = 1000


class BoardLog(Reader):
    """Reads events."""

    starts = (_EVENT,)

    def __init__(self) -> None:
        self._left = NOTES_MAX

    def take(self, line: TextLine) -> Iterable[Note]:
        """An event that tells of a failure."""
        match = _EVENT.match(line.text)
        if match is None:
            return ()
        self.known = True
        says = " ".join(match["says"].split())
        if match["how"] != "Asserted" or self._left <= 0:
            return ()
        if board(says) is None and not is_severe(says):
            return ()
        self._left -= 1
        written = LogLineWritten(**unplaced(line.host), source="health", text=says[:2000])
        return [note(line, written)]
