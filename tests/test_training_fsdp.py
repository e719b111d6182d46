"""A model under torch's FSDP2 loses a rank, and the other replica goes on: real processes."""

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
STEPS = 20
FATAL_STEP = 8
WORLD = 4
OVER_S = 240.0
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(["src", "."])}


@pytest.fixture(autouse=True)
def _torch_is_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def lines(folder: Path, name: str) -> list[str]:
    path = folder / f"{name}.txt"
    return path.read_text().splitlines() if path.exists() else []


def reference(folder: Path, rest: tuple[int, ...], *, change: int) -> list[list[str]]:
    """Lines of each rank of a run by torch alone, in which a replica left by itself."""
    folder.mkdir()
    named = ",".join(map(str, rest))
    ranks = [
        subprocess.Popen(
            [
                *(torch_python(), "-m", "tests.training.fsdp_reference"),
                *(str(rank), str(WORLD), str(folder), str(STEPS), str(change), named),
            ],
            env=os.environ | ENVIRONMENT,
        )
        for rank in range(WORLD)
    ]
    assert [each.wait(timeout=OVER_S) for each in ranks] == [0] * WORLD
    return [lines(folder, f"reference_{rank}") for rank in range(WORLD)]


async def trained(folder: Path) -> None:
    """Two replicas of two ranks under an agent: rank 3 is killed, a plan drops its replica, and
    another one has it come back; until that has trained."""
    launch = Launch(
        node="n000",
        job="llama",
        ranks=tuple(range(WORLD)),
        world=WORLD,
        command=(torch_python(), "-m", "tests.training.fsdp_loop"),
        environment=ENVIRONMENT
        | {"OUT": str(folder), "STEPS": "1000000", "FATE": f"SIGKILL:3@{FATAL_STEP}"},
        comes_back=True,
    )
    agent = Agent(launch, folder / "n000", boot_id="b", python=torch_python())
    plans = (
        Plan(job="llama", epoch=0, kind="hold", members="0-3", fenced="3"),
        Plan(job="llama", epoch=1, kind="membership", members="0-1", fenced="2-3"),
        Plan(job="llama", epoch=2, kind="membership", members="0-3", at_boundary=True),
    )
    try:
        async with background(agent.run()):
            while 3 not in agent.ranks or agent.ranks[3].is_alive:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            agent.follow(plans[0], time.time_ns())
            assert agent.follow(plans[1], time.time_ns()).outcome == "accepted"
            while not (agent.ranks[2].is_ready and agent.ranks[3].is_ready):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert agent.follow(plans[2], time.time_ns()).outcome == "accepted"
            while len(lines(folder, "rank_3")) < FATAL_STEP + STEPS:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        agent.end()


@pytest.mark.timeout(600)
def test_a_sharded_model_goes_on_without_a_replica_as_torchs_own_would_and_takes_it_back(
    tmp_path: Path,
) -> None:
    asyncio.run(asyncio.wait_for(trained(tmp_path), OVER_S))
    told = [lines(tmp_path, f"rank_{rank}") for rank in range(WORLD)]
    expected = reference(tmp_path / "torch", (0, 1), change=FATAL_STEP)
    for rank in range(WORLD):
        assert told[rank][: len(expected[rank])] == expected[rank]
        assert len(expected[rank]) == (STEPS if rank < 2 else FATAL_STEP)
    for rank in (2, 3):
        peers = {line.split()[0]: line.split() for line in told[rank - 2]}
        for step, members, _, parameters in (each.split() for each in told[rank][FATAL_STEP:-1]):
            assert (peers[step][1], peers[step][3]) == (members, parameters)
            assert members == "0,1,2,3"


@pytest.mark.timeout(600)
def test_without_an_agent_a_sharded_model_with_replicas_trains_as_under_torchs_own(
    tmp_path: Path,
) -> None:
    given = ENVIRONMENT | {"OUT": str(tmp_path), "STEPS": str(STEPS), "WORLD_SIZE": str(WORLD)}
    ranks = [
        subprocess.Popen(
            [torch_python(), "-m", "tests.training.fsdp_loop"],
            env=os.environ | given | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    said = [each.communicate(timeout=OVER_S)[1] for each in ranks]
    assert [text.count("this job trains alone") for text in said] == [1] * WORLD
    expected = reference(tmp_path / "torch", tuple(range(WORLD)), change=STEPS)
    assert [lines(tmp_path, f"rank_{rank}") for rank in range(WORLD)] == expected


REFUSED = """
import sys
from typing import Any
import torch
import nemesis
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group("fake", rank=0, world_size=4)
mesh: Any = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
def said(*models, **degrees):
    try:
        nemesis.attach(*models, **degrees)
    except Exception as error:
        return str(error)
whole = fully_shard(torch.nn.Linear(2, 2), mesh=mesh)
parts = fully_shard(torch.nn.Linear(2, 2), mesh=mesh["shard"])
print(said(whole, ep=2), said(parts), said(parts, parts, ep=2), said(parts, ep=2), sep="\\n")
"""


def test_a_model_that_is_sharded_otherwise_is_refused_and_the_line_says_what_to_write() -> None:
    said = subprocess.run(
        [torch_python(), "-c", REFUSED],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [line.partition("nemesis.attach: ")[2] for line in said] == [
        "fully_shard was given a mesh with replicas, and torch would wait for those that are lost;"
        ' give it the shards alone, as in mesh=mesh["shard"]',
        "fully_shard divides the module among 2 ranks: say ep=2 here and of the job, not ep=1",
        "one sharded module can be tied, not two",
        "",
    ]
    assert said[-1] == "None"
