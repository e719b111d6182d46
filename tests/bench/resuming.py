"""From the kill of a real rank to the next step of the others, through the log: real processes.

Four ranks train over gloo (tests/training/loop.py) with server, processors and actor beside them on
the same cores. One rank after the other is killed, in two cells, each at whatever it does then; the
clock runs from the kill until the agent has heard a step of the new epoch from every rank that is
left. Needs an interpreter with torch, NEMESIS_TORCH_PYTHON or this one; without it, no row.
"""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

from nemesis.actors.agent.agent import Agent
from tests.bench.row import AtMost, Row, median
from tests.training.cell import has_torch, torch_python, training_cell

CELLS_COUNT = 2
VICTIMS = (0, 2, 3)
SETTLE_S = 1.0
GOAL_MS = 300.0
WAIT_S = 30.0


async def measure() -> list[Row]:
    """Kill, and time."""
    if not await asyncio.to_thread(has_torch):
        return []
    took_ms = [each for _ in range(CELLS_COUNT) for each in await _kills()]
    spread = f"{min(took_ms):.0f} to {max(took_ms):.0f}"
    how = (
        f"4 real processes, gloo, CPU, rank 0 among {len(took_ms)} kills, {spread};"
        " decided through the log"
    )
    return [Row("P3", "SIGKILL of a rank → next step", median(took_ms), "ms", how, AtMost(GOAL_MS))]


async def _kills() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"STEPS": "1000000", "FATE": ""}
        async with training_cell(Path(folder), torch_python(), environment=environment) as cell:
            [agent] = cell.agents
            await _stepping(agent, epoch=0, without=())
            return [
                await _killed(agent, victim, VICTIMS[: at + 1]) for at, victim in enumerate(VICTIMS)
            ]


async def _killed(agent: Agent, victim: int, gone: tuple[int, ...]) -> float:
    """Milliseconds from the kill to the next step of all that are left."""
    await asyncio.sleep(SETTLE_S)
    began_s = time.monotonic()
    os.kill(agent.ranks[victim].pid, signal.SIGKILL)
    await _stepping(agent, epoch=len(gone), without=gone)
    return (time.monotonic() - began_s) * 1_000


async def _stepping(agent: Agent, *, epoch: int, without: tuple[int, ...]) -> None:
    """Until every other rank has applied a step in this epoch."""
    async with asyncio.timeout(WAIT_S):
        while not agent.ranks or any(  # noqa: ASYNC110
            rank.state.epoch < epoch or rank.state.steps_count < 1
            for number, rank in agent.ranks.items()
            if number not in without
        ):
            await asyncio.sleep(0.001)
