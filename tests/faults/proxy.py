"""A TCP proxy that understands just enough of the NATS protocol to cut at a named point.

github.com/nats-io/nats-server, server/parser.go: `PUB subject [reply] size`,
`HPUB subject [reply] header-size size`, `MSG subject sid [reply] size`, `HMSG ...`, each followed
by that many bytes and CR LF.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Point = Literal[
    "batch sent",
    "answer lost",
    "answer received",
    "before snapshot",
    "after snapshot",
]
POINTS: tuple[Point, ...] = (
    "batch sent",
    "answer lost",
    "answer received",
    "before snapshot",
    "after snapshot",
)
_WITH_PAYLOAD = {b"PUB", b"HPUB", b"MSG", b"HMSG"}


class CutError(Exception):
    """The armed point was reached."""


class Proxy:
    """Between one copy and the server; `arm` a point and it happens once."""

    def __init__(self, server_port: Callable[[], int]) -> None:
        self.port = 0
        self.cuts = 0
        self.on_cut: Callable[[], None] = lambda: None
        self._server_port = server_port
        self._armed: Point | None = None
        self._fired = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def cut_at(self, point: Point) -> None:
        """Arm a point and wait until it was reached."""
        self._armed = point
        self._fired.clear()
        await self._fired.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        with suppress(OSError, CutError, asyncio.IncompleteReadError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port())
            try:
                await _Link(self, reader, writer, far_reader, far_writer).run()
            finally:
                far_writer.transport.abort()
        writer.transport.abort()

    def fire(self, point: Point) -> bool:
        """Whether this point is the armed one; then it is not armed any more."""
        if self._armed != point:
            return False
        self._armed = None
        self.cuts += 1
        self.on_cut()
        self._fired.set()
        return True


class _Link:
    """One connection of one client."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client = reader, writer
        self._server = far_reader, far_writer
        self._commit_reply = b""
        self._with_snapshot = False
        self._snapshot_committed = False

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._up())
                tasks.create_task(self._down())
        except* (CutError, OSError, asyncio.IncompleteReadError):
            raise CutError from None

    async def _up(self) -> None:
        """Client to server."""
        reader, writer = self._client[0], self._server[1]
        while True:
            verb, words, raw = await _command(reader)
            subject = words[1] if len(words) > 1 else b""
            if verb in (b"PUB", b"HPUB") and subject.startswith(b"nemesis.cursor."):
                if subject.endswith(b".snapshot"):
                    if self._proxy.fire("before snapshot"):
                        raise CutError
                    self._with_snapshot = True
                else:
                    writer.write(raw)
                    await writer.drain()
                    self._commit_reply = words[2] if b"Nats-Batch-Commit" in raw else b""
                    self._snapshot_committed, self._with_snapshot = self._with_snapshot, False
                    if self._commit_reply and self._proxy.fire("batch sent"):
                        raise CutError
                    continue
            writer.write(raw)
            await writer.drain()

    async def _down(self) -> None:
        """Server to client."""
        reader, writer = self._server[0], self._client[1]
        while True:
            verb, words, raw = await _command(reader)
            answer = verb in (b"MSG", b"HMSG") and words[1] == self._commit_reply
            if answer and self._proxy.fire("answer lost"):
                raise CutError
            writer.write(raw)
            await writer.drain()
            if answer:
                self._commit_reply = b""
                if self._proxy.fire("answer received"):
                    raise CutError
                if self._snapshot_committed and self._proxy.fire("after snapshot"):
                    raise CutError


async def _command(reader: asyncio.StreamReader) -> tuple[bytes, list[bytes], bytes]:
    """(verb, words, everything) of the next command."""
    line = await reader.readuntil(b"\r\n")
    words = line.split()
    verb = words[0].upper() if words else b""
    if verb in _WITH_PAYLOAD:
        line += await reader.readexactly(int(words[-1]) + 2)
    return verb, words, line
