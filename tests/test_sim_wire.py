"""Promises of the simulator on the wire: node credentials, nothing lost while the log is away."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from nemesis.schemas.facts import Record, decode_observation, split_subject
from nemesis.schemas.observed import Observation
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import (
    ALL_HELLOS,
    ALL_REPORTS,
    Plan,
    PlanAnswer,
    Plans,
    Report,
    decode_message,
    encode_message,
    plan_subject,
)
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.agent import read_journal
from nemesis.sim.clock import SimClock
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.simulation import Simulation
from nemesis.sim.stage import Stage, read_ledger, wire_roles
from nemesis.sim.telemetry.load import publish_load, samples
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed, Truth
from nemesis.streams.server import Server
from tests.planned import planned

pytestmark = pytest.mark.server
CLUSTER = load_cluster()
NODE, RANK = "n006", 44
WAIT_S = 30.0
SPEAKERS = {*CLUSTER.node_names, *CLUSTER.leaves}


class Cell:
    """A server, a simulation on the wire, and a test that plays the job actor."""

    def __init__(
        self,
        *,
        server: Server,
        clock: SimClock,
        stage: Stage,
        folder: Path,
        truths: list[Truth],
        behind: list[int],
    ) -> None:
        self.server = server
        self.clock = clock
        self.stage = stage
        self.folder = folder
        self.truths = truths
        self.behind = behind

    def break_gpu(self, kind: str) -> None:
        """A fault of `RANK` and its GPU that happens now."""
        after_s = (self.clock.now_ns() - self.clock.start_ns) / 1e9
        plan = planned(kind, after_s=after_s, node=NODE, gpu=4)
        self.stage.simulation.inject(*plan_faults(CLUSTER, [plan], 7))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - the world has no event for each condition
                await asyncio.sleep(0.02)

    async def records(self) -> list[Record]:
        async with await self.server.connect("reader") as log:
            return [record async for record in log.read_range(1, 2**62)]

    async def observations(self) -> list[Observation]:
        parts = [(split_subject(r.subject), r) for r in await self.records()]
        return [decode_observation(token, r.payload) for (_, token, _), r in parts]


@asynccontextmanager
async def cell(folder: Path, *, speed: float = 10.0) -> AsyncIterator[Cell]:
    async with Server("test", folder=folder / "cell", roles=wire_roles(CLUSTER)) as server:
        clock = SimClock(speed=speed)
        submitted = JobSubmitted(
            at_ns=0, by="t", reason="t", job="llama", nodes=CLUSTER.job_nodes, world_min=64
        )
        simulation = Simulation(
            CLUSTER,
            (),
            seed=7,
            folder=folder / "agents",
            start_ns=clock.start_ns,
            submitted=[submitted],
        )
        truths: list[Truth] = []
        behind: list[int] = []
        async with await server.connect("sim") as ledger:
            stage = Stage(
                simulation,
                clock,
                url=server.url,
                credentials_folder=server.credentials_folder,
                ledger=ledger.connection,
                on_truth=truths.append,
                on_behind=lambda: behind.append(clock.now_ns()),
            )
            running = asyncio.create_task(stage.run())
            try:
                yield Cell(
                    server=server,
                    clock=clock,
                    stage=stage,
                    folder=folder,
                    truths=truths,
                    behind=behind,
                )
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


Handler = Callable[[Msg], Awaitable[None]]


def test_simulated_time_that_jumps_is_told_once(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with cell(tmp_path) as it:
            await it.until(lambda: it.stage.connected_count > 0)
            for _ in range(2):
                time.sleep(0.3)  # noqa: ASYNC251 - a machine that is busy elsewhere: 3 s simulated
                await asyncio.sleep(0.05)
            await it.until(lambda: bool(it.behind))
            return len(it.behind)

    assert asyncio.run(scenario()) == 1


def test_every_node_speaks_for_itself_and_no_number_is_missing(tmp_path: Path) -> None:
    async def scenario() -> list[Observation]:
        async with cell(tmp_path) as it:
            it.break_gpu("xid79")
            await it.until(lambda: RANK in _fenced(it))
            async with asyncio.timeout(WAIT_S):
                while True:
                    seen = await it.observations()
                    if {each.node for each in seen} == SPEAKERS:
                        return seen
                    await asyncio.sleep(0.1)

    seen = asyncio.run(scenario())
    assert {each.node for each in seen} == SPEAKERS
    for node in SPEAKERS:
        for kind in {type(each) for each in seen}:
            numbers = [each.n for each in seen if each.node == node and type(each) is kind]
            assert numbers == list(range(1, len(numbers) + 1))


def _fenced(it: Cell) -> set[int]:
    return {d.rank for d in read_journal(it.folder / "agents" / NODE) if d.doing == "fence"}


def test_plans_by_request_shrink_the_job_and_the_ledger_knows(tmp_path: Path) -> None:
    members = format_ranks(set(range(112)) - {RANK})
    hold = Plan(job="llama", epoch=0, kind="hold", fenced=str(RANK))
    shrink = Plan(job="llama", epoch=1, kind="membership", members=members, fenced=str(RANK))

    async def scenario() -> tuple[list[PlanAnswer], list[Report], list[Truth]]:
        answers: list[PlanAnswer] = []
        reports: list[Report] = []

        async def on_report(msg: Msg) -> None:
            reports.append(decode_message(Report, msg.data))

        async with cell(tmp_path) as it, await it.server.connect("actor/job") as actor:
            await actor.connection.subscribe(ALL_REPORTS, on_report)
            # who reports listens to plans
            await it.until(lambda: {each.node for each in reports} >= set(CLUSTER.job_nodes))
            await it.until(lambda: it.stage.simulation.job.step > 0)
            it.break_gpu("xid79")
            await it.until(lambda: RANK in _fenced(it))
            for plan in (hold, shrink, shrink):
                for node in CLUSTER.job_nodes:
                    answer = await actor.connection.request(
                        plan_subject(node), encode_message(plan)
                    )
                    answers.append(decode_message(PlanAnswer, answer.data))
            await it.until(
                lambda: any(isinstance(t, MembershipFormed) and t.epoch == 1 for t in it.truths)
            )
            await it.until(lambda: any(_all_running(report) for report in reports))
            async with await it.server.connect("sim") as log:
                return answers, reports, await read_ledger(log.connection)

    answers, reports, ledger = asyncio.run(scenario())
    assert [each.outcome for each in answers] == ["accepted"] * 28 + ["repeated"] * 14
    assert {report.by for report in reports} == {"agent", "plan"}
    fault, *formed = [e for e in ledger if isinstance(e, FaultInjected)] + [
        e for e in ledger if isinstance(e, MembershipFormed)
    ]
    assert isinstance(fault, FaultInjected)
    assert fault.culprit == "gpu/n006/0000:9d:00.0"
    assert [
        (e.epoch, e.world, e.redone_count) for e in formed if isinstance(e, MembershipFormed)
    ] == [
        (0, 112, 0),
        (1, 111, 0),
    ]


def _all_running(report: Report) -> bool:
    return all(state.epoch == 1 and state.stage == "running" for state in report.ranks)


def test_an_agent_asks_for_its_last_plan_until_somebody_answers(tmp_path: Path) -> None:
    hold = Plan(job="llama", epoch=0, kind="hold")

    async def scenario() -> set[str]:
        greeted: set[str] = set()

        async with cell(tmp_path) as it, await it.server.connect("actor/job") as actor:

            async def on_hello(msg: Msg) -> None:
                greeted.add(msg.subject.split(".")[2])
                await actor.connection.publish(msg.reply, encode_message(Plans(plans=(hold,))))

            await actor.connection.subscribe(ALL_HELLOS, on_hello)
            job = it.stage.simulation.job
            await it.until(lambda: {r.stage for r in job.ranks.values()} == {"held"})
            return greeted

    assert asyncio.run(scenario()) >= set(CLUSTER.job_nodes)


def test_what_happened_while_the_server_was_away_arrives_once_and_in_order(tmp_path: Path) -> None:
    async def scenario() -> list[Observation]:
        async with cell(tmp_path) as it:
            await it.until(lambda: it.stage.connected_count == len(CLUSTER.node_names))
            await it.server.kill()
            await it.until(lambda: it.stage.connected_count == 0)
            it.break_gpu("xid48")
            await it.until(lambda: RANK in _fenced(it))
            await it.server.restart()
            async with asyncio.timeout(WAIT_S):
                while True:
                    seen = await it.observations()
                    if {type(s).__name__ for s in seen} >= {"ProcessExited", "KernelLineLogged"}:
                        return seen
                    await asyncio.sleep(0.1)

    seen = asyncio.run(scenario())
    mine = [each for each in seen if each.node == NODE]
    for kind in {type(each) for each in mine}:
        numbers = [each.n for each in mine if type(each) is kind]
        fresh = [n for at, n in enumerate(numbers) if n > max(numbers[:at], default=0)]
        assert fresh == list(range(1, len(fresh) + 1))


def test_load_comes_at_its_rate_with_new_numbers(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, list[Record]]:
        async with Server("load", folder=tmp_path / "cell") as server:
            messages = samples(
                CLUSTER, nodes_count=25, period_ns=10**9, start_ns=1, now_ns=time.time_ns
            )
            async with await server.connect("sim") as log:
                measured = await publish_load(log, messages, rate_per_s=500, seconds=0.4)
            async with await server.connect("reader") as log:
                return measured.sent_count, [r async for r in log.read_range(1, 2**62)]

    sent, records = asyncio.run(scenario())
    assert sent == len(records) == 200
    ids = {
        (each.node, each.n)
        for each in (decode_observation("sample", record.payload) for record in records)
    }
    assert len(ids) == 200
