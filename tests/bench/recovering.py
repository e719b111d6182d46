"""Recovery of a simulated job: from the fault to the next step, without a restart.

The job, its steps and its faults are simulated; log, processors, actor, plans and agents are real
processes on a real server. Real training processes are measured by resuming.py.
"""

import asyncio
import sys

import msgspec

from tests.bench.row import AtMost, Row, median

SEEDS = (1, 2, 3, 4, 5)
RESUME_GOAL_S = 30.0


class _Fault(msgspec.Struct):
    to_resume_ms: int | None = None


class _Score(msgspec.Struct):
    faults: list[_Fault]
    restarts_count: int
    steps_redone_count: int


class _Outcome(msgspec.Struct):
    score: _Score
    passed: bool


async def measure() -> list[Row]:
    """The demo once for each seed."""
    outcomes = [await demo(seed) for seed in SEEDS]
    never_s = float("inf")
    resumed_s = [
        never_s if fault.to_resume_ms is None else fault.to_resume_ms / 1000
        for outcome in outcomes
        for fault in outcome.score.faults
    ]
    how = f"simulated: GPU off the bus, 112 ranks, median of seeds {SEEDS[0]} to {SEEDS[-1]}"
    restarts = float(sum(each.score.restarts_count for each in outcomes))
    redone = float(sum(each.score.steps_redone_count for each in outcomes))
    return [
        Row("P3", "fault → next step", median(resumed_s), "s", how, AtMost(RESUME_GOAL_S)),
        Row("P3", "process restarts", restarts, "restarts", "the same, all runs", AtMost(0)),
        Row("P3", "steps redone", redone, "steps", "the same, all runs"),
    ]


async def demo(seed: int) -> _Outcome:
    """One run of the demo."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "nemesis.cli", "demo", "--json", "--seed", str(seed)],
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return msgspec.json.decode(out, type=_Outcome)
