"""The text of NCCL's RAS client: how far groups of ranks came, and whose data are missing.

It counts the ranks that came equally far and lists the ranks of a small group below; a line names
a rank only together with the heading it stands under. What comes out are the words that RAS uses
where it names each rank.

Shapes: NVIDIA/nccl src/ras/client_support.cc.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import LogLineWritten

_COMMUNICATOR: Final = re.compile(r"#\d+-\d+ \([0-9a-f]{8,}\)")
_COUNTED: Final = re.compile(r"\s*\d+ ranks? ha(?:s|ve) launched up to operation (\d+)")
_MISSING: Final = re.compile(r"\s*Missing communicator data from (\d+) ranks?\b")
_RANK: Final = re.compile(r"\s*Rank (\d+) -- GPU \S+ managed by process \d+ on node (\S+)")
MISSING_MAX: Final = 8  # more are not missing: the collection of their data failed


class RasReport(Reader):
    """Reads what belongs to a heading before it."""

    starts = (_COMMUNICATOR, _COUNTED, _MISSING, _RANK)

    def __init__(self) -> None:
        self._operation = ""
        self._missing: list[str] = []
        self._open = False
        """Ranks that follow are missing."""
        self._line: TextLine | None = None

    @property
    def busy(self) -> bool:
        """Below a heading, which any other line ends."""
        return bool(self._operation) or self._open or self._line is not None

    def take(self, line: TextLine) -> Iterable[Note]:
        """A heading, or a rank below one."""
        if match := _RANK.match(line.text):
            return self._rank(line, match[1], match[2])
        done = self._done()
        self._operation = ""
        if match := _COUNTED.match(line.text):
            self._operation = match[1]
            return [*done, _said(line, line.text.strip(), "")]
        if match := _MISSING.match(line.text):
            self._open = len(match[1]) < 3 and int(match[1]) <= MISSING_MAX
        elif _COMMUNICATOR.match(line.text):
            self.known = True
            return [*done, _said(line, line.text.strip(), "")]
        return done

    def end(self) -> Iterable[Note]:
        """The last list of missing ranks."""
        return self._done()

    def _rank(self, line: TextLine, rank: str, host: str) -> list[Note]:
        if self._operation:
            text = f"Rank {rank} has launched up to operation {self._operation}"
            return [_said(line, text, host)]
        if self._open:
            self._missing.append(rank)
            self._line = line
        return []

    def _done(self) -> list[Note]:
        missing, line = self._missing, self._line
        self._open, self._missing, self._line = False, [], None
        if line is None:
            return []
        return [_said(line, f"missing ranks: {{{', '.join(missing)}}}", "")]


def _said(line: TextLine, text: str, host: str) -> Note:
    written = LogLineWritten(**unplaced(host[:63] or line.host), source="ras", text=text[:2000])
    return note(line, written)
