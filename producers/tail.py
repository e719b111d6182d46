"""New lines of a file that somebody else writes, turns over and cuts off.

Why: a log that grows without end is rotated under whoever reads it. How: the file is looked at
whenever it is asked; what was there at first is passed over, since it is of another time. A file
that was replaced is read to its end before the new one is begun; one that was cut off is read from
its start. A line without its end waits for it; one that is too long is dropped and counted.
"""

import os
from pathlib import Path
from typing import Final

LINE_BYTES_MAX: Final = 1 << 20
LOOK_BYTES_MAX: Final = 4 << 20
"""At one look; the rest waits for the next."""


class Tail:
    """Follows one path."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        """`from_start`: what is there already counts, too; so does a file that is made later."""
        self.path: Final = path
        self.dropped_count = 0
        """Lines that were too long."""
        self._file: int | None = None
        self._rest = b""
        self._skips = False
        self._open()
        if self._file is not None and not from_start:
            os.lseek(self._file, 0, os.SEEK_END)

    def read(self, *, newest_bytes: int = 0) -> list[bytes]:
        """Whole lines that are new, without their ends; of more than `newest_bytes` the newest.

        Raises:
            OSError: the file cannot be read.
        """
        if self._file is None:
            self._open()
        if self._file is None:
            return []
        own = os.fstat(self._file)
        if own.st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, 0, os.SEEK_SET)
            self._rest = b""
        if newest_bytes and own.st_size - os.lseek(self._file, 0, os.SEEK_CUR) > newest_bytes:
            os.lseek(self._file, own.st_size - newest_bytes, os.SEEK_SET)
            self._rest, self._skips = b"", True  # it is in the middle of a line
        piece = os.read(self._file, LOOK_BYTES_MAX)
        if not piece and self._is_replaced(own):
            self.close()
            self._open()
        return self._lines(piece)

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._rest = None, b""

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self._file = None

    def _is_replaced(self, own: os.stat_result) -> bool:
        try:
            there = self.path.stat()
        except OSError:
            return False  # between two files: the old one may still grow
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)

    def _lines(self, piece: bytes) -> list[bytes]:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if self._skips and whole:
            whole, self._skips = whole[1:], False
        if len(self._rest) > LINE_BYTES_MAX:
            self.dropped_count += not self._skips
            self._rest, self._skips = b"", True
        return whole
