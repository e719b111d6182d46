"""Counters become shares of the time between two readings.

A counter that goes back was reset: there is no share for that interval, and the next one counts
from there. Time is the clock that is never set.
"""

from typing import Final

from nemesis.schemas.channels import ABSENT

PPM: Final = 1_000_000


class Rates:
    """Remembers the last reading of each counter."""

    def __init__(self) -> None:
        self._last: Final[dict[str, int]] = {}

    def rise(self, name: str, value: int) -> int:
        """By how much a counter rose since it was asked last; ABSENT at first and after a reset."""
        if value == ABSENT:
            self._last.pop(name, None)
            return ABSENT
        before = self._last.get(name)
        self._last[name] = value
        return ABSENT if before is None or value < before else value - before

    def forget(self, name: str) -> None:
        """What it counted is gone."""
        self._last.pop(name, None)


def share_ppm(part: int, whole: int) -> int:
    """A share in ppm, at most all of it; ABSENT where there is nothing to take a share of."""
    if ABSENT in (part, whole) or whole <= 0 or part < 0:
        return ABSENT
    return min(PPM, part * PPM // whole)
