"""Ranks that cannot be held: of a script that never calls the hook, or stopped by a signal."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from nemesis.actors.agent.ranks import Rank, started, states_of
from nemesis.actors.planning import Progress, progress_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, AttemptStarted
from nemesis.schemas.plans import Plan, RankState
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS
from tests.training.cell import TrainingCell, has_torch, torch_python, training_cell

pytestmark = pytest.mark.torch
OVER_S = 90.0
HOLD = Plan(job="llama", epoch=0, kind="hold", members="0-2", fenced="1")
ANEW = Plan(job="llama", epoch=1, kind="membership", members="0-2", started="0-2")
GOES_ON = Plan(job="llama", epoch=1, kind="membership", members="0-2")


@pytest.fixture
def torch_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def progress(plan: Plan, *states: RankState) -> Progress:
    """How far a plan has got whose ranks, all of one node, were last seen so."""
    return progress_of(plan, dict.fromkeys(range(3), "n"), {("n", s.rank): s for s in states})


def seen(rank: int, stage: Any = "starting", **fields: Any) -> RankState:
    return RankState(rank=rank, stage=stage, **({"attached": False} | fields))


def test_a_hold_waits_for_no_rank_where_none_has_ever_called_the_hook() -> None:
    dead = seen(1, "fenced")
    found = progress(HOLD, seen(0), dead, seen(2))
    assert (found.outcome, found.lost, found.unattached) == ("done", "1", "0,2")
    for other in (seen(2, attached=True), seen(2, "held", attached=True)):
        waits = progress(HOLD, seen(0), dead, other)
        assert (waits.outcome, waits.unattached) == ("open", "")
    assert progress(HOLD, seen(0), dead).outcome == "open"  # of rank 2 nothing was heard yet


def test_ranks_that_never_call_the_hook_are_there_again_as_soon_as_their_processes_run() -> None:
    before, after = ([seen(rank, epoch=epoch) for rank in range(3)] for epoch in (0, 1))
    assert progress(ANEW, *before).outcome == "open"
    assert progress(ANEW, *after).outcome == "done"
    assert progress(ANEW, *after[:2], seen(2, "failed", epoch=1)).outcome == "failed"
    assert progress(GOES_ON, *before).outcome == "done"
    loading = [seen(rank, epoch=1, attached=True) for rank in range(3)]
    assert progress(ANEW, *loading).outcome == "open"


def test_a_hold_does_not_wait_for_a_rank_that_was_stopped_meanwhile() -> None:
    gone, held = seen(1, "fenced", attached=True), seen(0, "held", attached=True)
    stopped = seen(2, "running", attached=True, stopped=True)
    found = progress(HOLD, held, gone, stopped)
    assert (found.outcome, found.stopped, found.lost) == ("done", "2", "1")
    suspended = seen(0, "running", attached=True, stopped=True)
    assert progress(HOLD, suspended, gone, stopped).outcome == "open"


def test_an_agent_tells_who_has_called_the_hook_in_whatever_life_and_whose_process_is_stopped(
    tmp_path: Path,
) -> None:
    async def run() -> tuple[RankState, ...]:
        children = [started(("sleep", "60"), os.environ, tmp_path / "log") for _ in range(2)]
        ranks = [
            Rank(at, child.pid, 0, lambda rank: None, child) for at, child in enumerate(children)
        ]
        ranks[1].is_stopped = True
        try:
            return states_of(ranks, {0, 7})
        finally:
            for rank in ranks:
                rank.fence()
                rank.wait()

    assert [(each.attached, each.stopped) for each in asyncio.run(run())] == [
        (True, False),
        (False, True),
    ]


@pytest.fixture
def cell() -> Cell:
    """A cell that may act, with one job of four nodes of two ranks."""
    cell = Cell(policy=ACT)
    cell.submit()
    return cell


def lose(cell: Cell, rank: int, **held: Any) -> None:
    """A rank ends; what its hold has come to."""
    cell.exit(rank, node=f"n{rank // 2}")
    decision = cell.last(QuiesceDecided).decision
    cell.attempt(AttemptStarted, decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptCompleted, decision, lost=str(rank), **held)
    cell.tick(2)


def test_a_job_whose_ranks_cannot_regroup_is_started_anew_at_once_and_told_why(cell: Cell) -> None:
    lose(cell, 3, unattached="0-2,4-7")
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.started, recovery.state_from) == (
        "restart_job",
        "0-7",
        "checkpoint",
    )
    why = "no rank has called the hook (nemesis.attach), so none can regroup"
    assert recovery.rungs_refused == (f"restart_rank: {why}", f"shrink: {why}")
    assert "rank 3 of llama is lost, and no rank of it has called the hook" in recovery.reason
    cell.carry_out()
    lose(cell, 5)  # they have called it since
    assert cell.last(RecoveryDecided).action == "restart_rank"


def test_where_a_restart_fails_too_a_person_is_asked(cell: Cell) -> None:
    lose(cell, 3, unattached="0-2,4-7")
    decision = cell.last(RecoveryDecided).decision
    cell.attempt(AttemptStarted, decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptFailed, decision, lost="3", unattached="0-2,4-7")
    assert cell.last(RecoveryWithheld).limit == "no_rung"


def test_a_failure_foreseen_for_ranks_that_cannot_regroup_is_left_to_a_person(cell: Cell) -> None:
    cell.predict("act", 3)
    foreseen = cell.last(RecoveryDecided)
    assert foreseen.action == "shrink"
    cell.attempt(AttemptStarted, foreseen.decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptFailed, foreseen.decision, unattached="0-7")
    assert cell.last(RecoveryWithheld).limit == "no_rung"
    lose(cell, 3, unattached="0-2,4-7")
    assert cell.last(RecoveryDecided).action == "restart_job"


def test_a_rank_that_was_stopped_while_the_others_were_held_is_taken_out_with_the_lost_one(
    cell: Cell,
) -> None:
    lose(cell, 3, stopped="2")
    recovery = cell.last(RecoveryDecided)
    assert (recovery.action, recovery.started) == ("restart_rank", "2-3")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_script_that_never_calls_the_hook_is_started_anew_and_nothing_of_before_is_left(
    tmp_path: Path,
) -> None:
    script = "import os, time; print(os.environ['NEMESIS_STATE_FROM'], flush=True); time.sleep(600)"
    command = (sys.executable, "-c", script)

    log = tmp_path / "n000" / "rank_0.log"

    async def run() -> tuple[list[Any], list[int], dict[int, int]]:
        async with training_cell(
            tmp_path, torch_python(), ranks_per_node=2, environment={}, command=command
        ) as cell:
            [agent] = cell.agents
            async with asyncio.timeout(OVER_S):
                while len(agent.ranks) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                before = [rank.pid for rank in agent.ranks.values()]
                os.kill(before[1], signal.SIGKILL)
                events = await until_completed(cell)
                while len(log.read_text().split()) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            living = {number: rank.pid for number, rank in agent.ranks.items() if rank.is_alive}
            return events, before, living

    events, before, living = asyncio.run(run())
    assert sorted(living) == [0, 1]
    assert not {*before}.intersection(living.values())
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in before)
    [hold] = [each for each in events if isinstance(each, AttemptCompleted) and each.unattached][:1]
    assert hold.reason == "No rank of llama has called the hook: nothing can hold them."
    [recovery] = [each for each in events if isinstance(each, RecoveryDecided)]
    assert (recovery.action, recovery.started) == ("restart_job", "0-1")
    assert log.read_text().split() == ["memory", "checkpoint"]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_rank_that_is_stopped_as_another_is_killed_holds_up_nobody(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        environment = {"STEPS": "1000000", "FATE": ""}
        async with training_cell(tmp_path, torch_python(), environment=environment) as cell:
            [agent] = cell.agents
            async with asyncio.timeout(OVER_S):
                while len(cell.told(2)) < 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                os.kill(agent.ranks[2].pid, signal.SIGSTOP)
                os.kill(agent.ranks[1].pid, signal.SIGKILL)
                return await until_completed(cell)

    events = asyncio.run(run())
    [hold] = [each for each in events if isinstance(each, AttemptCompleted) and each.stopped]
    assert hold.reason.endswith(", all but rank 2, whose process is stopped.")
    [recovery] = [each for each in events if isinstance(each, RecoveryDecided)]
    assert (recovery.action, recovery.removed_ranks) == ("shrink", (1, 2))


async def until_completed(cell: TrainingCell) -> list[Any]:
    """The log's events, once a recovery has been carried out."""
    while True:
        events = [fact.data for fact in await cell.events()]
        decided = {e.decision for e in events if isinstance(e, RecoveryDecided)}
        if any(isinstance(e, AttemptCompleted) and e.decision in decided for e in events):
            return events
        await asyncio.sleep(0.1)
