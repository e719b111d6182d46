"""`show_gids`: which addresses a RoCE port may use, by index."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_HEAD: Final = re.compile(r"DEV\s+PORT\s+INDEX\s+GID\b")
_ROW: Final = re.compile(
    r"(\w+)\s+(\d+)\s+(\d+)\s+((?:[0-9a-f]{4}:){7}[0-9a-f]{4})\s+([\d.]+)?\s*(v[12])\s+(\S+)"
)


class Gids(Reader):
    """Reads the table."""

    starts = (_HEAD, _ROW)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A row."""
        if _HEAD.match(line.text):
            self.known = True
            return ()
        match = _ROW.match(line.text)
        if match is None:
            return ()
        self.known = True
        device, port, index, gid, address, version, interface = match.groups()
        setting = SettingRead(
            **unplaced(line.host),
            component=f"nic//{device}",
            name=f"gid.{port}.{index}",
            value=f"{address or gid} {version} {interface}",
        )
        return [note(line, setting)]
