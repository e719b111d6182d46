"""Lose the log while a GPU dies: agents do what was said before, once, and NEMESIS learns of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from nemesis.processors.fold import LATE_NS
from nemesis.schemas.done import AttemptCompleted, MembershipReported
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.agent import Done, read_journal
from nemesis.sim.cell import Options, RunningCell, running_cell
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.run import Outcome, judge
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import MembershipFormed
from tests.planned import planned

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
SECOND = 1_000_000_000
LIMIT_S = 120.0


def cluster(on_log_loss: Literal["wait", "shrink"]) -> Cluster:
    built_in = load_cluster()
    job = msgspec.structs.replace(built_in.job, on_log_loss=on_log_loss, grace_s=6.0)
    return msgspec.structs.replace(built_in, jobs=(job,))


def lose_the_log(
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_log_loss: Literal["wait", "shrink"],
    *,
    away_ns: int = 0,
) -> tuple[Outcome, list[Done]]:
    """The server is away from before the fault until the agents did what they may do alone.

    `away_ns`: and for so long after that, in simulated time.
    """
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(state))
    options = Options(
        cluster=cluster(on_log_loss),
        scenario=Scenario(name="alone", title="alone", faults=()),
        speed=3.0,
        cell="faults",
    )

    async def scenario() -> Outcome:
        async with running_cell(options, lambda lines: None, lambda standing: None) as cell:
            async with asyncio.timeout(LIMIT_S):
                await until(lambda: has_begun(options, cell))
                await cell.server.kill()
                await until(lambda: cell.stage.connected_count == 0)
                cell.stage.simulation.inject(gpu_off_the_bus(options, cell))
                await until(lambda: have_acted(cell, on_log_loss))
                back_ns = cell.clock.now_ns() + away_ns
                await until(lambda: cell.clock.now_ns() >= back_ns)
                await cell.server.restart()
                await until(lambda: is_over(cell, on_log_loss))
                await asyncio.sleep(cell.clock.wall_s(15 * SECOND))  # whatever else may come
            return await judge(options, cell, 0.0)

    outcome = asyncio.run(scenario())
    agents = state / "faults" / "agents"
    nodes = options.cluster.node_names
    return outcome, [done for node in nodes for done in read_journal(agents / node)]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the world has no event for each condition
        await asyncio.sleep(0.02)


def have_acted(cell: RunningCell, on_log_loss: str) -> bool:
    """Whether the agents did all that they may do alone."""
    simulation = cell.stage.simulation
    if on_log_loss == "shrink":
        return simulation.job.step > 0 and simulation.job.history[-1].epoch == 1
    stages = Counter(rank.stage for rank in simulation.job.ranks.values())
    return stages == {"held": 111, "fenced": 1}


def has_begun(options: Options, cell: RunningCell) -> bool:
    """Whether the job trains and every agent reaches the log."""
    connected = cell.stage.connected_count == len(options.cluster.node_names)
    return connected and cell.stage.simulation.job.step > 0


def gpu_off_the_bus(options: Options, cell: RunningCell) -> Fault:
    """A fault that happens now."""
    after_s = (cell.clock.now_ns() - cell.clock.start_ns) / SECOND
    return plan_faults(options.cluster, [planned("xid79", after_s=after_s)], options.seed)[0]


def is_over(cell: RunningCell, on_log_loss: str) -> bool:
    """Whether NEMESIS has concluded on the fault and knows that the job goes on."""
    known = MembershipReported if on_log_loss == "shrink" else AttemptCompleted
    seen = [fact.data for fact in cell.watcher.facts]
    concluded = any(isinstance(data, FaultAttributed) for data in seen)
    goes_on = any(isinstance(data, known) and data.epoch > 0 for data in seen)
    return concluded and goes_on and cell.stage.simulation.job.history[-1].epoch > 0


def story(outcome: Outcome) -> str:
    """What the log says of the recovery, for whoever reads a failure."""
    quiet = ("log_measured", "processor_activated", "processor_started", "policy_applied")
    return "\n".join(
        f"{(fact.at_ns - outcome.start_ns) / SECOND:.2f} {fact.kind} {fact.data}"[:400]
        for fact in outcome.facts
        if fact.kind not in quiet
    )


def test_agents_that_were_told_to_shrink_do_so_once_and_nobody_does_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, journal = lose_the_log(tmp_path, monkeypatch, "shrink")
    joined = Counter((done.epoch, done.rank) for done in journal if done.doing == "join")
    assert len(joined) == 111, story(outcome)
    assert set(joined.values()) == {1}
    assert {done.by for done in journal if done.doing == "join"} == {"agent"}
    formed = [each for each in outcome.truths if isinstance(each, MembershipFormed)]
    # the ledger tells a membership again where its steps went on after a stall
    assert list(dict.fromkeys((each.epoch, each.world) for each in formed)) == [(0, 112), (1, 111)]
    told = [f.data for f in outcome.facts if isinstance(f.data, MembershipReported)]
    assert [(each.epoch, each.world) for each in told] == [(1, 111)]
    assert outcome.score.recovered
    assert outcome.score.faults[0].wrong_blame == ()


def test_agents_that_were_told_to_wait_are_recovered_when_the_log_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # by then everything that was seen meanwhile is late
    outcome, journal = lose_the_log(tmp_path, monkeypatch, "wait", away_ns=LATE_NS)
    joined = Counter((done.epoch, done.rank) for done in journal if done.doing == "join")
    # a verdict that comes after the patience of the healer makes it plan once more
    last_epoch = max(epoch for epoch, _ in joined)
    assert sum(epoch == last_epoch for epoch, _ in joined) == 111, story(outcome)
    assert set(joined.values()) == {1}
    assert {done.by for done in journal if done.doing == "join"} == {"plan"}
    assert {done.by for done in journal if done.doing == "hold"} == {"agent"}
    assert outcome.score.world == 111
    assert outcome.score.faults[0].culprit_right
