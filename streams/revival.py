"""Brings an embedded server back that died, or that a full disk has silenced.

A nats-server whose disk was full answers no write any more, not even when there is room again,
until it is started anew (seen on 2.15.1: "failed to store a msg"). Nothing is lost by that:
what was acknowledged is on the disk, and who writes tries again.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from typing import Final, Protocol

from nemesis.streams.errors import ServerStartError

PERIOD_S: Final = 0.5
ROOM_BYTES: Final = 2**20  # enough for the server's bookkeeping; writers fill what is left or not
_NO_SPACE: Final = b"no space left on device"
_log: Final = logging.getLogger(__name__)


class Revivable(Protocol):
    """A server that can be brought back."""

    @property
    def cell(self) -> str:
        """Its name."""
        ...

    @property
    def folder(self) -> Path:
        """Where it keeps everything."""
        ...

    @property
    def died(self) -> bool:
        """Whether it ended without being told to."""
        ...

    async def revive(self) -> None:
        """Start it again."""
        ...

    async def restart(self) -> None:
        """Stop and start it."""
        ...


async def keep_alive(server: Revivable) -> None:
    """Until cancelled."""
    trouble = DiskTrouble(server.folder)
    while True:
        await asyncio.sleep(PERIOD_S)
        try:
            if server.died:
                _log.warning("nats-server of cell %s died: starting it again", server.cell)
                await server.revive()
            elif trouble.is_over():
                _log.warning("the disk of cell %s has room again: restarting", server.cell)
                await server.restart()
                trouble = DiskTrouble(server.folder)
        except ServerStartError as error:
            _log.warning("%s", error.message)


class DiskTrouble:
    """Whether the server met a full disk since this was made, and whether there is room now."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._log_file: Final = folder / "server.log"
        self._read_bytes = self._size()
        self._met = False

    def is_over(self) -> bool:
        """It was met, and there is room again."""
        size = self._size()
        if size < self._read_bytes:  # rotated
            self._read_bytes = 0
        if not self._met and size > self._read_bytes:
            with suppress(OSError), self._log_file.open("rb") as file:
                file.seek(self._read_bytes)
                self._met = _NO_SPACE in file.read()
        self._read_bytes = size
        # the server's own log may lie on the full disk and say nothing
        self._met = self._met or disk_usage(self._folder).free < ROOM_BYTES
        return self._met and self._has_room()

    def _size(self) -> int:
        try:
            return self._log_file.stat().st_size
        except OSError:
            return 0

    def _has_room(self) -> bool:
        probe = self._folder / "room.probe"
        try:
            return probe.write_bytes(bytes(ROOM_BYTES)) == ROOM_BYTES
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)
