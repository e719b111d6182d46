"""What ranks print, shown where the job was started: each of their files read to its end so far.

Ranks write into files, so that they need nobody who reads. torchrun leaves them its own output
instead; what a user sees is the same.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nemesis.streams.side_by_side import background

LOOK_S: Final = 0.1
BYTES_MAX: Final = 1 << 20
"""At once, of one rank."""


class _Echo:
    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._read: Final[dict[Path, int]] = {}

    def show(self) -> bool:
        """Show what is new; whether there was anything."""
        anything = False
        for path in sorted(self._folder.glob("rank_*.log")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                more = file.read(BYTES_MAX)
            # whole lines, so that two ranks never share one; a long wait without its end is shown
            whole = more.rpartition(b"\n")
            shown = whole[0] + whole[1] or (more if len(more) == BYTES_MAX else b"")
            if shown:
                anything = True
                self._read[path] = self._read.get(path, 0) + len(shown)
                sys.stdout.buffer.write(shown)
        sys.stdout.flush()
        return anything

    def show_rest(self) -> None:
        """Show all, lines that were not ended too."""
        while self.show():
            pass
        for path in sorted(self._folder.glob("rank_*.log")):
            sys.stdout.buffer.write(path.read_bytes()[self._read.get(path, 0) :])
        sys.stdout.flush()

    async def run(self) -> None:
        """Show for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.show()


@asynccontextmanager
async def echo(folder: Path) -> AsyncIterator[None]:
    """Show what ranks write to `rank_<n>.log` in this folder, to the last byte."""
    shown = _Echo(folder)
    try:
        async with background(shown.run()):
            yield
    finally:
        shown.show_rest()
