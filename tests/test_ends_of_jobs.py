"""Nobody takes the normal end of a job for a fault, in whatever order its ranks end."""

import asyncio
import os
from pathlib import Path
from signal import SIGSTOP
from typing import Any

import pytest

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.ranks import Rank, end_all, started
from nemesis.actors.agent.running import until_over
from nemesis.actors.agent.watch import Watch
from nemesis.actors.planning import progress_of
from nemesis.producers.origin import Origin
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import GroupBroken, Observation, ProcessExited, ProcessStateSeen
from nemesis.schemas.plans import Plan, RankStage, RankState
from nemesis.streams.side_by_side import background
from nemesis.training.membership import Order, State
from nemesis.training.wire import Told
from tests.training.cell import has_torch, torch_python, training_cell

pytestmark = pytest.mark.torch
OVER_S = 90.0
FAULTS = (ProcessExited, GroupBroken, FaultAttributed, QuiesceDecided, RecoveryDecided)


@pytest.fixture
def torch_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def outcome(plan: Plan, *stages: tuple[RankStage, int]) -> str:
    """What becomes of a plan whose ranks are last seen in these stages and epochs."""
    states = {
        ("n", rank): RankState(rank=rank, stage=stage, epoch=epoch)
        for rank, (stage, epoch) in enumerate(stages)
    }
    return progress_of(plan, dict.fromkeys(range(len(stages)), "n"), states).outcome


def test_a_job_that_came_to_its_end_before_anybody_looked_has_gone_on() -> None:
    plan = Plan(job="llama", epoch=1, kind="membership", members="0-1")
    assert outcome(plan, ("left", 1), ("left", 1)) == "done"
    assert outcome(plan, ("left", 1), ("running", 1)) == "done"
    assert outcome(plan, ("left", 1), ("starting", 1)) == "open"
    assert outcome(plan, ("left", 1), ("fenced", 1)) == "failed"


def test_members_that_were_to_change_after_the_last_step_have_not_failed() -> None:
    plan = Plan(job="llama", epoch=1, kind="membership", members="0-1", at_boundary=True)
    assert outcome(plan, ("left", 0), ("left", 0)) == "done"


def test_who_is_started_anew_has_not_ended_with_its_earlier_life() -> None:
    plan = Plan(job="llama", epoch=1, kind="membership", members="0-1", started="1")
    assert outcome(plan, ("running", 1), ("left", 0)) == "open"
    assert outcome(plan, ("running", 1), ("left", 1)) == "done"


def test_who_has_ended_is_lost_to_a_hold_in_any_way() -> None:
    plan = Plan(job="llama", epoch=0, kind="hold", members="0-1")
    home = {0: "n", 1: "n"}
    states = {
        ("n", 0): RankState(rank=0, stage="held"),
        ("n", 1): RankState(rank=1, stage="left"),
    }
    assert progress_of(plan, home, states).lost == "1"


def test_a_rank_that_waits_beside_the_job_does_not_keep_it_from_its_end(tmp_path: Path) -> None:
    async def run() -> list[bool]:
        launch = Launch(node="n", job="llama", ranks=(0,), world=1, command=("sleep", "60"))
        agent = Agent(launch, tmp_path, boot_id="b")
        child = started(launch.command, os.environ, tmp_path / "log")
        beside = Rank(0, child.pid, 0, lambda rank: None, child)
        busy = [agent.is_busy]
        agent.ranks[0] = beside
        busy.append(agent.is_busy)
        beside.tell(Told(order=Order(1, "membership", (0,))))
        busy.append(agent.is_busy)
        agent.end()
        return busy

    assert asyncio.run(run()) == [True, False, True]


def test_a_rank_that_crashes_once_it_was_done_ends_the_job_with_an_error_and_is_not_missed(
    tmp_path: Path,
) -> None:
    async def run(command: tuple[str, ...], said: list[str]) -> bool:
        launch = Launch(node="n", job="llama", ranks=(0,), world=1, command=command)
        agent = Agent(launch, tmp_path, boot_id="b")
        child = started(launch.command, os.environ, tmp_path / "log")
        agent.ranks[0] = Rank(0, child.pid, 0, lambda rank: None, child)
        agent.ranks[0].stage, agent.ranks[0].state = "left", State(0, 30)
        agent.ranks[0].tell(Told(order=Order(0, "membership", (0,))))
        return await until_over(agent, 1.0, said.append)

    said: list[str] = []
    assert asyncio.run(run(("true",), said))
    assert not asyncio.run(run(("false",), said))
    assert said == ["rank 0 was done, and then ended with an error"]


def test_a_process_whose_rank_is_done_is_not_looked_at_as_it_ends(tmp_path: Path) -> None:
    async def run() -> list[Observation]:
        stages: tuple[RankStage, ...] = ("left", "running", "running")
        ranks: dict[int, Rank] = {}
        for number, stage in enumerate(stages):
            child = started(("sleep", "60"), os.environ, tmp_path / "log")
            ranks[number] = Rank(number, child.pid, 0, lambda rank: None, child)
            ranks[number].stage = stage
        seen: list[Observation] = []
        watch = Watch(
            Origin("n", start_ns=1, boot_id="b"),
            "llama",
            ranks,
            tap=lambda number: tmp_path / f"{number}.tap",
            is_answered=lambda epoch: False,
            on_seen=seen.extend,
        )
        for number in (0, 1):
            os.kill(ranks[number].pid, SIGSTOP)
        async with background(watch.run()):
            while not any(isinstance(each, ProcessStateSeen) for each in seen):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        end_all(ranks.values())
        return seen

    states = [each for each in asyncio.run(run()) if isinstance(each, ProcessStateSeen)]
    assert [(each.rank, each.state, each.others) for each in states] == [(1, "stopped", "2")]


async def _ended(folder: Path, **environment: str) -> tuple[list[Any], set[str], list[str]]:
    """What the log says, what the ranks have at their end, and in which stage they ended."""
    async with training_cell(
        folder, torch_python(), environment={"STEPS": "30", **environment}
    ) as cell:
        await cell.until_over(OVER_S)
        await asyncio.sleep(0.5)  # what is wrongly seen now would come now
        [agent] = cell.agents
        ends = {(folder / f"end_{rank}.txt").read_text() for rank in range(4)}
        events = [fact.data for fact in await cell.events()]
        return events, ends, [agent.ranks[rank].stage for rank in range(4)]


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_rank_that_is_long_at_its_end_is_waited_for_and_nothing_is_concluded(
    tmp_path: Path,
) -> None:
    events, ends, stages = asyncio.run(_ended(tmp_path, LATE="1:4"))
    assert len(ends) == 1
    assert stages == ["left"] * 4
    assert [each for each in events if isinstance(each, FAULTS)] == []


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_who_misses_the_end_of_the_last_step_gets_it_from_those_who_are_done(
    tmp_path: Path,
) -> None:
    events, ends, stages = asyncio.run(_ended(tmp_path, FATE="cut:2@29"))
    assert len(ends) == 1
    assert ends.pop().startswith("30 ")
    assert stages == ["left"] * 4
    [recovery] = [each for each in events if isinstance(each, RecoveryDecided)]
    assert (recovery.epoch, recovery.members, recovery.removed_ranks) == (1, "0-3", ())
    assert not any(isinstance(each, ProcessExited) for each in events)
    assert len((tmp_path / "rank_2.txt").read_text().splitlines()) == 29
