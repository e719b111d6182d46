"""Lists of node names as short text: `n00001` to `n12500` in a row are `n[00001-12500]`.

The names of 12,500 nodes take 110 KB, more than fits into a fact; most clusters number their nodes.
The form is that of Slurm's host lists (slurm.schedmd.com/scontrol.html, "hostlist"), one range a
name. Order counts, for ranks follow it, and numbers keep their width.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from nemesis.schemas.errors import BadNameError

NODES_MAX: Final = 100_000  # bounds what a slip in a range can make a reader allocate
ROW_MIN: Final = 3  # of two, the range is no shorter
_RANGE: Final = re.compile(r"([^\[\]]*)\[([0-9]{1,7})-([0-9]{1,7})\]([^\[\]]*)\Z")
_NUMBERED: Final = re.compile(r"([^\[\]]*?)([0-9]{1,7})([^0-9\[\]]*)\Z")


def format_nodes(names: Iterable[str]) -> tuple[str, ...]:
    """The names in their order, those that count up in a row as one range.

    Raises:
        BadNameError: a name that would be read as a range.
    """
    written: list[str] = []
    row: list[str] = []
    next_name: str | None = None
    for name in names:
        if _range_of(name) is not None:
            raise BadNameError(f"a node may not be called like a range of nodes: {name[:60]!r}")
        if name != next_name:
            written += _shortened(row)
            row = []
        row.append(name)
        next_name = _next(name)
    return (*written, *_shortened(row))


def parse_nodes(written: Iterable[str]) -> tuple[str, ...]:
    """Every name, in order."""
    return tuple(name for each in written for name in _names(each))


def count_nodes(written: Iterable[str]) -> int:
    """How many names there are; none are made."""
    ranges = (_range_of(each) for each in written)
    return sum(1 if each is None else len(each[1]) for each in ranges)


def _range_of(text: str) -> tuple[re.Match[str], range] | None:
    match = _RANGE.match(text)
    if match is None or len(match[2]) != len(match[3]):
        return None
    return match, range(int(match[2]), int(match[3]) + 1)


def _names(text: str) -> Iterator[str]:
    found = _range_of(text)
    if found is None:
        yield text
        return
    match, numbers = found
    prefix, first, _, suffix = match.groups()
    for number in numbers:
        yield f"{prefix}{number:0{len(first)}}{suffix}"


def _next(name: str) -> str | None:
    """The name that goes on a row."""
    match = _NUMBERED.match(name)
    if match is None:
        return None
    prefix, digits, suffix = match.groups()
    number = str(int(digits) + 1).zfill(len(digits))
    return f"{prefix}{number}{suffix}" if len(number) == len(digits) else None


def _shortened(row: list[str]) -> list[str]:
    if len(row) < ROW_MIN:
        return row
    first, last = _NUMBERED.match(row[0]), _NUMBERED.match(row[-1])
    assert first is not None
    assert last is not None
    return [f"{first[1]}[{first[2]}-{last[2]}]{first[3]}"]
