"""Places in a period for many who must not all act at once, spread evenly by the golden ratio.

Weyl's sequence: however many there are, no two neighbours in time are far from even.
"""

from typing import Final

import numpy as np

from nemesis.sim.telemetry.draws import Ints

GOLDEN_SHARE: Final = 0.6180339887498949


def staggered_ns(count: int, period_ns: int) -> Ints:
    """A place in the period for each of so many."""
    return (np.arange(count) * GOLDEN_SHARE % 1.0 * period_ns).astype(np.int64)
