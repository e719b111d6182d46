"""What a processor wrote behind its position, and what a copy must not write again.

Why: an atomic batch is whole on a running server, but a store that comes back from a copy or a
power cut may end inside of one. The position is the last message of its batch, so conclusions
survive without it. How: batches hold conclusions in order and a store loses its end only, so what
survives is a beginning: the last conclusion behind the position and how many its input has
there say what is written, as `written` does in a position.
"""

import re
from collections.abc import AsyncIterator
from typing import Final, Protocol

import msgspec

from nemesis.schemas.envelope import Event, decode_event
from nemesis.schemas.facts import EVENTS_SUBJECT, Record
from nemesis.schemas.kept import FactSkipped
from nemesis.streams.log import Bounds
from nemesis.streams.position import Position, covers, read_position
from nemesis.streams.position import Reading as LastReading

_SKIPPED: Final = "nemesis.events.fact_skipped."
_ID: Final = re.compile(r"(\d+)/(\d+|lost)\Z")
_skips: Final = msgspec.json.Decoder(FactSkipped)


class Survivors(msgspec.Struct, frozen=True, kw_only=True):
    """Conclusions without a position, all zero where there are none."""

    input_seq: int = 0
    """The last input that has one."""
    count: int = 0
    """How many of that input are in the log."""
    seq: int = 0
    """Where the last of them lies."""
    skips: dict[int, str] = {}
    """Inputs that were skipped, each with its error."""

    def __lt__(self, other: "Survivors") -> bool:
        """Whether fewer conclusions survive."""
        return (self.input_seq, self.count) < (other.input_seq, other.count)

    def covers(self, input_seq: int, k: int) -> bool:
        """Whether conclusion k of an input is in the log."""
        return covers(self.input_seq - 1, self.count, input_seq, k)


class Reading(LastReading, Protocol):
    """Reading a stretch of a log."""

    async def bounds(self) -> Bounds:
        """What the log holds."""
        ...

    def read_range(
        self, from_seq: int, to_seq: int, *, subject: str = ...
    ) -> AsyncIterator[Record]:
        """Every record that still exists between two sequences, both included."""
        ...


async def read_standing(log: Reading, name: str) -> tuple[Position, Survivors]:
    """The position, and what lies behind it: nothing that a newer position covers.

    Raises:
        LogUnavailableError: no answer.
    """
    position = await read_position(log, name)
    while True:
        survivors = await read_survivors(log, name, position)
        newest = await read_position(log, name)
        if newest == position:
            return position, survivors
        position = newest


async def read_survivors(log: Reading, name: str, position: Position) -> Survivors:
    """What `name` wrote behind this position, up to the end of the log as it is now.

    Raises:
        LogUnavailableError: no answer.
    """
    input_seq, count = position.in_seq + 1, position.written
    skips: dict[int, str] = {}
    found = Survivors()
    source = f"/processors/{name}"
    prefix = f'{{"specversion":"1.0","id":"{name}/'.encode()
    last_seq = (await log.bounds()).last_seq
    async for record in log.read_range(position.cursor_seq + 1, last_seq, subject=EVENTS_SUBJECT):
        if not record.payload.startswith(prefix):
            continue
        event = _decoded(record)
        if event is None or event.source != source:
            continue
        match = _ID.match(event.id[len(name) + 1 :])
        if match is None:
            continue  # what a runner says of itself
        seq = int(match[1])
        input_seq, count = seq, count + 1 if seq == input_seq else 1
        if record.subject.startswith(_SKIPPED):
            skips[seq] = _skips.decode(event.data).error
        found = Survivors(input_seq=seq, count=count, seq=record.seq, skips=skips)
    return found


def _decoded(record: Record) -> Event | None:
    try:
        return decode_event(record.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
