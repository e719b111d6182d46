"""Bad days of an agent and its job, each with a defined answer that no other test promises."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.ranks import Rank, started
from nemesis.actors.agent.running import Wire, attended
from nemesis.actors.agent.watch import Watch
from nemesis.producers.origin import Origin
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.observed import GroupBroken, Observation
from nemesis.schemas.watched import CoverageReported
from nemesis.streams.connection import login_of
from nemesis.streams.server import Server
from nemesis.streams.side_by_side import background
from nemesis.training.membership import State
from nemesis.training.wire import Standing
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS
from tests.training.cell import TrainingCell, has_torch, torch_python, training_cell

OVER_S = 90.0
HOUR_NS = 3600 * SECOND_NS


@pytest.fixture
def torch_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def test_a_clock_that_is_set_back_keeps_no_broken_group_from_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Observation] = []

    async def run() -> None:
        child = started(("sleep", "60"), {}, tmp_path / "log")
        rank = Rank(0, child.pid, 0, lambda rank: None, child)
        held = Standing(rank=0, pid=child.pid, stage="held", epoch=0, state=State(0, 3))
        rank.tell(None)  # type: ignore[arg-type]
        rank.heard(held, None, time.monotonic_ns())  # type: ignore[arg-type]
        wall = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: wall() - HOUR_NS)
        watch = Watch(
            Origin("n", start_ns=1),
            "llama",
            {0: rank},
            tap=lambda number: tmp_path / "tap",
            is_answered=lambda epoch: False,
            on_seen=seen.extend,
        )
        async with background(watch.run()), asyncio.timeout(OVER_S):
            while not any(isinstance(each, GroupBroken) for each in seen):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        rank.fence()
        rank.wait()

    asyncio.run(run())
    [broken] = [each for each in seen if isinstance(each, GroupBroken)]
    assert (broken.job, broken.epoch) == ("llama", 0)


def test_a_job_of_one_rank_that_is_lost_is_started_anew_from_its_checkpoint() -> None:
    cell = Cell(policy=ACT)
    cell.submit(nodes=("n0",), ranks_per_node=1)
    cell.exit(0, node="n0")
    decision = cell.last(QuiesceDecided).decision
    cell.attempt(AttemptStarted, decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptCompleted, decision, lost="0")
    cell.tick(2)
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.started, recovery.state_from) == (
        "restart_job",
        "0",
        "checkpoint",
    )
    assert recovery.rungs_refused == (
        "restart_rank: no untouched replica holds the state",
        "shrink: 0 ranks would be left, at least 1 are needed",
    )


@pytest.mark.timeout(300)
@pytest.mark.server
@pytest.mark.usefixtures("torch_there")
def test_an_agent_that_is_told_to_end_says_so_and_its_node_is_not_missed(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with Server("leaving", folder=tmp_path / "cell", roles=["node/n0"]) as server:
            there = {"PYTHONPATH": os.pathsep.join(["src", "."])}
            launch = Launch(node="n0", job="llama", ranks=(0,), world=1, environment=there)
            agent = Agent(launch, tmp_path / "a", boot_id="b", python=torch_python())
            wire = Wire(server.url, login_of(server.credentials_folder, "node/n0"))
            try:
                async with attended(agent, wire, tmp_path / "a"):
                    async with asyncio.timeout(OVER_S):
                        while not (agent.store and agent.is_connected()):  # noqa: ASYNC110
                            await asyncio.sleep(0.02)
            finally:
                agent.end()
            async with await server.connect("operator") as log:
                last = await log.last("nemesis.telemetry.n0.coverage")
                assert last is not None
                return [msgspec.msgpack.decode(last.payload, type=CoverageReported)]

    [said] = asyncio.run(run())
    assert said.ends


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_log_that_is_gone_in_the_middle_of_a_recovery_is_waited_for_and_ends_it(
    tmp_path: Path,
) -> None:
    async def run() -> tuple[int, list[Any]]:
        environment = {"STEPS": "1000000", "FATE": "SIGKILL:1@12"}
        async with training_cell(tmp_path, torch_python(), environment=environment) as cell:
            [agent] = cell.agents
            async with asyncio.timeout(OVER_S):
                while agent.plan is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
                await cell.server.kill()
                assert agent.plan.kind == "hold"
                await asyncio.sleep(3.0)
                stood_at = len(cell.told(0))
                await cell.server.restart()
                await trained(cell, 40)
            return stood_at, [fact.data for fact in await cell.events()]

    stood_at, events = asyncio.run(run())
    assert stood_at == 12
    members = [line.split()[1] for line in (tmp_path / "rank_0.txt").read_text().splitlines()]
    assert members[:12] == ["0,1,2,3"] * 12
    assert set(members[12:]) == {"0,2,3"}
    assert sum(isinstance(each, RecoveryDecided) for each in events) == 1


async def trained(cell: TrainingCell, steps: int) -> None:
    """Wait until so many steps are made."""
    while len(cell.told(0)) < steps:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from nemesis.actors.agent.roster import KeptPlan, Life, Roster
from nemesis.actors.following import Accepted
from nemesis.schemas.plans import Plan

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
kept, roster = KeptPlan(folder / "plan.json"), Roster(folder / "ranks.json")
kept.keep(Accepted(plan=Plan(job="llama", epoch=3, kind="hold")))
roster.begin(Life(rank=0, pid=1, epoch=3))
print(kept.accepted.plan.epoch, [life.rank for life in roster.lives])
"""


def test_an_agent_whose_disk_takes_nothing_follows_plans_all_the_same_and_says_so(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "3 [0]\n"
    assert ran.stderr.count("cannot be written (File too large), going on\n") == 2
