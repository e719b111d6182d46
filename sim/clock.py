"""Simulated time: starts at the wall clock's time and runs `speed` times as fast.

In a simulated cell it is log time, because the ticker of the cell reads this clock.
"""

import time
from typing import Final


class SimClock:
    """One clock for the world, its agents and the ticker."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.speed: Final = speed
        # whole seconds, so that the first tick is not behind the first fact
        self.start_ns: Final = time.time_ns() // 1_000_000_000 * 1_000_000_000
        self._began_ns: Final = time.monotonic_ns()
        self.began_wall_ns: Final = time.time_ns()
        """What the wall clock showed at start_ns."""

    def now_ns(self) -> int:
        """Simulated nanoseconds since 1970."""
        return self.start_ns + round((time.monotonic_ns() - self._began_ns) * self.speed)

    def at_ns(self, wall_ns: int) -> int:
        """Simulated time when the wall clock showed this, for example when a record was stored."""
        return self.start_ns + max(0, round((wall_ns - self.began_wall_ns) * self.speed))

    def wall_s(self, simulated_ns: int) -> float:
        """How many real seconds a stretch of simulated time takes."""
        return simulated_ns / self.speed / 1e9
