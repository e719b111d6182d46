"""Lose the log while a GPU dies: agents do what was said before, once, and NEMESIS learns of it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from nemesis.schemas.done import MembershipReported
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.agent import Done, read_journal
from nemesis.sim.cell import Options, RunningCell, running_cell
from nemesis.sim.cluster import Cluster, FaultPlanned, Scenario, load_cluster
from nemesis.sim.ledger import MembershipFormed
from nemesis.sim.run import Outcome, judge

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
SECOND = 1_000_000_000
AWAY_FROM_S, FAULT_AT_S = 3.0, 5.0
LIMIT_S = 120.0


def cluster(on_log_loss: Literal["wait", "shrink"]) -> Cluster:
    built_in = load_cluster()
    job = msgspec.structs.replace(built_in.job, on_log_loss=on_log_loss, grace_s=6.0)
    return msgspec.structs.replace(built_in, job=job)


def lose_the_log(
    state: Path, monkeypatch: pytest.MonkeyPatch, on_log_loss: Literal["wait", "shrink"]
) -> tuple[Outcome, list[Done]]:
    """The server is away from before the fault until 15 simulated seconds later."""
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(state))
    fault = FaultPlanned(kind="xid79", after_s=FAULT_AT_S)
    options = Options(
        cluster=cluster(on_log_loss),
        scenario=Scenario(name="alone", title="alone", faults=(fault,)),
        speed=3.0,
        cell="faults",
    )

    async def scenario() -> Outcome:
        async with running_cell(options, lambda lines: None, lambda standing: None) as cell:
            async with asyncio.timeout(LIMIT_S):
                await passed(cell, AWAY_FROM_S)
                await cell.server.kill()
                await passed(cell, AWAY_FROM_S + 15.0)
                await cell.server.restart()
                await until_known(cell)
            return await judge(options, cell, 0.0)

    outcome = asyncio.run(scenario())
    agents = state / "faults" / "agents"
    nodes = options.cluster.node_names
    return outcome, [done for node in nodes for done in read_journal(agents / node)]


async def passed(cell: RunningCell, second: float) -> None:
    left_ns = cell.clock.start_ns + round(second * SECOND) - cell.clock.now_ns()
    await asyncio.sleep(cell.clock.wall_s(max(0, left_ns)))


async def until_known(cell: RunningCell) -> None:
    """NEMESIS has concluded on the fault and the job goes on; then a while more."""
    while not (  # noqa: ASYNC110 - the world has no event for it
        any(isinstance(fact.data, FaultAttributed) for fact in cell.watcher.facts)
        and cell.stage.simulation.job.history[-1].epoch > 0
    ):
        await asyncio.sleep(0.05)
    now_s = (cell.clock.now_ns() - cell.clock.start_ns) / SECOND
    await passed(cell, now_s + 15.0)


def test_agents_that_were_told_to_shrink_do_so_once_and_nobody_does_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, journal = lose_the_log(tmp_path, monkeypatch, "shrink")
    joined = Counter((done.epoch, done.rank) for done in journal if done.doing == "join")
    assert len(joined) == 111
    assert set(joined.values()) == {1}
    assert {done.by for done in journal if done.doing == "join"} == {"agent"}
    formed = [each for each in outcome.truths if isinstance(each, MembershipFormed)]
    assert [(each.epoch, each.world) for each in formed] == [(0, 112), (1, 111), (1, 111)]
    told = [f.data for f in outcome.facts if isinstance(f.data, MembershipReported)]
    assert [(each.epoch, each.world) for each in told] == [(1, 111)]
    assert outcome.score.recovered
    assert outcome.score.faults[0].wrong_blame == ()


def test_agents_that_were_told_to_wait_are_recovered_when_the_log_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, journal = lose_the_log(tmp_path, monkeypatch, "wait")
    joined = Counter((done.epoch, done.rank) for done in journal if done.doing == "join")
    assert len(joined) == 111
    assert set(joined.values()) == {1}
    assert {done.by for done in journal if done.doing == "join"} == {"plan"}
    assert {done.by for done in journal if done.doing == "hold"} == {"agent"}
    assert outcome.score.world == 111
    assert outcome.score.faults[0].culprit_right
