"""The live feed: what was concluded, decided and done, newest last, in bounded memory."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.printable import one_line
from nemesis.schemas.registry import EVENTS

ROWS_MAX: Final = 20_000  # a day of a busy cell; older rows are in the log
TEXT_CHARS_MAX: Final = 400


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event. Its order of fields is the page's."""

    seq: int
    stored_ms: int
    fact: str
    key: str
    text: str
    incident: str
    certainty: str
    """observed, inferred, decided, done, operated, kept; `unread` where it does not decode."""


def row_of(item: Input, incident: str) -> Row:
    """The row of an event."""
    data = item.decoded()
    said = item.error
    if data is not None:
        said = getattr(data, "reason", "") or getattr(data, "text", "") or ""
    kind = EVENTS.get(item.token)
    return Row(
        seq=item.record.seq,
        stored_ms=item.record.stored_ns // 1_000_000,
        fact=one_line(item.token),
        key=one_line(item.name),
        text=one_line(said[:TEXT_CHARS_MAX]),
        incident=incident,
        certainty=kind.certainty if kind is not None and data is not None else "unread",
    )


class Feed:
    """The newest rows."""

    def __init__(self) -> None:
        self.rows: Final[deque[Row]] = deque(maxlen=ROWS_MAX)
        self.total_count = 0
        self._versions: Final[deque[int]] = deque(maxlen=ROWS_MAX)

    def add(self, row: Row, version: int) -> None:
        """One more, that came with this version of the page."""
        self.rows.append(row)
        self._versions.append(version)
        self.total_count += 1

    def after(self, version: int, limit: int) -> list[Row]:
        """The newest rows that came after a version, oldest first; at most `limit`."""
        newest = []
        newest_first = zip(reversed(self.rows), reversed(self._versions), strict=True)
        for row, came in islice(newest_first, limit):
            if came <= version:
                break
            newest.append(row)
        return newest[::-1]

    def before(self, seq: int, limit: int, words: str = "") -> list[Row]:
        """The newest rows below a sequence that hold all words, oldest first."""
        wanted = words.casefold().split()
        return list(islice(self._matching(seq, wanted), limit))[::-1]

    def _matching(self, seq: int, wanted: list[str]) -> Iterator[Row]:
        for row in reversed(self.rows):
            if row.seq < seq and all(word in _searched(row) for word in wanted):
                yield row


def _searched(row: Row) -> str:
    return f"{row.fact} {row.key} {row.incident} {row.certainty} {row.text}".casefold()
