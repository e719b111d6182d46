"""What a lost rank costs the others, through the log: real processes, real decisions.

Four ranks train over gloo (tests/training/loop.py) with server, processors and actor beside them on
the same cores. A rank is killed, rank 0 among them, or stopped, at whatever it does then: the clock
runs until the agent has heard a step of the new epoch from every rank that is left. Or it is
foreseen to fail, or comes back: then what is told is how much longer than other steps the one took
over which the members changed. `comparing.py` has torchrun and torchft beside it. Needs an
interpreter with torch, NEMESIS_TORCH_PYTHON or this one; without it, no row.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from nemesis.actors.agent.agent import Agent
from nemesis.training.membership import State
from tests.bench.row import AtMost, Row, median
from tests.training.cell import TrainingCell, has_torch, torch_python, training_cell

CELLS_COUNT = 2
KILLED = (0, 2, 3)
STOPPED = (1, 0, 3)
FORESEEN = (3, 2, 0)
BACK = (2, 0, 1)
SETTLE_S = 1.0
KILL_GOAL_MS = 300.0
STOP_GOAL_MS = 1_500.0
BOUNDARY_GOAL_MS = 50.0
BACK_GOAL_MS = 300.0
WAIT_S = 60.0


async def measure() -> list[Row]:
    """Break, and time."""
    if not await asyncio.to_thread(has_torch):
        return []
    killed_ms: list[float] = []
    stopped_ms: list[float] = []
    foreseen_ms: list[float] = []
    back_ms: list[float] = []
    for _ in range(CELLS_COUNT):
        killed_ms += await _broken(signal.SIGKILL, KILLED)
        stopped_ms += await _broken(signal.SIGSTOP, STOPPED)
        foreseen_ms += await _foreseen()
        back_ms += await _back()
    added = "longer than other steps; at a boundary"
    return [
        _row("SIGKILL of a rank → next step", killed_ms, KILL_GOAL_MS, "rank 0 among them"),
        _row("SIGSTOP of a rank → next step", stopped_ms, STOP_GOAL_MS, "rank 0 among them"),
        _row("foreseen, pause added", foreseen_ms, BOUNDARY_GOAL_MS, added),
        _row("grown back, pause added", back_ms, BACK_GOAL_MS, f"{added}, state included"),
    ]


def _row(what: str, took_ms: list[float], goal_ms: float, note: str) -> Row:
    spread = f"{len(took_ms)} times, {min(took_ms):.0f} to {max(took_ms):.0f}"
    how = f"4 real processes, gloo, CPU, decided through the log; {spread}; {note}"
    return Row("P3", what, median(took_ms), "ms", how, AtMost(goal_ms))


@asynccontextmanager
async def _cell(
    *, comes_back: bool = False, without: tuple[str, ...] = ()
) -> AsyncIterator[tuple[TrainingCell, Agent]]:
    """A cell whose ranks have begun."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"STEPS": "1000000", "FATE": ""}
        async with training_cell(
            Path(folder),
            torch_python(),
            environment=environment,
            comes_back=comes_back,
            without=without,
        ) as cell:
            [agent] = cell.agents
            await _stepping(agent, 0, range(4))
            yield cell, agent


async def _broken(how: signal.Signals, victims: tuple[int, ...]) -> list[float]:
    """Milliseconds from each fault to the next step of all that are left."""
    took_ms: list[float] = []
    async with _cell() as (_, agent):
        for at, victim in enumerate(victims, 1):
            await asyncio.sleep(SETTLE_S)
            began_s = time.monotonic()
            os.kill(agent.ranks[victim].pid, how)
            await _stepping(agent, at, set(range(4)) - set(victims[:at]))
            took_ms.append((time.monotonic() - began_s) * 1_000)
    return took_ms


async def _foreseen() -> list[float]:
    pauses_ms: list[float] = []
    async with _cell(without=("ecc_rules",)) as (cell, agent):
        for at, leaver in enumerate(FORESEEN, 1):
            pause = asyncio.create_task(_pause(agent, at, set(range(4)) - set(FORESEEN[:at])))
            await asyncio.sleep(SETTLE_S)
            await cell.foresee(leaver)
            pauses_ms.append(await pause)
    return pauses_ms


async def _back() -> list[float]:
    """Each is killed and comes back: two memberships more, the second at a boundary."""
    pauses_ms: list[float] = []
    async with _cell(comes_back=True) as (_, agent):
        for at, victim in enumerate(BACK):
            await asyncio.sleep(SETTLE_S)
            others = set(range(4)) - {victim}
            os.kill(agent.ranks[victim].pid, signal.SIGKILL)
            await _stepping(agent, 2 * at + 1, others)
            pauses_ms.append(await _pause(agent, 2 * at + 2, others))
            await _stepping(agent, 2 * at + 2, range(4))
    return pauses_ms


async def _pause(agent: Agent, epoch: int, ranks: Iterable[int]) -> float:
    """By how much the step into an epoch took longer than the median, of the rank it took longest.

    Milliseconds; the agent is looked at each millisecond.
    """
    last: dict[int, tuple[State, float]] = {}
    usual: dict[int, list[float]] = {rank: [] for rank in ranks}
    across: dict[int, float] = {}
    async with asyncio.timeout(WAIT_S):
        while len(across) < len(usual):
            now_s = time.monotonic()
            for rank in usual.keys() - across.keys():
                state = agent.ranks[rank].state
                before, at_s = last.get(rank, (state, now_s))
                if state != before:
                    if state.epoch >= epoch > before.epoch:
                        across[rank] = now_s - at_s
                    else:
                        usual[rank].append(now_s - at_s)
                if state != before or rank not in last:
                    last[rank] = (state, now_s)
            await asyncio.sleep(0.001)
    return max(across[rank] - median(usual[rank]) for rank in usual) * 1_000


async def _stepping(agent: Agent, epoch: int, ranks: Iterable[int]) -> None:
    """Until each of these ranks has applied a step in this epoch."""
    async with asyncio.timeout(WAIT_S):
        while not agent.ranks or any(  # noqa: ASYNC110
            agent.ranks[rank].state.epoch < epoch or agent.ranks[rank].state.steps_count < 1
            for rank in ranks
        ):
            await asyncio.sleep(0.001)
