"""A real cell with real ranks: server, processors, job actor, an agent a node and its ranks."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.actors.node_link import Link
from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.facts import Fact, Record, encode_conclusion, encode_observation
from nemesis.schemas.inferred import FailurePredicted
from nemesis.schemas.operated import JobSubmitted, Operation, PolicyApplied, ProcessorActivated
from nemesis.schemas.policy import Policy
from nemesis.sim.events import fact_of
from nemesis.sim.operator import publish
from nemesis.streams import crew, ticker
from nemesis.streams.connection import login_of
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.side_by_side import background
from nemesis.streams.supervisor import Supervisor

JOB: Final = "llama"
POLICY: Final = Policy(
    mode="act",
    playbooks={name: ("shrink", "restart_job") for name in ("unknown", "app.program", "app.stall")},
)
LIMITS: Final = Limits(log_bytes=2**30, store_bytes=2**26)
READY_S: Final = 60.0
WHY: Final = "a test"


def torch_python() -> str:
    """An interpreter that may have torch: named in NEMESIS_TORCH_PYTHON, else this one."""
    return os.environ.get("NEMESIS_TORCH_PYTHON", sys.executable)


@cache
def has_torch() -> bool:
    """Whether that interpreter has it."""
    command = [torch_python(), "-c", "import torch"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class TrainingCell(msgspec.Struct, kw_only=True):
    """What runs."""

    server: Server
    log: Log
    agents: list[Agent]
    folder: Path
    lives: list[AsyncExitStack]
    """Of each agent with its link."""

    async def events(self) -> list[Fact]:
        """Every fact of the log but telemetry, oldest first."""
        found = [fact_of(record, 0) for record in await records_of(self.log)]
        return [fact for fact in found if fact is not None]

    async def until_over(self, timeout_s: float) -> None:
        """Wait until every rank has ended."""
        async with asyncio.timeout(timeout_s):
            while any(each.is_busy for each in self.agents):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def lose_node(self, at: int) -> None:
        """An agent, its ranks and its store are gone at one moment."""
        await self.lives[at].aclose()

    async def foresee(self, rank: int) -> None:
        """A rank's GPU is likely to fail: it says so itself, `ecc_rules` does not run here."""
        place = divmod(rank, len(self.agents[0].ranks))
        node = self.agents[place[0]].node
        predicted = FailurePredicted(
            at_ns=time.time_ns(),
            reason="a test",
            component=f"gpu/{node}/0000:1{place[1]}:00.0",
            fault_class="gpu.memory",
            band="act",
            jobs=(JOB,),
            ranks=(rank,),
            incident=f"i-of-rank-{rank}",
        )
        subject, payload = encode_conclusion(
            id=f"test/{rank}", source="/test", at_ns=predicted.at_ns, data=predicted, key=node
        )
        async with await self.server.connect("processor/ecc_rules") as log:
            await log.publish(subject, payload)

    def told(self, rank: int) -> list[str]:
        """What the loop of a rank wrote, a line a step."""
        path = self.folder / f"rank_{rank}.txt"
        return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def control_plane(
    folder: Path, names: list[str], *, without: Sequence[str] = ()
) -> AsyncIterator[tuple[Server, Log]]:
    """A server, all processors and a job actor, for nodes of these names; (server, a reader)."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        roles = [f"node/{name}" for name in names]
        server = await enter(
            Server("train", folder=folder / "cell", roles=roles, limits=LIMITS, empty=True)
        )
        reader = await enter(await server.connect("reader"))
        await _set_up(server)
        processors = sorted(set(CATALOGUE) - set(without))
        await enter(
            Supervisor(
                crew.commands(
                    server,
                    processors,
                    cell=server.cell,
                    copies=1,
                    job_actor="job_actor" not in without,
                    archivist=False,
                )
            )
        )
        await crew.until_started(reader, processors, from_seq=1, timeout_s=READY_S)
        await enter(crew.clockwork(server, time.time_ns, lambda alarm: None))
        yield server, reader


@asynccontextmanager
async def node(server: Server, launch: Launch, folder: Path, python: str) -> AsyncIterator[Agent]:
    """An agent with its ranks and its way to the log; at the end nothing of them is left."""
    agent = Agent(launch, folder, boot_id=f"boot-of-{launch.node}", python=python)
    link = Link(
        lambda: agent,
        url=server.url,
        login=login_of(server.credentials_folder, f"node/{launch.node}"),
        spool_path=folder / "spool",
        now_ns=time.time_ns,
    )
    agent.on_news = link.wake
    agent.is_connected = lambda: link.connected
    try:
        async with background(agent.run(), link.run()):
            async with asyncio.timeout(READY_S):
                while not agent.store:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            yield agent
    finally:
        agent.end()


@asynccontextmanager
async def training_cell(
    folder: Path,
    python: str,
    *,
    nodes: int = 1,
    ranks_per_node: int = 4,
    environment: dict[str, str],
    without: Sequence[str] = (),
    comes_back: bool = False,
    command: tuple[str, ...] = (),
) -> AsyncIterator[TrainingCell]:
    """Everything up and the ranks on their way; at the end nothing of it is left."""
    names = [f"n{at:03d}" for at in range(nodes)]
    async with AsyncExitStack() as stack:
        server, reader = await stack.enter_async_context(
            control_plane(folder, names, without=without)
        )
        await operate(server, [(submission(JOB, names, ranks_per_node), JOB)])
        agents: list[Agent] = []
        lives: list[AsyncExitStack] = []
        for at, name in enumerate(names):
            launch = Launch(
                node=name,
                job=JOB,
                ranks=tuple(range(at * ranks_per_node, (at + 1) * ranks_per_node)),
                world=nodes * ranks_per_node,
                command=command or (python, "-m", "tests.training.loop"),
                environment={
                    "OUT": str(folder),
                    "PYTHONPATH": os.pathsep.join(["src", "."]),
                    **environment,
                },
                comes_back=comes_back,
                store=agents[0].store if agents else "",
            )
            life = await stack.enter_async_context(AsyncExitStack())
            lives.append(life)
            agents.append(
                await life.enter_async_context(node(server, launch, folder / name, python))
            )
        yield TrainingCell(server=server, log=reader, agents=agents, folder=folder, lives=lives)


async def records_of(log: Log) -> list[Record]:
    """The whole log."""
    last = (await log.bounds()).last_seq
    return [record async for record in log.read_range(1, last)]


def submission(job: str, names: list[str], ranks_per_node: int) -> JobSubmitted:
    """A data-parallel job on these nodes."""
    return JobSubmitted(
        at_ns=time.time_ns(),
        by=WHY,
        reason=WHY,
        job=job,
        nodes=tuple(names),
        ranks_per_node=ranks_per_node,
        world_min=1,
    )


async def operate(server: Server, acts: list[tuple[Operation, str]]) -> None:
    """Write what a person does: each act and its key."""
    async with await server.connect("operator") as log:
        await publish(log, acts, time.time_ns())


async def _set_up(server: Server) -> None:
    now_ns = time.time_ns()
    async with await server.connect("ticker") as log:
        await log.publish(ticker.TICK_SUBJECT, encode_observation(ticker.tick_of(now_ns)))
    policy = msgspec.Raw(msgspec.json.encode(POLICY))
    acts: list[tuple[Operation, str]] = [
        (PolicyApplied(at_ns=now_ns, by=WHY, reason=WHY, policy=policy), "policy")
    ]
    for name, versions in sorted(CATALOGUE.items()):
        version = max(versions)
        acts.append(
            (ProcessorActivated(at_ns=now_ns, by=WHY, reason=WHY, name=name, version=version), name)
        )
    await operate(server, acts)
