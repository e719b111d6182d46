"""Disturb a recovery while it happens: the job goes on once, whatever is killed.

Real processes, a real server, a whole simulated cluster. Agents answer plans a little late, so
that there is a time between a claim and its effect in which something can be killed.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from nemesis.actors.node_link import Link
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.facts import Fact
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.agent import Done, read_journal
from nemesis.sim.cell import Options, RunningCell, running_cell
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.run import Outcome, judge
from nemesis.sim.topology.cluster_file import load_cluster
from tests.planned import planned

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
CLUSTER = load_cluster()
EARLY = Scenario(name="early", title="soon", faults=(planned("xid79", after_s=3.0),))
SPEED = 2.0
ANSWER_AFTER_S = 0.4
LIMIT_S = 120.0

Disturb = Callable[[RunningCell, Fact], Awaitable[None]]


@pytest.fixture
def slow_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Link._on_plan

    async def late(link: Link, msg: Msg) -> None:
        await asyncio.sleep(ANSWER_AFTER_S)
        await answer(link, msg)

    monkeypatch.setattr(Link, "_on_plan", late)


def recover(
    state: Path, monkeypatch: pytest.MonkeyPatch, disturb: Disturb, *, copies: int = 1
) -> tuple[Outcome, list[Done]]:
    """Run the scenario of a GPU off the bus; `disturb` is told of every claim as it is stored."""
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(state))
    options = Options(
        cluster=CLUSTER,
        scenario=EARLY,
        speed=SPEED,
        copies=copies,
        cell="faults",
    )

    async def scenario() -> Outcome:
        async with running_cell(options, lambda lines: None, lambda standing: None) as cell:
            disturbing = asyncio.create_task(_disturb_each_claim(cell, disturb))
            async with asyncio.timeout(LIMIT_S):
                while not _goes_on(cell):  # noqa: ASYNC110 - however long that takes here
                    await asyncio.sleep(0.02)
                await cell.watcher.until_over(cell.stage.simulation, EARLY)
            disturbing.cancel()
            with suppress(asyncio.CancelledError):
                await disturbing
            return await judge(options, cell, 0.0)

    outcome = asyncio.run(scenario())
    agents = state / "faults" / "agents"
    return outcome, [d for node in CLUSTER.node_names for d in read_journal(agents / node)]


def _goes_on(cell: RunningCell) -> bool:
    """Whether the job trains in a new epoch and the log says that it does."""
    facts = [fact.data for fact in cell.watcher.facts]
    told = any(isinstance(data, AttemptCompleted) and data.epoch > 0 for data in facts)
    return told and cell.stage.simulation.job.history[-1].epoch > 0


async def _disturb_each_claim(cell: RunningCell, disturb: Disturb) -> None:
    seen = 0
    while True:
        facts = cell.watcher.facts[seen:]
        seen += len(facts)
        for fact in facts:
            if isinstance(fact.data, AttemptStarted):
                await disturb(cell, fact)
        await asyncio.sleep(0.005)


def data(outcome: Outcome, kind: type) -> list[Any]:
    return [fact.data for fact in outcome.facts if isinstance(fact.data, kind)]


def check_one_recovery(outcome: Outcome, journal: list[Done]) -> None:
    """The job shrank once, and the log says so once."""
    assert outcome.score.passed, outcome.score
    assert outcome.score.world == 111
    assert (outcome.score.steps_redone_count, outcome.score.restarts_count) == (0, 0)
    by_epoch = {each.epoch: each for each in data(outcome, RecoveryDecided) if each.members}
    entered = Counter((each.epoch, each.rank) for each in journal if each.doing == "join")
    assert set(entered.values()) == {1}
    for epoch, decided in by_epoch.items():
        ranks = {rank for at, rank in entered if at == epoch}
        assert ranks in (set(), set(parse_ranks(decided.members)))
    fenced = [each.rank for each in journal if each.doing == "fence"]
    assert len(fenced) == len(set(fenced)) == 1
    held = Counter(each.rank for each in journal if each.doing == "hold")
    assert set(held.values()) <= {1}
    completed = Counter(each.decision for each in data(outcome, AttemptCompleted))
    assert set(completed.values()) == {1}
    claims = Counter((each.decision, each.attempt) for each in data(outcome, AttemptStarted))
    assert set(claims.values()) == {1}
    assert data(outcome, QuiesceDecided)


def actor_pids(cell: RunningCell) -> list[int]:
    names = [name for name in cell.supervisor.restart_counts if name.startswith("job-actor")]
    return [pid for name in names if (pid := cell.supervisor.pid(name)) is not None]


@pytest.mark.usefixtures("slow_agents")
def test_two_copies_of_everything_recover_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(cell: RunningCell, claim: Fact) -> None:
        return

    check_one_recovery(*recover(tmp_path, monkeypatch, nothing, copies=2))


@pytest.mark.usefixtures("slow_agents")
@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_an_actor_killed_between_claim_and_effect_has_its_effect_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    killed: list[int] = []

    async def kill_the_actor(cell: RunningCell, claim: Fact) -> None:
        await asyncio.sleep(after_s)
        for pid in actor_pids(cell) if len(killed) < 2 else ():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    outcome, journal = recover(tmp_path, monkeypatch, kill_the_actor)
    check_one_recovery(outcome, journal)
    assert len(killed) == 2
    assert outcome.part_restart_counts["job-actor-1"] == 2


@pytest.mark.usefixtures("slow_agents")
def test_of_two_actors_the_one_that_claimed_is_killed_and_the_effect_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []

    async def kill_the_claimer(cell: RunningCell, claim: Fact) -> None:
        pid = cell.supervisor.pid(claim.data.actor)
        if pid is not None and not killed:
            os.kill(pid, signal.SIGKILL)
            killed.append(claim.data.actor)

    check_one_recovery(*recover(tmp_path, monkeypatch, kill_the_claimer, copies=2))
    assert len(killed) == 1


@pytest.mark.usefixtures("slow_agents")
@pytest.mark.parametrize("away_s", [0.1, 1.5])
def test_a_server_killed_during_the_shrink_comes_back_to_one_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    kills: list[str] = []

    async def kill_the_server(cell: RunningCell, claim: Fact) -> None:
        kills.append(claim.data.decision)
        await cell.server.kill()
        await asyncio.sleep(away_s)
        await cell.server.restart()

    check_one_recovery(*recover(tmp_path, monkeypatch, kill_the_server))
    assert len(kills) >= 2


@pytest.mark.usefixtures("slow_agents")
def test_processors_killed_during_the_shrink_decide_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    async def kill_the_processors(cell: RunningCell, claim: Fact) -> None:
        pid = cell.supervisor.pid("processors-1")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    check_one_recovery(*recover(tmp_path, monkeypatch, kill_the_processors))
    assert killed
