"""Who watches the log itself: how full it is, as a fact each minute, and whether it still ticks.

The fill level is what producers act upon: at 80 % they halve their rate, at 90 % they send kernel
facts only, so that the last tenth belongs to conclusions and decisions.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from nemesis.schemas.facts import decode_conclusion, decode_observation, encode_conclusion
from nemesis.schemas.kept import LogMeasured
from nemesis.streams.errors import LogFullError, LogUnavailableError
from nemesis.streams.log import Bounds, Log
from nemesis.streams.permissions import FILL_SUBJECT
from nemesis.streams.ticker import TICK_SUBJECT

MEASURE_PERIOD_S: Final = 60
WATCH_PERIOD_S: Final = 1.0
TICK_SILENCE_S: Final = 5.0
HALF_RATE_PPM: Final = 800_000
KERNEL_ONLY_PPM: Final = 900_000
_KEY: Final = FILL_SUBJECT.rpartition(".")[2]

Rate = Literal["full", "half", "kernel"]
"""What producers may send: everything, every other sample, or kernel facts only."""


def rate_of(fill_ppm: int) -> Rate:
    """The rate that a fill level allows."""
    if fill_ppm >= KERNEL_ONLY_PPM:
        return "kernel"
    return "half" if fill_ppm >= HALF_RATE_PPM else "full"


def measured(bounds: Bounds, at_ns: int) -> LogMeasured:
    """The fact that says how full the log is; a log without a limit is never full."""
    limit = max(bounds.limit_bytes, 0)
    fill_ppm = min(1_000_000, bounds.used_bytes * 1_000_000 // limit) if limit else 0
    return LogMeasured(
        at_ns=at_ns,
        reason=f"the log holds {bounds.used_bytes} of {limit or 'any number of'} bytes",
        used_bytes=bounds.used_bytes,
        limit_bytes=limit,
        fill_ppm=fill_ppm,
        first_seq=bounds.first_seq,
        last_seq=bounds.last_seq,
    )


async def fill_ppm(log: Log) -> int:
    """The fill level as it was measured last; 0 before the first time."""
    record = await log.last(FILL_SUBJECT)
    if record is None:
        return 0
    _, data = decode_conclusion("log_measured", record.payload)
    return int(data.fill_ppm)


async def measure(log: Log, at_ns: int) -> LogMeasured:
    """Write down how full the log is now."""
    data = measured(await log.bounds(), at_ns)
    subject, payload = encode_conclusion(
        id=f"keeper/{at_ns}", source="/keeper", at_ns=at_ns, data=data, key=_KEY
    )
    await log.publish(subject, payload)
    return data


async def run(
    log: Log,
    now_ns: Callable[[], int],
    alarm: Callable[[str], None],
    *,
    period_s: float = MEASURE_PERIOD_S,
) -> None:
    """Measure each period and watch the clock each second, until cancelled.

    `alarm` is called with one sentence when ticks stop and when they are back.
    """
    loop = asyncio.get_running_loop()
    due = heard = loop.time()
    time_ns = tick_ns = 0
    silent = False
    while True:
        with suppress(LogUnavailableError, LogFullError):
            if loop.time() >= due:
                await measure(log, now_ns())
                due = loop.time() + period_s
            tick = await log.last(TICK_SUBJECT)
            if tick is not None:
                tick_ns = decode_observation("tick", tick.payload).at_ns
            if tick_ns > time_ns:  # a tick that does not advance log time is no clock
                time_ns, heard = tick_ns, loop.time()
        quiet_s = loop.time() - heard
        if (quiet_s > TICK_SILENCE_S) != silent:
            silent = not silent
            alarm(_silence(quiet_s, time_ns - tick_ns) if silent else "the clock ticks again")
        await asyncio.sleep(WATCH_PERIOD_S)


def _silence(quiet_s: float, behind_ns: int) -> str:
    if behind_ns > 0:
        return f"log time stands still: the last tick lies {behind_ns / 1e9:.0f} s behind it"
    return f"no tick for {quiet_s:.0f} s: log time stands still"
