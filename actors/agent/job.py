"""A job from a command line: its nodes meet, the log is told, an agent runs this node's part."""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.agent import Agent, AgentRunningError
from nemesis.actors.agent.arguments import Asked
from nemesis.actors.agent.attached import prepare
from nemesis.actors.agent.echo import echo
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.leftovers import end_leftovers, forget_earlier, noted_folder
from nemesis.actors.agent.rendezvous import Met, meet
from nemesis.actors.agent.running import (
    ALONE_PATIENCE_S,
    Wire,
    ask_to_end,
    attended,
    until_over,
)
from nemesis.actors.agent.store import open_store
from nemesis.actors.agent.submission import (
    REASON,
    described,
    end,
    ended,
    life_of,
    submit,
    who,
)
from nemesis.actors.agent.watch import PERIOD_NS
from nemesis.producers.origin import Origin
from nemesis.producers.sample import sample_of
from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.tokens import token_of
from nemesis.streams.alone import alone
from nemesis.streams.contexts import Target
from nemesis.streams.errors import LogUnavailableError, UndeliverableError
from nemesis.streams.log import Log
from nemesis.streams.side_by_side import background

Say = Callable[[str], None]
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """What is to be run, and as what."""

    asked: Asked
    name: str
    """In the log; "": made of the script and the time, so that each run is a job of its own."""
    node: str
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    is_submitted: bool
    comes_back: bool
    """A rank that was left out is started anew beside the job."""
    patience_s: float
    agents_folder: Path
    """Who holds a node's lock in it is the agent of that node."""


async def run_job(job: Job, target: Target | None, say: Say) -> bool:
    """Run this node's part to its end; whether it went well. `target` None: alone.

    Raises:
        AgentRunningError: this node has an agent.
        NodesMissingError: the nodes did not meet.
        NoStoreError: the interpreter of the ranks has no torch.
        WrongCredentialsError, LogUnavailableError: NEMESIS cannot be spoken to.
    """
    with seat(job.agents_folder, job.node) as own:
        end_leftovers(own, say)
        for restart_count in count():
            with noted_folder(own) as folder:
                if await _Run(job, target, folder, say).run(restart_count):
                    return True
            if target is not None or restart_count >= job.asked.restarts_max:
                return False
            say(f"the job is started again, {restart_count + 1} of {job.asked.restarts_max}")
    raise AssertionError


@contextmanager
def seat(agents_folder: Path, node: str) -> Iterator[Path]:
    """Held by the one agent of a node on this machine; its folder.

    Raises:
        AgentRunningError: there is one.
    """
    own = agents_folder / token_of(node)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    running = AgentRunningError(f"an agent of {node} runs already", hint="one agent a node")
    with alone(own / "seat.lock", running):
        yield own


@asynccontextmanager
async def signs_of_life(target: Target, node: str) -> AsyncIterator[Wire]:
    """How the agent of a node speaks to NEMESIS; until it does, this says that the node is there.

    Else a node whose last agent has ended would be silent, and lost, as soon as a job is submitted.

    Raises:
        WrongCredentialsError: refused, or no seed for this node.
        LogUnavailableError: nobody answers.
    """
    role = f"node/{node}"
    origin = Origin(node, start_ns=time.time_ns(), boot_id=boot_id())

    async def say_so(log: Log) -> None:
        sample = sample_of(origin, time.time_ns(), period_ns=PERIOD_NS)
        await log.publish(telemetry_subject(node, "sample"), encode_observation(sample))

    async def go_on(log: Log) -> None:
        while True:
            await asyncio.sleep(PERIOD_NS / 1e9)
            with suppress(LogUnavailableError):
                await say_so(log)

    async with await target.connect(role) as log:
        await say_so(log)
        async with background(go_on(log)):
            yield Wire(target.url, target.login(role))


async def asked_of_log(target: Target, node: str, job: str, say: Say) -> int:
    """The life that a job is in, as `life_of`; 0 where it has not begun, or nobody answers.

    An agent waits for a job that nobody submitted, perhaps for ever, so this is said.
    """
    async with await target.connect(f"node/{node}") as log:
        with suppress(LogUnavailableError, UndeliverableError):
            life = await life_of(log, job)
            if life is None:
                say(f"the log knows of no job {job}: waiting for `nemesis job submit {job}`")
            return life or 0
    return 0


def boot_id() -> str:
    """Of this machine, another after each boot."""
    return _BOOT_ID.read_text().strip()


def torch_python() -> str:
    """The interpreter of the ranks, as torchrun chooses it."""
    return os.environ.get("PYTHON_EXEC", sys.executable)


async def serve_ranks(
    asked: Asked,
    target: Target,
    say: Say,
    *,
    job: str,
    node: str,
    agents_folder: Path,
    starts: bool,
) -> None:
    """Serve the ranks of a node until cancelled; they run on. `starts`: or wait for them to come.

    Raises: as `run_job`, and
        LongPathError: no socket can lie in the agents' folder.
    """
    with seat(agents_folder, node) as own:
        end_leftovers(own, say)
        folder = own / token_of(job)
        folder.mkdir(mode=0o700, exist_ok=True)

        async def open_here(host: str) -> str:
            store = await open_store(
                folder, host=host, python=torch_python(), environment=os.environ
            )
            return store.address

        async with signs_of_life(target, node) as wire:
            forget_earlier(folder, await asked_of_log(target, node, job, say), say)
            met, host = await meet(asked, node, job, open_here)
        launch = launch_of(asked, met, node, host)
        if not starts:
            launch = msgspec.structs.replace(launch, command=())
        path = prepare(folder, launch)
        agent = Agent(launch, folder, boot_id=boot_id(), python=torch_python())
        async with attended(agent, wire, folder):
            say(f"{met.job}: serving {node}; ranks find it by NEMESIS_AGENT={path}")
            await asyncio.Event().wait()


class _Run:
    """One start of the job's part on this node."""

    def __init__(self, job: Job, target: Target | None, folder: Path, say: Say) -> None:
        self._job: Final = job
        self._target: Final = target
        self._folder: Final = folder
        self._say: Final = say

    async def run(self, restart_count: int) -> bool:
        """Meet, begin, wait."""
        job, asked = self._job, self._job.asked
        async with AsyncExitStack() as stack:

            async def open_here(host: str) -> str:
                store = await open_store(
                    self._folder, host=host, python=torch_python(), environment=os.environ
                )
                stack.callback(store.end)
                return store.address

            name = job.name or name_of_run(asked.title)
            wire: Wire | None = None
            async with AsyncExitStack() as meeting:
                if self._target is not None:
                    life = signs_of_life(self._target, job.node)
                    wire = await meeting.enter_async_context(life)
                met, host = await meet(asked, job.node, name, open_here)
                if met.nodes[0] == job.node:
                    await self._begin(met)
            launch = msgspec.structs.replace(
                launch_of(asked, met, job.node, host),
                restart_count=restart_count,
                comes_back=job.comes_back,
            )
            agent = Agent(launch, self._folder, boot_id=boot_id(), python=torch_python())
            stack.callback(agent.end)
            return await self._wait(agent, wire)

    async def _begin(self, met: Met) -> None:
        """The first node tells the log of the job, before any agent asks what is to be done."""
        job, asked = self._job, self._job.asked
        if self._target is not None and not job.is_submitted:
            async with await self._target.connect("operator") as log:
                submitted = described(
                    at_ns=time.time_ns(),
                    by=who(),
                    reason=REASON,
                    job=met.job,
                    nodes=met.nodes,
                    ranks_per_node=asked.ranks_per_node,
                    tp=job.tp,
                    pp=job.pp,
                    cp=job.cp,
                    ep=job.ep,
                    world_min=asked.world_min,
                )
                await submit(log, submitted)
        self._say(f"{met.job}: {asked.world} ranks on {', '.join(met.nodes)}")

    async def _wait(self, agent: Agent, wire: Wire | None) -> bool:
        patience_s = self._job.patience_s if wire is not None else ALONE_PATIENCE_S
        logs = Path(self._job.asked.log_folder or self._folder)
        async with attended(agent, wire, self._folder), echo(logs):
            try:
                went_well = await until_over(agent, patience_s, self._say)
            except asyncio.CancelledError:
                await self._end(agent, "it was told to end")
                await ask_to_end(agent)
                raise
            await self._end(agent, "its ranks have ended" if went_well else "it was given up")
            return went_well

    async def _end(self, agent: Agent, reason: str) -> None:
        """Whose node has the first of the members tells the log; who has none waits for it."""
        name, target = agent.job, self._target
        if target is None or self._job.is_submitted:
            return
        async with await target.connect("operator") as log:
            here = set(agent.members) & set(agent.ranks)
            if agent.members[0] in here:
                await end(log, name, by=who(), reason=reason)
            elif not here:
                self._say(f"nothing of {name} runs here any more; waiting for its end")
                await ended(log, name)


def launch_of(asked: Asked, met: Met, node: str, host: str) -> Launch:
    """This node's part of a job whose nodes have met; `host`: its own address."""
    at = met.nodes.index(node)
    logs = Path(asked.log_folder).absolute() if asked.log_folder else None
    return Launch(
        node=node,
        job=met.job,
        ranks=tuple(range(at * asked.ranks_per_node, (at + 1) * asked.ranks_per_node)),
        world=asked.world,
        command=asked.command,
        host=host,
        store=met.store,
        node_at=at,
        nodes_count=asked.nodes_count,
        run_id=asked.run_id,
        role=asked.role,
        restarts_max=asked.restarts_max,
        logs=logs,
    )


def name_of_run(title: str) -> str:
    """Each run is a job of its own: `train-1130-205512`, in UTC, and nothing like an option."""
    named = re.sub(r"\A[\W_]+", "", title) or "job"
    return f"{named}-{time.strftime('%m%d-%H%M%S', time.gmtime())}"
