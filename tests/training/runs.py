"""Runs of a real job with faults drawn at random, each compared with a run without any.

All runs of a campaign share one control plane; each has a job, an agent and four ranks of its own.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.schemas.operated import JobEnded
from nemesis.streams.server import Server
from tests.training.cell import (
    WHY,
    control_plane,
    node,
    operate,
    records_of,
    submission,
    torch_python,
)
from tests.training.through_log import judge_log

RANKS: Final = 4
NODE: Final = "n000"
STEPS_BEFORE: Final = 10
STEPS_AFTER: Final = 20
OVER_S: Final = 60.0
KINDS: Final = ("kill", "stop", "both", "kill during", "stop during")
"""both: two ranks at one moment; during: the second while the first is being answered."""
DURING_S: Final = 0.15
"""A recovery from a kill takes as long; one from a stop is under way for longer."""
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class DivergedError(Exception):
    """A run that is not what it should be."""


async def runs(folder: Path, seeds: Sequence[int]) -> list[str]:
    """Runs with one control plane; what was wrong with those that failed.

    Raises:
        AssertionError: something did not go through the log, or it cannot be replayed.
    """
    failed: list[str] = []
    async with control_plane(folder, [NODE]) as (server, log):
        for seed in seeds:
            place = folder / f"run_{seed}"
            began, lost = time.monotonic(), "?"
            try:
                lost, pids = await _faulted(server, place, seed)
                said = await asyncio.to_thread(_judged, place, pids)
            except (DivergedError, TimeoutError) as error:
                failed.append(f"seed {seed}: {type(error).__name__} {error}")
                said = failed[-1]
            else:
                await asyncio.to_thread(shutil.rmtree, place)
            print(f"{seed} {lost}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        judge_log(await records_of(log))
    return failed


async def _faulted(server: Server, folder: Path, seed: int) -> tuple[str, list[int]]:
    """One run: what befell it, and its processes, all of which have ended.

    Raises:
        TimeoutError: it did not go on.
    """
    dice = random.Random(seed)
    kind, job = dice.choice(KINDS), f"job-{seed}"
    await asyncio.to_thread(folder.mkdir, parents=True)
    await operate(server, [(submission(job, [NODE], RANKS), job)])
    launch = Launch(
        node=NODE,
        job=job,
        ranks=tuple(range(RANKS)),
        world=RANKS,
        command=(torch_python(), "-m", "tests.training.loop"),
        environment={
            "OUT": str(folder),
            "STEPS": "1000000",
            "PYTHONPATH": os.pathsep.join(["src", "."]),
        },
    )
    try:
        async with node(server, launch, folder / NODE, torch_python()) as agent:
            async with asyncio.timeout(OVER_S):
                await _steps(agent, range(RANKS), STEPS_BEFORE)
            async with asyncio.timeout(OVER_S):
                await asyncio.sleep(dice.uniform(0.0, 0.1))
                lost = await _strike(agent, kind, dice)
                rest = [rank for rank in range(RANKS) if rank not in lost]
                await _regrouped(agent, rest)
                at = max(agent.ranks[rank].state.steps_count for rank in rest)
                await _steps(agent, rest, at + STEPS_AFTER)
            return f"{kind} {lost}", [rank.pid for rank in agent.ranks.values()]
    finally:
        ended = JobEnded(at_ns=time.time_ns(), by=WHY, reason=WHY, job=job)
        await operate(server, [(ended, job)])


def _judged(folder: Path, pids: Sequence[int]) -> str:
    """The schedule of a run that is over.

    Raises:
        DivergedError: it went on otherwise than one without faults, or something of it is left.
    """
    deadline = time.monotonic() + 5.0
    while left := [*_alive(pids), *_speaking_of(str(folder))]:
        if time.monotonic() > deadline:
            raise DivergedError(f"processes are left: {left}")
        time.sleep(0.05)
    return compared({rank: (folder / f"rank_{rank}.txt").read_text() for rank in range(RANKS)})


def _alive(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]


async def _strike(agent: Agent, kind: str, dice: random.Random) -> list[int]:
    """Let a fault happen; whom it took."""
    first, second = dice.sample(range(RANKS), 2)
    word, _, during = kind.partition(" ")
    signals = [_SIGNALS[word]] if word in _SIGNALS else list(_SIGNALS.values())
    os.kill(agent.ranks[first].pid, dice.choice(list(_SIGNALS.values())) if during else signals[0])
    if word in _SIGNALS and not during:
        return [first]
    if during:
        await asyncio.sleep(dice.uniform(0.0, DURING_S))
    os.kill(agent.ranks[second].pid, signals[-1])
    return sorted((first, second))


async def _regrouped(agent: Agent, rest: Sequence[int]) -> None:
    """Until the last plan names these alone, and all train in it."""
    while True:
        states = [agent.ranks[rank] for rank in rest]
        epochs = {rank.state.epoch for rank in states}
        if len(agent.members) == len(rest) and epochs == {agent.plan.epoch if agent.plan else 0}:
            return
        await asyncio.sleep(0.002)


async def _steps(agent: Agent, ranks: Sequence[int], count: int) -> None:
    while any(  # noqa: ASYNC110
        rank not in agent.ranks or agent.ranks[rank].state.steps_count < count for rank in ranks
    ):
        await asyncio.sleep(0.002)


def _speaking_of(folder: str) -> list[int]:
    """Processes with a folder on their command line or in their environment, but this one."""
    found: list[int] = []
    for proc in Path("/proc").glob("[0-9]*"):
        if int(proc.name) == os.getpid():
            continue
        try:
            said = (proc / "environ").read_bytes() + (proc / "cmdline").read_bytes()
        except OSError:
            continue
        if folder.encode() in said:
            found.append(int(proc.name))
    return found


def compared(said: dict[int, str]) -> str:
    """The schedule of a run, from what its ranks wrote.

    Raises:
        DivergedError: some line is not that of the run without faults.
    """
    lines = {rank: text.split("\n")[:-1] for rank, text in said.items()}
    members: dict[int, str] = {}
    for each in (line.split() for own in lines.values() for line in own):
        if members.setdefault(int(each[0]), each[1]) != each[1]:
            raise DivergedError(
                f"step {each[0]} was taken by {members[int(each[0])]} and {each[1]}"
            )
    if sorted(members) != list(range(1, len(members) + 1)):
        raise DivergedError("a step is missing")
    schedule: list[tuple[tuple[int, ...], int]] = []
    for step in sorted(members):
        names = tuple(map(int, members[step].split(",")))
        if schedule and schedule[-1][0] == names:
            schedule[-1] = (names, schedule[-1][1] + 1)
        else:
            schedule.append((names, 1))
    expected = lines_without_faults(schedule)
    for rank, own in lines.items():
        # a rank that did not hear the end of a step takes the state of one that did: no line
        for line in own:
            if line not in expected[rank]:
                raise DivergedError(f"rank {rank} wrote {line}")
    return ", then ".join(f"{steps} steps of {names}" for names, steps in schedule)


def lines_without_faults(
    schedule: Sequence[tuple[Sequence[int], int]],
) -> dict[int, list[str]]:
    """What each rank writes where nothing fails: who trains, for how many steps."""
    command = [torch_python(), "-m", "tests.training.reference", json.dumps(schedule)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, timeout=OVER_S, check=True
    )
    return {int(rank): lines for rank, lines in json.loads(done.stdout).items()}
