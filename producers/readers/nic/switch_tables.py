"""Tables that SONiC's command line prints: pause frames by priority, and its watchdog's storms.

A table is known by its heading, a switch by the prompt before the command. Ports keep their names;
counters get those that SONiC's database has for them.

Shapes: sonic-net/sonic-utilities scripts/pfcstat and pfcwd/main.py.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead

STORMS: Final = "pfcwd_storms_detected"
_PROMPT: Final = re.compile(r"\w+@([A-Za-z0-9][\w.-]{0,62}):\S*[#$] ")
_FRAMES_HEAD: Final = re.compile(r"\s*Port (Rx|Tx)((?:\s+PFC\d)+)\s*\Z")
_STORMS_HEAD: Final = re.compile(r"\s*QUEUE\s+STATUS\s+STORM DETECTED/RESTORED\b")
_STORMS_ROW: Final = re.compile(r"\s*(\w+):(\d)\s+\S+\s+(\d{1,18})/\d{1,18}\s")
_ROW: Final = re.compile(r"\s*([A-Za-z][\w/.-]*)((?:\s+[\d,]{1,24})+)\s*\Z")


class SwitchTables(Reader):
    """Reads rows under the heading that was last met."""

    starts = (_FRAMES_HEAD, _STORMS_HEAD, _PROMPT)

    def __init__(self) -> None:
        self._switch = ""
        self._table = ""

    @property
    def busy(self) -> bool:
        """Below the head of a table."""
        return bool(self._table)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A row of a table."""
        text = line.text
        if match := _FRAMES_HEAD.match(text):
            self.known, self._table = True, match[1].lower()
        elif _STORMS_HEAD.match(text):
            self.known, self._table = True, STORMS
        elif match := _PROMPT.match(text):
            self._switch, self._table = match[1], ""
        elif self._table == STORMS and (match := _STORMS_ROW.match(text)):
            return [self._note(line, match[1], [(f"{STORMS}_{match[2]}", int(match[3]))])]
        elif self._table in ("rx", "tx") and (match := _ROW.match(text)):
            numbers = [int(each.replace(",", "")[:18] or 0) for each in match[2].split()]
            kind = f"{self._table}_pkts"
            names = [f"sai_port_stat_pfc_{at}_{kind}" for at in range(len(numbers))]
            return [self._note(line, match[1], list(zip(names, numbers, strict=True)))]
        return ()

    def _note(self, line: TextLine, port: str, counters: list[tuple[str, int]]) -> Note:
        return note(
            line,
            CountersRead(
                **unplaced(self._switch or line.host),
                component=f"port/{self._switch}/{port}",
                counters=tuple(counters),
            ),
        )
