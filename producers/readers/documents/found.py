"""What readers of documents share: the shape of what they find, and careful access."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nemesis.producers.readers.kernel_line import peel
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.codes import LogSource
from nemesis.schemas.observed import LogLineWritten, Observation

Found = Iterator[tuple[str, Observation]]
"""(what to look for in the text, what it says)."""
Read = Callable[[object], Found | None]
"""What a document tells, None where it is not of this reader's format."""
HOST_CHARS_MAX = 63


def line(source: LogSource, text: str, host: str) -> LogLineWritten:
    """A message in a document as a line of a log."""
    return LogLineWritten(
        **unplaced(host[:HOST_CHARS_MAX]), source=source, text=peel(text).text[:2000]
    )


def mapping(value: object) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def maps(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of an array."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def whole(value: object) -> int:
    """A count, -1 where it is none; JSON and SONiC print numbers as strings, too."""
    number = str(value)
    return int(number) if number.isdecimal() and len(number) <= 18 else -1
