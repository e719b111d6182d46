"""Whether confidence means what it says: of verdicts given with 80 %, are 80 % right?

Expected calibration error with ten bins of equal width: the mean distance between confidence and
share of right ones, weighed by how many fell into each bin (Naeini et al., AAAI 2015; Guo et al.,
ICML 2017, equation 3). In integers, rounded once.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

BINS_COUNT: Final = 10
PPM: Final = 1_000_000


class Bin(msgspec.Struct, kw_only=True, frozen=True):
    """Verdicts of about the same confidence."""

    from_ppm: int
    count: int
    right_count: int
    confidence_ppm_mean: int


class Calibration(msgspec.Struct, kw_only=True, frozen=True):
    """What confidence was worth."""

    count: int
    """Verdicts that name a component."""
    ece_ppm: int
    bins: tuple[Bin, ...]
    """Those that are not empty."""


def calibration(verdicts: Iterable[tuple[int, bool]]) -> Calibration:
    """Of (confidence in ppm, whether it was right)."""
    sums, rights, counts = [0] * BINS_COUNT, [0] * BINS_COUNT, [0] * BINS_COUNT
    for confidence_ppm, is_right in verdicts:
        at = min(BINS_COUNT - 1, confidence_ppm * BINS_COUNT // PPM)
        sums[at] += confidence_ppm
        rights[at] += is_right
        counts[at] += 1
    total = sum(counts)
    off = sum(abs(given - PPM * right) for given, right in zip(sums, rights, strict=True))
    return Calibration(
        count=total,
        ece_ppm=round(off / total) if total else 0,
        bins=tuple(
            Bin(
                from_ppm=at * PPM // BINS_COUNT,
                count=counts[at],
                right_count=rights[at],
                confidence_ppm_mean=sums[at] // counts[at],
            )
            for at in range(BINS_COUNT)
            if counts[at]
        ),
    )
