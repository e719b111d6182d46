"""Writes events as lines to a syslog daemon, by the standard library's handler.

A daemon acknowledges nothing: what it did with a line nobody learns. That it is not there is
learned over a socket file and TCP, and never over UDP.
"""

import asyncio
import logging
import socket
from logging.handlers import SysLogHandler
from typing import Final, Self

import msgspec

from nemesis.actors.sink.delivery import Event, PassingError
from nemesis.actors.sink.severity import level_of
from nemesis.schemas.printable import one_line

LINE_CHARS_MAX: Final = 1000  # RFC 3164 ends a line at 1,024 bytes
LOCAL: Final = "/dev/log"


class _Handler(SysLogHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        raise  # noqa: PLE0704  # it is called while the error is handled


class Syslog:
    """One daemon: a socket file, or `host:port` by UDP or TCP; `async with`."""

    def __init__(self, address: str = LOCAL, *, tcp: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._address: Final = (host, int(port)) if host and port.isdecimal() else address
        self._kind: Final = socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM
        # a stream is cut into lines at the line feed (RFC 6587, 3.4.2); rsyslog cuts at no NUL
        self._end: Final = "\n" if tcp else ""
        self._handler: SysLogHandler | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()

    async def deliver(self, event: Event) -> None:
        """Write its line.

        Raises:
            PassingError: no daemon is there.
        """
        try:
            await asyncio.to_thread(self._write, event)
        except OSError as error:
            self._drop()
            raise PassingError(f"syslog: {error.strerror or error}") from error

    def _write(self, event: Event) -> None:
        if self._handler is None:
            self._handler = _Handler(
                self._address, facility=SysLogHandler.LOG_DAEMON, socktype=self._kind
            )
            self._handler.ident = "nemesis: "
            self._handler.append_nul = not self._end
        severity = level_of(event.fact)
        line = line_of(event) + self._end
        self._handler.emit(logging.LogRecord("nemesis", severity, "", 0, "%s", (line,), None))

    def _drop(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.close()


def line_of(event: Event) -> str:
    """One line: what, of what, why."""
    data = msgspec.json.decode(event.body).get("data", {})
    said = data.get("reason") or data.get("text") or ""
    incident = f" incident={data['incident']}" if data.get("incident") else ""
    return one_line(f"{event.fact} {event.key}{incident} id={event.id}: {said}")[:LINE_CHARS_MAX]
