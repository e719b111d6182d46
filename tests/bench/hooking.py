"""What the hook adds to a step in which nothing happens: a real rank with its agent beside it.

tests/training/overhead.py measures in the rank. Needs an interpreter with torch,
NEMESIS_TORCH_PYTHON or this one; without it, no row.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.streams.side_by_side import background
from tests.bench.row import AtMost, Row
from tests.training.cell import has_torch, torch_python

GOAL_US = 50.0
LIMIT_S = 120.0


class _Measured(msgspec.Struct):
    hook_ns: float
    hand_ns: float
    checksum_ns: float


async def measure() -> list[Row]:
    """Let a rank measure."""
    if not await asyncio.to_thread(has_torch):
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launch = Launch(
            node="n000",
            job="bench",
            ranks=(0,),
            world=1,
            command=(torch_python(), "-m", "tests.training.overhead"),
            environment={"OUT": name, "PYTHONPATH": os.pathsep.join(["src", "."])},
        )
        agent = Agent(launch, folder / "agent", boot_id="bench", python=torch_python())
        try:
            async with asyncio.timeout(LIMIT_S), background(agent.run()):
                while agent.is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            agent.end()
        found = msgspec.json.decode((folder / "overhead.json").read_bytes(), type=_Measured)
    how = (
        f"1 rank, gloo, CPU: {found.hook_ns / 1e3:.0f} µs with samples and reduction, "
        f"{found.hand_ns / 1e3:.0f} by hand; every 100th makes a checksum, "
        f"{found.checksum_ns / 1e6:.1f} ms for 10 million parameters"
    )
    added_us = (found.hook_ns - found.hand_ns) / 1e3
    return [Row("P3", "hook, added to a step", added_us, "µs", how, AtMost(GOAL_US))]
