"""A cell of its own with one agent and real ranks: empty at each start, gone at the end."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.job import boot_id, torch_python
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.running import Wire, attended
from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.facts import encode_observation
from nemesis.schemas.operated import JobEnded, JobSubmitted, Operation, PolicyApplied
from nemesis.schemas.policy import Policy
from nemesis.sim.operator import publish
from nemesis.streams import crew, ticker
from nemesis.streams.connection import login_of
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.serving import activate
from nemesis.streams.supervisor import Supervisor

CELL: Final = "demo-train"
JOB: Final = "demo"
NODE: Final = "here"
BY: Final = "demo"
REASON: Final = "a demo: four processes that nobody needs"
POLICY: Final = Policy(
    mode="act",
    playbooks={name: ("shrink", "restart_job") for name in ("unknown", "app.program", "app.stall")},
)
LIMITS: Final = Limits(log_bytes=2**30, store_bytes=2**26)
READY_S: Final = 60.0
APART: Final = frozenset({"ecc_model"})
"""It foresees failures of GPUs, of which there are none here."""


class TrainCell(msgspec.Struct, kw_only=True):
    """What runs."""

    server: Server
    log: Log
    agent: Agent


@asynccontextmanager
async def train_cell(
    folder: Path, ranks_count: int, command: tuple[str, ...], environment: dict[str, str]
) -> AsyncIterator[TrainCell]:
    """Everything up and the ranks on their way; at the end nothing of it is left.

    Raises:
        ServerRunningError: another demo runs.
        NotReadyError: a part did not come up.
        NoStoreError: there is no torch.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server = await enter(Server(CELL, roles=[f"node/{NODE}"], limits=LIMITS, empty=True))
        reader = await enter(await server.connect("reader"))
        names = sorted(set(CATALOGUE) - APART)
        await _begin(server)
        await enter(Supervisor(crew.commands(server, names, cell=CELL, copies=1, archivist=False)))
        await crew.until_started(reader, names, from_seq=1, timeout_s=READY_S)
        await enter(crew.clockwork(server, time.time_ns, lambda alarm: None))
        await _operate(server, _submitted(ranks_count))
        launch = Launch(
            node=NODE,
            job=JOB,
            ranks=tuple(range(ranks_count)),
            world=ranks_count,
            command=command,
            environment=environment,
        )
        agent = Agent(launch, folder / "agent", boot_id=boot_id(), python=torch_python())
        stack.callback(agent.end)
        wire = Wire(server.url, login_of(server.credentials_folder, f"node/{NODE}"))
        await enter(attended(agent, wire, folder / "agent"))
        async with asyncio.timeout(READY_S):
            while not agent.ranks:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield TrainCell(server=server, log=reader, agent=agent)


async def end_job(server: Server) -> None:
    """Its ranks have ended, and nobody is to start them anew."""
    data = JobEnded(at_ns=time.time_ns(), by=BY, reason="it has come to its end", job=JOB)
    await _operate(server, (data, JOB))


async def _begin(server: Server) -> None:
    now_ns = time.time_ns()
    async with await server.connect("ticker") as log:
        await log.publish(ticker.TICK_SUBJECT, encode_observation(ticker.tick_of(now_ns)))
    async with await server.connect("operator") as log:
        await activate(log)
    policy = msgspec.Raw(msgspec.json.encode(POLICY))
    applied = PolicyApplied(at_ns=now_ns, by=BY, reason=REASON, policy=policy)
    await _operate(server, (applied, "policy"))


def _submitted(ranks_count: int) -> tuple[Operation, str]:
    job = JobSubmitted(
        at_ns=time.time_ns(),
        by=BY,
        reason=REASON,
        job=JOB,
        nodes=(NODE,),
        ranks_per_node=ranks_count,
        world_min=1,
    )
    return job, JOB


async def _operate(server: Server, act: tuple[Operation, str]) -> None:
    async with await server.connect("operator") as log:
        await publish(log, [act], act[0].at_ns)
