"""What an agent and its ranks say to each other: JSON lines over a socket file of the node.

A rank introduces itself once, then tells how it stands at each change and after each step. The
agent answers with its last orders, whole each time, so a rank that connects again misses nothing.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from nemesis.training.membership import Order, Stage, State

LINE_BYTES_MAX: Final = 1 << 20
"""Far above an order for a hundred thousand members in rank ranges."""


class Standing(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, tag="standing"):
    """A rank, as it sees itself."""

    rank: int
    pid: int
    stage: Stage
    epoch: int
    state: State
    why: str = ""
    """Of one that is held by itself: what it saw of its group."""
    checksum: int = 0
    """Of its parameters, the latest that it made; 0: none yet."""
    checked_step: int = 0
    """After which step."""
    saved_step: int = -1
    """Of the latest checkpoint that it said to be whole; -1: none."""
    saved_path: str = ""


class Told(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, tag="told"):
    """An order, and where the group of its epoch meets."""

    order: Order
    store: str = ""
    """`host:port` of the store of a membership."""


class End(msgspec.Struct, frozen=True, tag="end"):
    """Who has left may end: the next group stands."""


FromAgent = Told | End

_encoder: Final = msgspec.json.Encoder()
_from_rank: Final = msgspec.json.Decoder(Standing)
_from_agent: Final = msgspec.json.Decoder(FromAgent)


def line_of(message: Standing | Told | End) -> bytes:
    """A message as it goes over the socket."""
    return _encoder.encode(message) + b"\n"


def standing_of(line: bytes) -> Standing:
    """What a rank said.

    Raises:
        msgspec.DecodeError: it is not one of these messages.
    """
    return _from_rank.decode(line)


class Line:
    """A rank's end of the socket; reading and writing may be in two threads."""

    def __init__(self, path: Path) -> None:
        """Connect.

        Raises:
            OSError: nobody listens there.
        """
        self._socket: Final = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))

    def say(self, standing: Standing) -> None:
        """Tell the agent; an agent that is away hears it when the rank connects again."""
        try:
            self._socket.sendall(line_of(standing))
        except OSError:
            return

    def heard(self) -> Iterator[FromAgent]:
        """What the agent says, until the connection ends."""
        rest = b""
        while True:
            try:
                more = self._socket.recv(65_536)
            except OSError:
                return
            if not more or len(rest) > LINE_BYTES_MAX:
                return
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                yield _from_agent.decode(line)

    def close(self) -> None:
        """End the connection; who reads sees its end."""
        self._socket.close()
