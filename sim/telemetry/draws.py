"""Random numbers that depend on who reads what and when, and on nothing else.

Why: a cluster of thousands of nodes is read in whatever order and company its polls fall due, and
equal seeds must give equal bytes all the same. How: every device has a key; a reading mixes it with
its time, by the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), and is cut into four
lanes of 16 bits.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
LANE_BITS: Final = 16
LANE_MAX: Final = (1 << LANE_BITS) - 1
QUARTERS: Final = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def mixed(words: Words) -> Words:
    """Every bit of each word depends on every bit of the word that it came from."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def keys(seed: int, purpose: int, shape: tuple[int, ...]) -> Words:
    """A key for each of these many devices."""
    start = mixed(np.array([seed & (2**64 - 1)], np.uint64)) + np.uint64(purpose)
    count = int(np.prod(shape))
    return mixed(mixed(start) ^ np.arange(count, dtype=np.uint64)).reshape(shape)


def at_time(device_keys: Words, at_ns: Ints) -> Words:
    """Fresh words of these devices [row, ...], of each row at its time."""
    return mixed(device_keys ^ mixed(at_ns.astype(np.uint64))[:, None])


def lanes(words: Words) -> tuple[Ints, Ints, Ints, Ints]:
    """Four even draws from 0 to LANE_MAX of each word."""
    cut = [(words >> np.uint64(shift)).astype(np.int64) & LANE_MAX for shift in (0, 16, 32, 48)]
    return cut[0], cut[1], cut[2], cut[3]


def placed(table: Sequence[float], lane: Ints, *, unit: int = 1) -> Ints:
    """What a distribution (minimum, quartiles, maximum) has at these places, times `unit`."""
    found: Ints = np.rint(np.interp(lane / LANE_MAX, QUARTERS, np.array(table) * unit)).astype(
        np.int64
    )
    return found


def either_way(lane: Ints, most: Ints | int) -> Ints:
    """An even draw from -most to +most."""
    drawn: Ints = (2 * lane - LANE_MAX) * most // LANE_MAX
    return drawn
