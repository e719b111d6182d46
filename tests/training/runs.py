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
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
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
REFERENCE_S: Final = 600.0
"""No promise: a run without faults waits for the machine alone."""
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
            began, befell = time.monotonic(), "?"
            try:
                befell, lost, pids = await _faulted(server, place, seed)
                said = await asyncio.to_thread(_judged, place, lost, pids)
            except (DivergedError, TimeoutError) as error:
                failed.append(f"seed {seed}: {type(error).__name__} {error}")
                said = failed[-1]
            else:
                await asyncio.to_thread(shutil.rmtree, place)
            print(f"{seed} {befell}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        judge_log(await records_of(log))
    return failed


async def _faulted(
    server: Server, folder: Path, seed: int
) -> tuple[str, Collection[int], list[int]]:
    """One run: what befell it, whom it took, and its processes, all of which have ended.

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
            return f"{kind} {lost}", lost, [rank.pid for rank in agent.ranks.values()]
    finally:
        ended = JobEnded(at_ns=time.time_ns(), by=WHY, reason=WHY, job=job)
        await operate(server, [(ended, job)])


def _judged(folder: Path, lost: Collection[int], pids: Sequence[int]) -> str:
    """The schedule of a run that is over.

    Raises:
        DivergedError: it went on otherwise than one without faults, or something of it is left.
    """
    deadline = time.monotonic() + 5.0
    while left := [*_alive(pids), *_speaking_of(str(folder))]:
        if time.monotonic() > deadline:
            raise DivergedError(f"processes are left: {left}")
        time.sleep(0.05)
    said = {rank: (folder / f"rank_{rank}.txt").read_text() for rank in range(RANKS)}
    return compared({rank: text.split("\n")[:-1] for rank, text in said.items()}, lost)


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


def taken(
    lines: Mapping[int, Sequence[str]], lost: Collection[int]
) -> tuple[list[str], dict[int, str]]:
    """Who took each step of a job, and what lost ranks wrote of a step that went with them.

    A step that all who are left did without counts for nobody: they do it again from the state
    before it. Only the last line of a lost rank can be of such a step.

    Raises:
        DivergedError: a step of those who are left is another's too, or their parameters differ.
    """
    steps: dict[int, tuple[str, str]] = {}
    gone: dict[int, str] = {}
    left = set(lines) - set(lost)
    for rank, own in sorted(lines.items(), key=lambda each: each[0] in lost):
        before = 0
        for line in own:
            number, names, *_, checksum = line.split()
            step = int(number)
            if step <= before:
                raise DivergedError(f"rank {rank} took step {step} after step {before}")
            before = step
            theirs, sums = steps.setdefault(step, (names, checksum))
            if theirs == names and sums != checksum:
                raise DivergedError(f"rank {rank} has other parameters after step {step}")
            if theirs != names:
                if rank in left or line != own[-1] or not left <= set(map(int, names.split(","))):
                    raise DivergedError(f"step {step} was taken by {theirs} and {names}")
                gone[rank] = line
    if sorted(steps) != list(range(1, len(steps) + 1)):
        raise DivergedError("a step is missing")
    return [steps[step][0] for step in sorted(steps)], gone


def compared(lines: Mapping[int, Sequence[str]], lost: Collection[int]) -> str:
    """The schedule of a run, from what its ranks wrote.

    Raises:
        DivergedError: some line is not that of the run without faults.
    """
    names, gone = taken(lines, lost)
    expected = lines_without_faults(_schedule(names))
    for rank, own in lines.items():
        # a rank that did not hear the end of a step takes the state of one that did: no line
        kept = own[:-1] if rank in gone else own
        wrong = [line for line in kept if line not in expected[rank]]
        if rank in gone:
            step, alone, *_ = gone[rank].split()
            instead = lines_without_faults(_schedule([*names[: int(step) - 1], alone]))
            wrong += [gone[rank]] if gone[rank] != instead[rank][-1] else []
        if wrong:
            raise DivergedError(f"rank {rank} wrote {wrong[0]}")
    said = ", then ".join(f"{count} steps of {who}" for who, count in _schedule(names))
    return said + "".join(
        f"; step {line.split()[0]} went with rank {rank} and was done again"
        for rank, line in sorted(gone.items())
    )


def _schedule(names: Sequence[str]) -> list[tuple[tuple[int, ...], int]]:
    return [(tuple(map(int, who.split(","))), len(list(steps))) for who, steps in groupby(names)]


def lines_without_faults(
    schedule: Sequence[tuple[Sequence[int], int]],
) -> dict[int, list[str]]:
    """What each rank writes where nothing fails: who trains, for how many steps."""
    command = [torch_python(), "-m", "tests.training.reference", json.dumps(schedule)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, timeout=REFERENCE_S, check=True
    )
    return {int(rank): lines for rank, lines in json.loads(done.stdout).items()}
