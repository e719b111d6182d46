"""Reads the flight recorder of a live rank, stuck or not, from the socket that torch serves it on.

The handler is `fr_trace_json` of torch's worker server (distributed/elastic/control_plane.py).
It answers in about a millisecond, and needs neither the main thread nor Python's lock.
"""

import http.client
import socket
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 3.0
PATH: Final = "/handler/fr_trace_json"


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path: Final = path

    def connect(self) -> None:
        """Instead of a host, a path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def read_recorder(path: Path, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """The recorder as JSON; None where nobody answers: the process is dead or stopped."""
    connection = _Connection(path, timeout_s)
    try:
        connection.request("POST", PATH)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
