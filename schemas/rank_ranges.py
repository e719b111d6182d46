"""Sets of ranks as short text: `0-7,16`, and strided runs as `0-504:8`.

A data-parallel group of a large job is every eighth rank: as a list it would not fit into a
digest of 2 KiB, as a strided run it is seven bytes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from nemesis.schemas.errors import BadNameError

RANKS_MAX: Final = 1_000_000  # bounds what a malformed digest can make a reader allocate
_RUN: Final = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?\Z")


def format_ranks(ranks: Iterable[int]) -> str:
    """The shortest greedy spelling of a set of ranks, ascending."""
    left = sorted(set(ranks))
    runs: list[str] = []
    at = 0
    while at < len(left):
        end = at + 1
        stride = left[end] - left[at] if end < len(left) else 1
        while end < len(left) and left[end] - left[end - 1] == stride:
            end += 1
        if end - at > 2 or (end - at == 2 and stride == 1):
            suffix = "" if stride == 1 else f":{stride}"
            runs.append(f"{left[at]}-{left[end - 1]}{suffix}")
            at = end
        else:
            runs.append(str(left[at]))
            at += 1
    return ",".join(runs)


def parse_ranks(text: str) -> tuple[int, ...]:
    """The ranks of a spelling, ascending and without repetition.

    Raises:
        BadNameError: not in this form, or more than RANKS_MAX ranks.
    """
    ranks: set[int] = set()
    for span in _spans(text):
        if len(ranks) + len(span) > RANKS_MAX:
            raise BadNameError(f"more than {RANKS_MAX} ranks: {text[:60]!r}")
        ranks.update(span)
    return tuple(sorted(ranks))


def count_ranks(text: str) -> int:
    """How many ranks a spelling names, those that it repeats counted again; none are made.

    Raises:
        BadNameError: not in this form.
    """
    return sum(map(len, _spans(text)))


def _spans(text: str) -> Iterator[range]:
    for run in text.split(",") if text else ():
        match = _RUN.match(run)
        if match is None:
            raise BadNameError(f"not a set of ranks: {text[:60]!r}, expected for example 0-7,16")
        first, last, stride = (int(group) if group else None for group in match.groups())
        assert first is not None
        yield range(first, (first if last is None else last) + 1, stride or 1)
