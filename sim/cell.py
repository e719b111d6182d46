"""A simulated cell that runs: server, clock, processors, actors, and the cluster on its wire.

Everything is started here and ended here, in the opposite order, whatever happens in between. The
cell is empty at each start, and its policy acts: nothing real can be hurt.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import encode_observation
from nemesis.schemas.kept import ProcessorStarted
from nemesis.sim.clock import SimClock
from nemesis.sim.cluster import Cluster, Scenario
from nemesis.sim.faults import plan_faults
from nemesis.sim.operator import set_up, submission
from nemesis.sim.show import Show
from nemesis.sim.simulation import Simulation
from nemesis.sim.stage import Stage
from nemesis.sim.watcher import EVENTS_SUBJECT, Emit, Watcher, fact_of
from nemesis.streams import keeper, ticker
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.supervisor import Supervisor

CELL: Final = "demo"
PROCESSORS: Final = tuple(sorted(CATALOGUE))
JOB_ACTOR: Final = "job-actor"
PARTS: Final = (*PROCESSORS, JOB_ACTOR)
READY_TIMEOUT_S: Final = 30.0
LIMITS: Final = Limits(log_bytes=2 * 2**30, store_bytes=64 * 2**20)
"""The server wants this much free disk before it starts; a log grows by 2.5 MB a minute."""


class NotReadyError(NemesisError):
    """The cell did not come up."""

    exit_code = 3


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What to run."""

    cluster: Cluster
    scenario: Scenario
    seed: int = 7
    speed: float = 1.0
    copies: int = 1
    """Of the processors and of the actor."""
    without: tuple[str, ...] = ()
    """Parts that are not started, of PARTS."""
    duration_s: float = 0.0
    """Simulated seconds after which to stop; 0: when the job goes on, or will not."""
    follow: bool = False
    """After the score, go on until interrupted."""
    cell: str = CELL


class RunningCell(msgspec.Struct, kw_only=True, frozen=True):
    """What a cell consists of while it runs."""

    server: Server
    supervisor: Supervisor
    clock: SimClock
    stage: Stage
    watcher: Watcher
    show: Show
    ledger: Log
    ready_s: float
    """Real seconds until everything had started."""


@asynccontextmanager
async def running_cell(
    options: Options, emit: Emit, on_look: Callable[[str], None]
) -> AsyncIterator[RunningCell]:
    """A cell whose cluster has begun to train.

    Raises:
        ServerRunningError: another run has the cell.
        NotReadyError: a part did not come up.
        NemesisError: a server or a log that cannot work; the message says why.
    """
    began_s = time.monotonic()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server = await enter(_server(options))
        reader = await enter(await server.connect("reader"))
        ledger = await enter(await server.connect("sim"))
        await _set_up(options, server)
        supervisor = await enter(Supervisor(_commands(options, server)))
        await _ready(reader, {name for name in PROCESSORS if name not in options.without})
        ready_s = time.monotonic() - began_s
        clock = SimClock(speed=options.speed)
        await enter(_clockwork(server, clock))
        show = Show(options.cluster, clock.start_ns)
        watcher = Watcher(show, clock, emit, on_look)
        stage = _stage(options, clock, server, ledger, watcher)
        await enter(_background(stage.run(), watcher.follow(reader)))
        yield RunningCell(
            server=server,
            supervisor=supervisor,
            clock=clock,
            stage=stage,
            watcher=watcher,
            show=show,
            ledger=ledger,
            ready_s=ready_s,
        )


def _server(options: Options) -> Server:
    """A server on an empty store."""
    roles = [f"node/{node}" for node in options.cluster.node_names]
    return Server(options.cell, roles=roles, limits=LIMITS, empty=True)


async def _set_up(options: Options, server: Server) -> None:
    now_ns = SimClock().start_ns
    async with await server.connect("ticker") as log:
        tick = ticker.tick_of(now_ns)
        await log.publish(ticker.TICK_SUBJECT, encode_observation(tick))
    async with await server.connect("operator") as log:
        await set_up(log, options.cluster, CATALOGUE, now_ns)


def _commands(options: Options, server: Server) -> dict[str, list[str]]:
    """Processors share a process, the actor has one of its own; both as an operator starts them."""
    program = [sys.executable, "-m", "nemesis.cli"]
    target = ["--server", server.url, "--credentials", str(server.credentials_folder)]
    names = [name for name in PROCESSORS if name not in options.without]
    commands: dict[str, list[str]] = {}
    for copy in range(1, options.copies + 1):
        if names:
            run = [*program, "run", "--once", "--cell", server.cell, *target, *names]
            commands[f"processors-{copy}"] = run
        if JOB_ACTOR not in options.without:
            name = f"{JOB_ACTOR}-{copy}"
            commands[name] = [*program, "act", "job", "--name", name, *target]
    return commands


async def _ready(log: Log, names: set[str]) -> None:
    """Wait until every processor has taken up work."""
    if not names:
        return
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            async for record in log.follow(1, subject=EVENTS_SUBJECT):
                fact = fact_of(record, record.stored_ns)
                if fact is not None and isinstance(fact.data, ProcessorStarted):
                    names.discard(fact.data.name)
                    if not names:
                        return
    except TimeoutError:
        raise NotReadyError(
            f"{', '.join(sorted(names))} did not start within {READY_TIMEOUT_S:g} s",
            hint="their last words are above",
        ) from None


@asynccontextmanager
async def _clockwork(server: Server, clock: SimClock) -> AsyncIterator[None]:
    """The ticker and the keeper of the cell, by simulated time."""
    async with (
        await server.connect("ticker") as ticking,
        await server.connect("keeper") as keeping,
        _background(
            ticker.run(ticking, clock.now_ns, speed=clock.speed),
            keeper.run(keeping, clock.now_ns, lambda alarm: None),
        ),
    ):
        yield


@asynccontextmanager
async def _background(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs beside the body and ends with it; what fails there fails the body."""
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(each) for each in work]
            try:
                yield
            finally:
                for task in started:
                    task.cancel()
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def _stage(
    options: Options, clock: SimClock, server: Server, ledger: Log, watcher: Watcher
) -> Stage:
    cluster = options.cluster
    simulation = Simulation(
        cluster,
        submission(cluster, clock.start_ns),
        plan_faults(cluster, options.scenario.faults, options.seed),
        seed=options.seed,
        folder=server.folder / "agents",
        start_ns=clock.start_ns,
    )
    return Stage(
        simulation,
        clock,
        url=server.url,
        credentials_folder=server.credentials_folder,
        ledger=ledger.connection,
        on_truth=watcher.on_truth,
        on_behind=watcher.on_behind,
    )
