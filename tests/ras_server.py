"""NCCL's RAS as its guide describes it: lines in, lines out, an answer until it closes.

A stand-in: a real one needs a communicator, so GPUs.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec


class RasServer:
    """What it answers may be changed between two conversations."""

    def __init__(self) -> None:
        self.status: bytes = b""
        self.knows_json = True
        """Since NCCL 2.28.7."""
        self.half = False
        """It breaks off in the middle of its answer."""
        self.held: Final = threading.Event()
        """Answers go out only while it is set."""
        self.held.set()
        self.heard: Final[list[str]] = []
        self._listening: Final = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self._listening.getsockname()[:2]
        return f"{host}:{port}"

    def serve(self) -> None:
        """Until it is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, connection.makefile("rwb") as lines, suppress(OSError):
                    self._talk(lines)

    def close(self) -> None:
        """Nobody answers any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.held.set()

    def _talk(self, lines: Any) -> None:
        for raw in lines:
            said = raw.decode().strip().lower()
            self.heard.append(said)
            if said in ("status", "verbose status"):
                self.held.wait()
                lines.write(self.status[: len(self.status) // 2] if self.half else self.status)
                return
            if said.startswith("client protocol"):
                answer = b"SERVER PROTOCOL 2\n"
            elif said.startswith("timeout") or (said.startswith("set format") and self.knows_json):
                answer = b"OK\n"
            else:
                answer = b"ERROR: Unknown command\n"
            lines.write(answer)
            lines.flush()


@contextmanager
def ras_server() -> Iterator[RasServer]:
    """A server that runs."""
    server = RasServer()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def document(launched: dict[int, int], *, missing: tuple[int, ...] = ()) -> bytes:
    """The status of one communicator: rank to operations launched, as NCCL 2.28.7 writes it."""
    ranks = [
        {
            "rank": rank,
            "host": "10.0.0.1",
            "pid": 70 + rank,
            "collective_counts": {"AllReduce": count - 1, "AllGather": 1},
        }
        for rank, count in launched.items()
    ]
    gone = [{"rank": rank, "host": "10.0.0.9", "pid": 7} for rank in missing]
    whole = {
        "nccl_version": "2.28.9",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xfa93daea854b060b",
                "size": len(launched) + len(missing),
                "ranks": ranks,
                "missing_ranks": gone,
            }
        ],
    }
    return msgspec.json.encode(whole)
