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
ROUND = 5
pytestmark = [pytest.mark.server, pytest.mark.timeout(120 + 60 * REPEATS)]


@pytest.mark.parametrize("killed", [False, True], ids=["cut", "killed"])
def test_a_commit_disturbed_at_any_point_is_in_the_log_once(killed: bool, tmp_path: Path) -> None:
    async def play(folder: Path, repeats: int) -> None:
        async with stage(folder) as here, here.copies("a"), here.traffic():
            proxy = here.proxies["a"]
            if killed:
                proxy.on_cut = lambda: here.signal("a", signal.SIGKILL)
            for _ in range(repeats):
                for point in POINTS:
                    ends = here.ends_count("a")
                    async with asyncio.timeout(60):
                        await proxy.cut_at(point)
                    if killed:  # the next point is one of its next life
                        await here.until(partial(_ended_again, here, ends))
            assert proxy.cuts == repeats * len(POINTS)
            records = await here.settle()
            assert len(recorded(records, "counting")) > 20
            assert started(records, "processor_diverged") == []

    for first in range(0, REPEATS, ROUND):  # a log that stays small enough to be judged whole
        asyncio.run(play(tmp_path / str(first), min(ROUND, REPEATS - first)))


async def _ended_again(here: Stage, before: int) -> bool:
    return here.ends_count("a") > before
