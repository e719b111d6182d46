"""The clock of the log: a tick every second.

Any number of tickers may run, on any machine: ticks of one second have one id, and readers ignore
a tick that is not later than the last. So a ticker needs no state, no leader and no backlog: a
second that could not be written is left out.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.observed import ClockTicked
from nemesis.streams.errors import LogFullError, LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.permissions import CLOCK_NODE

SECOND_NS: Final = 1_000_000_000
TICK_SUBJECT: Final = telemetry_subject(CLOCK_NODE, "tick")


def tick_of(now_ns: int) -> ClockTicked:
    """The tick of the second that has begun last."""
    second = now_ns // SECOND_NS
    return ClockTicked(node=CLOCK_NODE, start_ns=0, n=second, at_ns=second * SECOND_NS)


async def run(log: Log, now_ns: Callable[[], int], *, speed: float = 1.0) -> None:
    """Tick until cancelled; `speed`: seconds of `now_ns` in one real second."""
    last_n = 0
    while True:
        tick = tick_of(now_ns())
        if tick.n > last_n:  # a clock that went back is waited for: log time never does
            last_n = tick.n
            with suppress(LogUnavailableError, LogFullError):
                await log.publish(TICK_SUBJECT, encode_observation(tick), timeout_s=1.0)
        left_ns = tick.at_ns + SECOND_NS - now_ns()
        await asyncio.sleep(max(left_ns, 0) / SECOND_NS / speed)
