"""Ranks with parts of a model lose a rank: its replica goes, the others train on as they should."""

import asyncio
import itertools
import os
import subprocess
import time
from pathlib import Path

import pytest

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.schemas.plans import Plan
from nemesis.streams.side_by_side import background
from nemesis.training.commit import Part, is_applied_by_others, latest, settled
from nemesis.training.membership import NO_STATE, State
from tests.training.cell import has_torch, torch_python

pytestmark = pytest.mark.torch
STEPS = 16
FATAL_STEP = 6
OVER_S = 240.0
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(["src", "."])}
BEFORE, AFTER = State(3, 10), State(3, 11)
CLOSE = 1e-5
"""Of losses: a sum is divided differently in one process. The rule's mistakes are far larger."""


def test_what_a_commit_left_half_applied_is_applied_by_all_or_by_nobody() -> None:
    unprepared, prepared, applied = Part(BEFORE), Part(BEFORE, AFTER), Part(AFTER)
    for parts in itertools.product([unprepared, prepared, applied], repeat=4):
        if applied in parts and unprepared in parts:
            continue  # the sum of all completes nowhere before all have added to it
        after = {settled(each, parts) for each in parts}
        assert after == {AFTER if applied in parts else BEFORE}


def test_what_is_prepared_of_an_older_epoch_is_not_applied_for_another_step() -> None:
    own = Part(BEFORE, AFTER)
    rival = Part(State(4, 11))
    assert latest([own, rival]) == State(4, 11)
    assert not is_applied_by_others(own, [own, rival])
    assert not is_applied_by_others(Part(BEFORE), [Part(BEFORE), Part(NO_STATE)])


async def trained(folder: Path, loop: tuple[str, ...]) -> None:
    """Two replicas of two ranks under an agent; rank 3 is killed, a plan drops its replica."""
    launch = Launch(
        node="n000",
        job="llama",
        ranks=(0, 1, 2, 3),
        world=4,
        command=(torch_python(), "-m", *loop),
        environment=ENVIRONMENT
        | {"OUT": str(folder), "STEPS": str(STEPS), "FATE": f"3@{FATAL_STEP}"},
    )
    agent = Agent(launch, folder / "n000", boot_id="b", python=torch_python())
    try:
        async with background(agent.run()):
            while 3 not in agent.ranks or agent.ranks[3].is_alive:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            hold = Plan(job="llama", epoch=0, kind="hold", members="0-3", fenced="3")
            agent.follow(hold, time.time_ns())
            new = Plan(job="llama", epoch=1, kind="membership", members="0-1", fenced="2-3")
            assert agent.follow(new, time.time_ns()).outcome == "accepted"
            while agent.is_busy:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        agent.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("over", ["gloo", "nccl"])
def test_a_lost_part_takes_its_replica_along_and_the_other_takes_all_samples(
    over: str, tmp_path: Path
) -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")
    loops = {
        "gloo": ("tests.training.parts_loop",),
        "nccl": ("tests.training.lane_loop", "parts_loop"),
    }
    asyncio.run(asyncio.wait_for(trained(tmp_path, loops[over]), OVER_S))
    reference = subprocess.run(
        [
            *(torch_python(), "-m", "tests.training.parts_loop"),
            *(str(STEPS), str(FATAL_STEP), "2", "1"),
        ],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = {tuple(line.partition("]")[0].split(" ", 1)): line for line in reference}
    seen: set[tuple[str, ...]] = set()
    for rank in range(4):
        told = (tmp_path / f"rank_{rank}.txt").read_text().splitlines()
        assert len(told) == (STEPS if rank < 2 else FATAL_STEP)
        for line in told:
            number, members, rest = line.split(" ", 2)
            key = (number, rest.partition("]")[0])
            seen.add(key)
            assert members == ("0,1,2,3" if int(number) <= FATAL_STEP else "0,1")
            loss = float(wanted[key].rpartition(" ")[2])
            assert float(line.rpartition(" ")[2]) == pytest.approx(loss, abs=CLOSE)
    assert seen == set(wanted)
    if over == "nccl":
        asked = [(tmp_path / f"calls_{rank}.txt").read_text().split("\n") for rank in range(2)]
        # everybody, the replica and the peers; then what is left of it, once the rest was aborted
        aborts = ["abort of 2", "abort of 2", "abort of 4"]
        for calls in asked:
            assert calls[:3] == ["made of 4", "made of 2", "made of 2"]
            assert (sorted(calls[3:6]), calls[6:]) == (aborts, ["made of 2"])
