"""Many names in few words: ranks of one job as ranges, everything in the order of its numbers."""

import re
from collections.abc import Iterable

from nemesis.schemas.rank_ranges import format_ranks

RANGE_MIN = 3
_NUMBER = re.compile(r"(\d{1,18})")


def in_order(names: Iterable[str]) -> list[str]:
    """Names as people count: `rank/job/2` before `rank/job/10`."""
    return sorted(names, key=_parts)


def _parts(name: str) -> list[tuple[bool, int, str]]:
    return [
        (each.isdecimal(), int(each) if each.isdecimal() else 0, each)
        for each in _NUMBER.split(name)
    ]


def in_ranges(names: Iterable[str]) -> list[str]:
    """Names in order, the ranks of a job as one where they are several: `rank/job/0-63`."""
    ranks: dict[str, list[int]] = {}
    rest: list[str] = []
    for name in names:
        owner, _, last = name.rpartition("/")
        if name.startswith("rank/") and last.isdecimal() and len(last) <= 7:
            ranks.setdefault(owner, []).append(int(last))
        else:
            rest.append(name)
    for owner, own in ranks.items():
        few = len(own) < RANGE_MIN
        rest += [f"{owner}/{rank}" for rank in own] if few else [f"{owner}/{format_ranks(own)}"]
    return in_order(rest)
