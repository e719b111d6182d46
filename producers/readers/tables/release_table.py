"""Tables of releases by host: a column of hosts, columns named after what has a release.

`host driver nccl ofed`, separated by blanks, commas, bars or tabs; people make them with a loop of
ssh. A row that does not fit its head ends the table.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

RELEASE: Final = "release."
_SPLIT: Final = re.compile(r"\s*[,;|\t]\s*|\s{2,}|\s+")
_HOST_COLUMN: Final = re.compile(r"(?:host(?:name)?|node|machine|server)\Z", re.IGNORECASE)
_HOST_CELL: Final = re.compile(
    r"(?:\A|[\s,;|])(?:host(?:name)?|node|machine|server)(?:[\s,;|]|\Z)", re.IGNORECASE
)
_WHAT: Final = re.compile(
    r"(?:nvidia[-_ ]?)?(?:driver|nccl|cuda|cudnn|torch|pytorch|ofed|mlnx_?ofed|doca|firmware|fw"
    r"|vbios|kernel|hpc-?x|ucx|fabric-?_?manager|os|gdrcopy|plugin|aws-ofi-nccl)"
    r"(?:[-_ ]?(?:version|ver))?\Z",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,62}\Z")
_RELEASE: Final = re.compile(r"(?=.*\d)[\w.+:~-]{1,60}\Z")


class ReleaseTable(Reader):
    """Reads rows of hosts."""

    holds = (_HOST_CELL,)

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._host_at = 0

    @property
    def busy(self) -> bool:
        """In a table, which any other line ends."""
        return bool(self._columns)

    def take(self, line: TextLine) -> Iterable[Note]:
        """The releases of one host, or the head."""
        if not self._columns and not _HOST_CELL.search(line.text):
            return ()
        cells = [each.strip() for each in _SPLIT.split(line.text.strip().strip("|").strip())]
        if self._takes_head(cells):
            return ()
        if not self._columns:
            return ()
        if line.text.strip(" |+-=\t") == "":
            return ()  # a rule below the head
        if len(cells) != len(self._columns) or not _HOST.match(cells[self._host_at]):
            self._columns = []
            return ()
        return self._row(line, cells)

    def _takes_head(self, cells: list[str]) -> bool:
        hosts = [at for at, cell in enumerate(cells) if _HOST_COLUMN.match(cell)]
        named = [cell for cell in cells if _WHAT.match(cell)]
        if len(hosts) != 1 or not named or len(named) + 1 != len(cells):
            return False
        self.known, self._columns, self._host_at = True, cells, hosts[0]
        return True

    def _row(self, line: TextLine, cells: list[str]) -> list[Note]:
        host = cells[self._host_at]
        return [
            note(
                line,
                SettingRead(
                    **unplaced(host),
                    component=f"node/{host}",
                    name=RELEASE + re.sub(r"[-_ ](?:version|ver)\Z", "", column.lower()),
                    value=cell,
                ),
            )
            for column, cell in zip(self._columns, cells, strict=True)
            if column != self._columns[self._host_at] and _RELEASE.match(cell)
        ]
