"""Degrees that would be legal, the nearest to one that is not."""

from collections.abc import Iterable
from math import isqrt


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return low + [number // each for each in reversed(low) if each * each != number]


def nearest(value: int, legal: Iterable[int]) -> list[int]:
    """The largest legal one below and the smallest above, those that there are."""
    others = sorted(set(legal) - {value})
    below = [each for each in others if each < value][-1:]
    return below + [each for each in others if each > value][:1]


def instead(name: str, value: int, legal: Iterable[int]) -> str:
    """`TP 8 -> 4 or 16`, "" where nothing is legal."""
    found = nearest(value, legal)
    return f"{name} {value} -> {' or '.join(map(str, found))}" if found else ""
