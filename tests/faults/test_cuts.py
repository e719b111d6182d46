"""Connections cut and copies killed at every point of a commit that a proxy can name."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.faults.oracle import recorded, started
from tests.faults.proxy import POINTS
from tests.faults.stage import Stage, stage

REPEATS = int(os.environ.get("NEMESIS_FAULT_REPEATS", "3"))
pytestmark = [pytest.mark.server, pytest.mark.timeout(120 + 60 * REPEATS)]


@pytest.mark.parametrize("killed", [False, True], ids=["cut", "killed"])
def test_a_commit_disturbed_at_any_point_is_in_the_log_once(killed: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here, here.copies("a"), here.traffic():
            proxy = here.proxies["a"]
            if killed:
                proxy.on_cut = lambda: here.signal("a", signal.SIGKILL)
            for _ in range(REPEATS):
                for point in POINTS:
                    ends = here.ends_count("a")
                    async with asyncio.timeout(60):
                        await proxy.cut_at(point)
                    if killed:  # the next point is one of its next life
                        await here.until(partial(_ended_again, here, ends))
            assert proxy.cuts == REPEATS * len(POINTS)
            records = await here.settle()
            assert len(recorded(records, "counting")) > 20
            assert started(records, "processor_diverged") == []

    asyncio.run(main())


async def _ended_again(here: Stage, before: int) -> bool:
    return here.ends_count("a") > before
