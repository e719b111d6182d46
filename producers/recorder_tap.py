"""Reads what a live rank shows, stuck or not, from the socket that torch serves it on.

Handlers of torch's worker server (distributed/elastic/control_plane.py): `fr_trace_json`, the
flight recorder, answers in about a millisecond and needs neither the main thread nor Python's lock;
`dump_traceback`, the stacks as CPython's faulthandler writes them, needs that lock, so a thread
that keeps it lets nobody see where it is.
"""

import http.client
import socket
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 3.0
PATH: Final = "/handler/fr_trace_json"
STACKS_PATH: Final = "/handler/dump_traceback"


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
    return _answer(path, PATH, timeout_s)


def read_stacks(path: Path, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """The stacks of all threads as text; None where nobody answers in time."""
    return _answer(path, STACKS_PATH, timeout_s)


def _answer(path: Path, handler: str, timeout_s: float) -> bytes | None:
    connection = _Connection(path, timeout_s)
    try:
        connection.request("POST", handler)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
