"""A model under torch's DDP loses a rank and goes on: real processes over gloo."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.schemas.plans import Plan
from nemesis.streams.side_by_side import background
from tests.training.cell import has_torch, torch_python

pytestmark = pytest.mark.torch
STEPS = 24
FATAL_STEP = 9
OVER_S = 240.0
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(["src", "."])}
LOOPS = {
    "gloo": ("tests.training.ddp_loop",),
    "nccl": ("tests.training.lane_loop", "ddp_loop"),
}
"""nccl: a stand-in for it, on no GPU."""


@pytest.fixture(autouse=True)
def _torch_is_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def reference(folder: Path, rest: tuple[int, ...], *, change: int, hooked: bool) -> list[list[str]]:
    """Lines of each rank of a run by torch alone, in which the others left by themselves."""
    world, named = 3, ",".join(map(str, rest))
    ranks = [
        subprocess.Popen(
            [
                *(torch_python(), "-m", "tests.training.ddp_reference"),
                *(str(rank), str(world), str(folder), str(STEPS), str(change)),
                *(named, str(int(hooked))),
            ],
            env=os.environ | ENVIRONMENT,
        )
        for rank in range(world)
    ]
    assert [each.wait(timeout=OVER_S) for each in ranks] == [0] * world
    return [lines(folder, f"reference_{rank}") for rank in range(world)]


def lines(folder: Path, name: str) -> list[str]:
    path = folder / f"{name}.txt"
    return path.read_text().splitlines() if path.exists() else []


async def trained(folder: Path, fate: str, rest: tuple[int, ...], over: str) -> None:
    """A job of three under an agent; who is to be lost is, and a plan names the rest."""
    kind, _, whom = fate.partition("@")[0].partition(":")
    launch = Launch(
        node="n000",
        job="llama",
        ranks=(0, 1, 2),
        world=3,
        command=(torch_python(), "-m", *LOOPS[over]),
        environment=ENVIRONMENT | {"OUT": str(folder), "STEPS": str(STEPS), "FATE": fate},
    )
    agent = Agent(launch, folder / "n000", boot_id="b", python=torch_python())
    try:
        async with background(agent.run()):
            while any(len(lines(folder, f"rank_{rank}")) < FATAL_STEP for rank in rest):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if kind == "SIGKILL":
                while agent.ranks[int(whom)].is_alive:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(0.5)  # the rest waits in its reductions
            hold = Plan(job="llama", epoch=0, kind="hold", members="0-2", fenced=whom)
            agent.follow(hold, time.time_ns())
            members = ",".join(map(str, rest))
            new = Plan(job="llama", epoch=1, kind="membership", members=members, fenced=whom)
            assert agent.follow(new, time.time_ns()).outcome == "accepted"
            while agent.is_busy:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        agent.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "victim", "over"),
    [("SIGKILL", 0, "gloo"), ("SIGSTOP", 2, "gloo"), ("SIGSTOP", 1, "nccl")],
)
def test_a_model_under_ddp_goes_on_without_a_rank_bit_for_bit_as_torch_alone_would(
    kind: str, victim: int, over: str, tmp_path: Path
) -> None:
    rest = tuple(rank for rank in range(3) if rank != victim)
    fate = f"{kind}:{victim}@{FATAL_STEP}"
    asyncio.run(asyncio.wait_for(trained(tmp_path, fate, rest, over), OVER_S))
    expected = reference(tmp_path, rest, change=FATAL_STEP, hooked=True)
    for rank in rest:
        assert lines(tmp_path, f"rank_{rank}") == expected[rank]
        assert len(expected[rank]) == STEPS


@pytest.mark.timeout(600)
def test_without_an_agent_ddp_does_what_it_did_before(tmp_path: Path) -> None:
    given = ENVIRONMENT | {"OUT": str(tmp_path), "STEPS": str(STEPS), "WORLD_SIZE": "3"}
    ranks = [
        subprocess.Popen(
            [torch_python(), "-m", "tests.training.ddp_loop"],
            env=os.environ | given | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [each.communicate(timeout=OVER_S)[1] for each in ranks]
    assert [text.count("this job trains alone") for text in said] == [1, 1, 1]
    expected = reference(tmp_path, (0, 1, 2), change=STEPS, hooked=False)
    assert [lines(tmp_path, f"rank_{rank}") for rank in range(3)] == expected
