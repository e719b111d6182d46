"""What all browsers share: the board, who waits for it to change, and each change encoded once."""

import asyncio
import secrets
from typing import Any, Final

import msgspec

from nemesis.views.dashboard.board import Board

CACHED_MAX: Final = 8  # browsers are at one of the last few versions, or catch up once

_encoder: Final = msgspec.json.Encoder()


class Hub:
    """One board and its audience. Nothing is kept for anybody: a browser says where it is."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.run = secrets.token_hex(4)
        """Names this life of the board: versions of another one mean nothing."""
        self.connected = False
        """The log answers."""
        self.ticking = True
        """Log time goes on."""
        self.ready = False
        """The past has been read."""
        self._news = asyncio.Event()
        self._cache: Final[dict[int, bytes]] = {}
        self._cached_version = 0

    def publish(self) -> None:
        """The board has changed."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def replace(self, board: Board) -> None:
        """The log is another one: everybody starts over."""
        self.board = board
        self.run = secrets.token_hex(4)
        self.publish()

    async def wait(self, run: str, version: int, timeout_s: float) -> bool:
        """Until the board is newer than that; False: nothing for so long."""
        while self.run == run and self.board.version <= version:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True

    def state(self) -> bytes:
        """The whole document."""
        return _encoder.encode(self._header() | self.board.document())

    def changes(self, since: int) -> bytes:
        """What changed since a version; JSON on one line."""
        if self._cached_version != self.board.version:
            self._cache.clear()
            self._cached_version = self.board.version
        if since not in self._cache:
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[since] = _encoder.encode(self._header() | self.board.changes(since))
        return self._cache[since]

    def _header(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "connected": self.connected,
            "ticking": self.ticking,
            "ready": self.ready,
        }
