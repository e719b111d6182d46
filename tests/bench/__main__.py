"""`make bench`: Table 1, goal beside result, a miss marked. `--long`: the soaks.

Nothing else may run on the machine meanwhile. Simulated figures say so.
"""

import asyncio
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable

from nemesis import __version__
from tests.bench import (
    attributing,
    catch_up,
    cluster_live,
    comparing,
    deciding,
    generating,
    hooking,
    page,
    pipeline,
    placing,
    predicting,
    queueing,
    recovering,
    replaying,
    resuming,
    scoring,
    watching,
)
from tests.bench.row import Row

SHORT = (
    scoring.measure,
    predicting.measure,
    placing.measure,
    queueing.measure,
    recovering.measure,
    resuming.measure,
    hooking.measure,
    deciding.measure,
    attributing.measure,
    pipeline.measure,
    replaying.measure,
    page.measure,
    generating.measure,
)
LONG = (
    queueing.measure_long,
    catch_up.measure,
    cluster_live.measure,
    pipeline.measure_long,
    watching.measure,
    comparing.measure,
)


async def main(measures: tuple[Callable[[], Awaitable[list[Row]]], ...]) -> int:
    """Measure, print a row as soon as it is there; 1 where a goal was missed."""
    cores = len(os.sched_getaffinity(0))
    print(f"Table 1, NEMESIS {__version__}, {cores} cores, {platform.machine()}")
    print(f"load before: {os.getloadavg()[0]:.2f}; figures are worth nothing above 0.2\n")
    print(f"{'':4}{'figure':34}{'result':>12} {'unit':11}{'goal':>9} {'':7} how")
    missed = 0
    started = time.monotonic()
    for measure in measures:
        try:
            rows = await measure()
        except TimeoutError:
            print(
                f"    {measure.__module__} did not come to an end in its time: MISSED", flush=True
            )
            missed += 1
            continue
        for row in rows:
            goal = str(row.goal) if row.goal else ""
            print(
                f"{row.id:4}{row.what:34}{row.value:12,.4g} {row.unit:11}{goal:>9} "
                f"{row.verdict:7} {row.how}",
                flush=True,
            )
            missed += row.verdict == "MISSED"
    print(f"\n{missed} missed, {time.monotonic() - started:.0f} s")
    return 1 if missed else 0


sys.exit(asyncio.run(main(LONG if "--long" in sys.argv else SHORT)))
