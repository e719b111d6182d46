"""Durations as people type them: 20s, 5m, 3h5m, 2.5d."""

import re
from typing import Final

from nemesis.schemas.errors import NemesisError

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S: Final = 100 * 365 * 86_400.0
"""Whoever says more has slipped; 292 years are all that nanoseconds in 63 bits hold."""
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


class BadDurationError(NemesisError):
    """Text that is no duration."""

    exit_code = 2


def seconds(text: str, what: str) -> float:
    """The seconds that a text means; a bare number could be hours as well and is refused.

    Raises:
        BadDurationError: it is none, or longer than LONGEST_S; names `what`.
    """
    folded = text.strip().lower()
    parts = _PART.findall(folded)
    if parts and "".join(number + unit for number, unit in parts) == folded:
        if (length_s := sum(float(number) * _UNITS_S[unit] for number, unit in parts)) > LONGEST_S:
            raise BadDurationError(f"{what}: {text[:40]!r}, expected at most 100 years")
        return length_s
    raise BadDurationError(
        f"{what}: {text[:40]!r}, expected a duration with its units, such as 90s, 5m, 3h or 3h5m"
    )


def spoken(duration_s: float) -> str:
    """A duration in its two largest units."""
    if duration_s < 60:
        return f"{duration_s:.1f} s"
    if duration_s < 3600:
        return f"{int(duration_s // 60)} min {int(duration_s % 60)} s"
    if duration_s < 2 * 86_400:
        return f"{int(duration_s // 3600)} h {int(duration_s % 3600 // 60)} min"
    return f"{duration_s / 86_400:.1f} days"
