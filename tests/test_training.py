"""A real job loses a rank and goes on: real processes, a real server, decisions from the log."""

import asyncio
import multiprocessing
import os
import time
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import pytest

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.roster import Roster
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import ProcessExited
from nemesis.schemas.plans import Plan
from nemesis.streams.side_by_side import background
from tests.training.cell import TrainingCell, has_torch, records_of, torch_python, training_cell
from tests.training.runs import lines_without_faults
from tests.training.through_log import judge_log

pytestmark = pytest.mark.torch
STEPS = 30
FATAL_STEP = 12
OVER_S = 90.0


@pytest.fixture(autouse=True)
def _torch_is_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def reference(rest: tuple[int, ...]) -> dict[int, list[str]]:
    """Lines of each rank of a run in which nothing fails and the others left by themselves."""
    return lines_without_faults([((0, 1, 2, 3), FATAL_STEP), (rest, STEPS - FATAL_STEP)])


async def _trained(folder: Path, fate: str) -> tuple[dict[int, list[str]], list[Any]]:
    environment = {"STEPS": str(STEPS), "FATE": fate}
    async with training_cell(folder, torch_python(), environment=environment) as cell:
        await cell.until_over(OVER_S)
        events = [fact.data for fact in await cell.events()]
        judge_log(await records_of(cell.log))
        return {rank: cell.told(rank) for rank in range(4)}, events


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("signal", "victim"), [("SIGKILL", 0), ("SIGKILL", 2), ("SIGSTOP", 2)])
def test_a_killed_or_stopped_rank_costs_no_step_and_the_rest_trains_on_as_if_it_had_left(
    signal: str, victim: int, tmp_path: Path
) -> None:
    told, events = asyncio.run(_trained(tmp_path, f"{signal}:{victim}@{FATAL_STEP}"))
    rest = tuple(rank for rank in range(4) if rank != victim)
    expected = reference(rest)
    for rank in rest:
        assert told[rank] == expected[rank]
    hold = next(each for each in events if isinstance(each, QuiesceDecided))
    recovery = next(each for each in events if isinstance(each, RecoveryDecided))
    assert (hold.dead_ranks, recovery.action) == ((victim,), "shrink")
    assert recovery.removed_ranks == (victim,)


@pytest.mark.timeout(300)
def test_a_rank_that_sleeps_in_its_own_code_is_named_by_its_stack_and_the_rest_trains_on(
    tmp_path: Path,
) -> None:
    told, events = asyncio.run(_trained(tmp_path, f"sleep:2@{FATAL_STEP}"))
    named = next(each for each in events if isinstance(each, FaultAttributed) and each.culprits)
    assert [each.id for each in named.culprits] == ["rank/llama/2"]
    assert (named.fault_class, named.evidence[0].fact.split("/")[1]) == ("app.stall", "stack")
    assert "befall (" in named.reason
    assert "asleep" in named.reason
    expected = reference((0, 1, 3))
    assert all(told[rank] == expected[rank] for rank in (0, 1, 3))


@pytest.mark.timeout(300)
def test_a_rank_that_will_fail_leaves_at_a_boundary_and_nobody_is_held(tmp_path: Path) -> None:
    async def run() -> tuple[dict[int, list[str]], list[Any]]:
        environment = {"STEPS": "600", "FATE": ""}
        async with training_cell(
            tmp_path, torch_python(), environment=environment, without=["ecc_rules"]
        ) as cell:
            await _until_step(cell, FATAL_STEP)
            await cell.foresee(3)
            await cell.until_over(OVER_S)
            events = [fact.data for fact in await cell.events()]
            return {rank: cell.told(rank) for rank in range(4)}, events

    told, events = asyncio.run(run())
    left_at = len(told[3])
    assert FATAL_STEP <= left_at < 600
    for rank in range(3):
        steps, members, *_ = zip(*(line.split() for line in told[rank]), strict=True)
        assert [int(step) for step in steps] == list(range(1, 601))
        assert members == ("0,1,2,3",) * left_at + ("0,1,2",) * (600 - left_at)
    assert told[0][:left_at][-1].split()[-1] == told[3][-1].split()[-1]
    assert len({told[rank][-1].split()[-1] for rank in range(3)}) == 1
    assert not any(isinstance(each, QuiesceDecided | ProcessExited) for each in events)


@pytest.mark.timeout(300)
def test_a_rank_that_was_lost_comes_back_at_a_boundary_with_the_state_of_the_others(
    tmp_path: Path,
) -> None:
    async def run() -> list[Any]:
        environment = {"STEPS": "1000000", "FATE": f"SIGKILL:2@{FATAL_STEP}"}
        async with training_cell(
            tmp_path, torch_python(), environment=environment, comes_back=True
        ) as cell:
            async with asyncio.timeout(OVER_S):
                while not cell.told(2)[FATAL_STEP:]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            return [fact.data for fact in await cell.events()]

    events = asyncio.run(run())
    lines = [line.split() for rank in range(4) for line in _lines(tmp_path, rank)]
    seen = {(int(step), members, checksum) for step, members, *_, checksum in lines}
    members_at = {step: members for step, members, _ in seen}
    assert len(members_at) == len(seen)
    assert sorted(members_at) == list(range(1, len(seen) + 1))
    assert (members_at[FATAL_STEP + 1], members_at[len(seen)]) == ("0,1,3", "0,1,2,3")
    grown = [each for each in events if isinstance(each, RecoveryDecided)][-1]
    assert (grown.action, grown.members, grown.started) == ("restart_rank", "0-3", "")
    assert sum(isinstance(each, QuiesceDecided) for each in events) == 1


@pytest.mark.timeout(300)
def test_a_node_that_is_lost_with_its_agent_and_the_store_costs_one_epoch_and_no_step(
    tmp_path: Path,
) -> None:
    async def run() -> tuple[dict[int, list[str]], list[Any]]:
        environment = {"STEPS": "600", "FATE": ""}
        async with training_cell(
            tmp_path, torch_python(), nodes=2, ranks_per_node=2, environment=environment
        ) as cell:
            await _until_step(cell, FATAL_STEP)
            await cell.lose_node(0)
            await cell.until_over(OVER_S)
            events = [fact.data for fact in await cell.events()]
            return {rank: cell.told(rank) for rank in range(4)}, events

    told, events = asyncio.run(run())
    applied: set[tuple[int, str, str]] = set()
    for rank in (2, 3):
        steps, members, _, _, checksums = zip(*(line.split() for line in told[rank]), strict=True)
        numbers = [int(step) for step in steps]
        assert numbers == sorted(set(numbers))
        assert len(numbers) >= 599  # who was cut off in the step that broke has it from the other
        applied |= set(zip(numbers, members, checksums, strict=True))
    assert [step for step, *_ in sorted(applied)] == list(range(1, 601))
    assert {members for _, members, _ in applied} == {"0,1,2,3", "2,3"}
    [hold] = [each for each in events if isinstance(each, QuiesceDecided)]
    [recovery] = [each for each in events if isinstance(each, RecoveryDecided)]
    assert (hold.dead_ranks, recovery.epoch, recovery.removed_ranks) == ((), 1, (0, 1))


def _agent(folder: Path, steps: int, *, comes_back: bool = False) -> Agent:
    """Of one node with three ranks, without a log."""
    launch = Launch(
        node="n000",
        job="llama",
        ranks=(0, 1, 2),
        world=3,
        command=(torch_python(), "-m", "tests.training.loop"),
        environment={
            "OUT": str(folder),
            "STEPS": str(steps),
            "PYTHONPATH": os.pathsep.join(["src", "."]),
        },
        comes_back=comes_back,
    )
    return Agent(launch, folder / "n000", boot_id="b", python=torch_python())


def _plan(epoch: int, members: str, **fields: Any) -> Plan:
    return Plan(job="llama", epoch=epoch, kind="membership", members=members, **fields)


@pytest.mark.timeout(300)
def test_who_is_to_leave_at_a_boundary_leaves_and_nobody_loses_a_step(tmp_path: Path) -> None:
    async def run() -> Agent:
        agent = _agent(tmp_path, 200)
        try:
            async with background(agent.run()):
                while len(_lines(tmp_path, 0)) < FATAL_STEP:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                plan = _plan(1, "0,2", at_boundary=True)
                assert agent.follow(plan, time.time_ns()).outcome == "accepted"
                assert agent.follow(plan, time.time_ns()).outcome == "repeated"
                while agent.is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            agent.end()
        return agent

    agent = asyncio.run(asyncio.wait_for(run(), OVER_S))
    told = {rank: [line.split() for line in _lines(tmp_path, rank)] for rank in range(3)}
    left_at = len(told[1])
    for rank in (0, 2):
        assert [int(step) for step, *_ in told[rank]] == list(range(1, 201))
        assert [names for _, names, *_ in told[rank]] == ["0,1,2"] * left_at + ["0,2"] * (
            200 - left_at
        )
    assert [sums for *_, sums in told[0]] == [sums for *_, sums in told[2]]
    assert [sums for *_, sums in told[1]] == [sums for *_, sums in told[0][:left_at]]
    exited = [each for each in agent.carried(0) if isinstance(each, ProcessExited)]
    assert exited == []


@pytest.mark.timeout(300)
def test_the_next_life_of_an_agent_finds_its_ranks_and_what_befell_them_meanwhile(
    tmp_path: Path,
) -> None:
    async def first() -> None:
        agent = _agent(tmp_path, 10_000)
        async with background(agent.run()):
            while len(_lines(tmp_path, 0)) < FATAL_STEP:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def second(pids: dict[int, int]) -> None:
        agent = _agent(tmp_path, 10_000)
        try:
            async with background(agent.run()):
                while not agent.ranks:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert {n: rank.pid for n, rank in agent.ranks.items()} == {0: pids[0], 2: pids[2]}
                [exited] = [e for e in agent.carried(0) if isinstance(e, ProcessExited)]
                assert (exited.rank, exited.pid) == (1, pids[1])
                before = len(_lines(tmp_path, 0))
                assert agent.follow(_plan(1, "0,2"), time.time_ns()).outcome == "accepted"
                while len(_lines(tmp_path, 0)) < before + 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                stale = agent.follow(_plan(0, "0-2"), time.time_ns())
                assert (stale.outcome, stale.epoch) == ("stale", 1)
                rival = agent.follow(_plan(1, "0"), time.time_ns())
                assert (rival.outcome, rival.epoch) == ("refused", 1)
        finally:
            agent.end()

    life = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(first()))
    life.start()
    life.join(OVER_S)
    assert life.exitcode == 0
    lives = Roster(tmp_path / "n000" / "ranks.json").lives
    pids = {life.rank: life.pid for life in lives}
    while len(_lines(tmp_path, 2)) < 2 * FATAL_STEP:
        time.sleep(0.01)
    os.kill(pids[1], SIGKILL)
    while any(life.is_there for life in lives if life.rank == 1):
        time.sleep(0.01)
    asyncio.run(asyncio.wait_for(second(pids), OVER_S))
    steps = [int(line.split()[0]) for line in _lines(tmp_path, 0)]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.timeout(300)
def test_who_waits_to_join_does_so_though_its_agent_begins_a_new_life_meanwhile(
    tmp_path: Path,
) -> None:
    async def first() -> None:
        agent = _agent(tmp_path, 1_000_000, comes_back=True)
        async with background(agent.run()):
            while len(_lines(tmp_path, 0)) < FATAL_STEP:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert agent.follow(_plan(1, "0,2", fenced="1"), time.time_ns()).outcome == "accepted"
            while not agent.ranks[1].is_ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def second() -> None:
        agent = _agent(tmp_path, 1_000_000, comes_back=True)
        try:
            async with background(agent.run()):
                while not agent.ranks:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert agent.ranks[1].stage == "starting"  # it has not found this life yet
                assert agent.follow(_plan(2, "0-2"), time.time_ns()).outcome == "accepted"
                while agent.ranks[1].state.epoch < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert agent.is_busy
        finally:
            agent.end()

    life = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(first()))
    life.start()
    life.join(OVER_S)
    assert life.exitcode == 0
    asyncio.run(asyncio.wait_for(second(), OVER_S))
    _, members, *_ = _lines(tmp_path, 1)[-1].split()
    assert members == "0,1,2"


@pytest.mark.timeout(300)
def test_without_the_log_nobody_goes_on_before_the_grace_of_a_plan_that_lay_in_it(
    tmp_path: Path,
) -> None:
    grace_s = 2.0

    async def run() -> None:
        agent = _agent(tmp_path, 1_000_000)
        try:
            async with background(agent.run()):
                while len(_lines(tmp_path, 0)) < FATAL_STEP:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                plan = _plan(1, "0-2", on_log_loss="shrink", grace_ns=int(grace_s * 1e9))
                agent.follow(plan, time.time_ns())
                while any(rank.state.epoch < 1 for rank in agent.ranks.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                agent.is_connected = lambda: False
                os.kill(agent.ranks[1].pid, SIGKILL)
                began = time.monotonic()
                while agent.ranks[0].state.epoch < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert time.monotonic() - began > grace_s
                agent.is_connected = lambda: True
                assert (agent.reports[-1].members, agent.reports[-1].by) == ("0,2", "agent")
                answer = agent.follow(_plan(2, "0-2"), time.time_ns())
                assert (answer.outcome, answer.members) == ("refused", "0,2")
        finally:
            agent.end()

    asyncio.run(asyncio.wait_for(run(), OVER_S))
    members = [line.split()[1] for line in _lines(tmp_path, 0)]
    assert set(members) == {"0,1,2", "0,2"}


@pytest.mark.timeout(300)
def test_a_rank_that_was_left_out_while_it_was_stopped_leaves_when_it_runs_again(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        agent = _agent(tmp_path, 10_000)
        try:
            async with background(agent.run()):
                while len(_lines(tmp_path, 0)) < FATAL_STEP:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                rank = agent.ranks[1]
                os.kill(rank.pid, SIGSTOP)
                agent.follow(_plan(1, "0,2"), time.time_ns())
                before = len(_lines(tmp_path, 0))
                while len(_lines(tmp_path, 0)) < before + 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                os.kill(rank.pid, SIGCONT)
                while rank.is_alive:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert (rank.stage, rank.returncode) == ("left", 0)
        finally:
            agent.end()

    asyncio.run(asyncio.wait_for(run(), OVER_S))
    told = [line.split() for rank in (0, 1, 2) for line in _lines(tmp_path, rank)]
    assert len({step for step, *_ in told}) == len({(step, sums) for step, *_, sums in told})


def _lines(folder: Path, rank: int) -> list[str]:
    path = folder / f"rank_{rank}.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.timeout(300)
def test_with_the_healer_stopped_nobody_goes_on(tmp_path: Path) -> None:
    async def run() -> list[int]:
        environment = {"STEPS": str(STEPS), "FATE": f"SIGKILL:1@{FATAL_STEP}"}
        async with training_cell(
            tmp_path, torch_python(), environment=environment, without=["healer"]
        ) as cell:
            await _until_step(cell, FATAL_STEP)
            await asyncio.sleep(2.0)
            return [len(cell.told(rank)) for rank in range(4)]

    counts = asyncio.run(run())
    assert max(counts) <= FATAL_STEP


async def _until_step(cell: TrainingCell, step: int) -> None:
    async with asyncio.timeout(OVER_S):
        while len(cell.told(1)) < step:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
