"""A whole run: a cell of its own with server, clock, processors, actor and simulated cluster.

Everything is started here and ended here, in the opposite order, whatever happens in between. What
a person should see is handed out line by line; the score is made at the end, from the ledger and
the log as they were stored.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
from rich.text import Text

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Fact, encode_observation
from nemesis.schemas.kept import ProcessorStarted
from nemesis.sim.clock import SimClock
from nemesis.sim.cluster import Cluster, Scenario
from nemesis.sim.faults import plan_faults
from nemesis.sim.ledger import FaultInjected, MembershipFormed
from nemesis.sim.operator import set_up, submission
from nemesis.sim.parts import actor_command, processors_command
from nemesis.sim.score import Score, score
from nemesis.sim.show import Show
from nemesis.sim.simulation import Simulation
from nemesis.sim.stage import Stage, read_ledger
from nemesis.sim.watcher import EVENTS_SUBJECT, Emit, Truth, Watcher, fact_of
from nemesis.streams import keeper, ticker
from nemesis.streams.errors import ServerRunningError
from nemesis.streams.log import Log
from nemesis.streams.server import Server, running, state_folder
from nemesis.streams.supervisor import Supervisor

CELL: Final = "demo"
PROCESSORS: Final = tuple(sorted(CATALOGUE))
PARTS: Final = (*PROCESSORS, "job-actor")
READY_TIMEOUT_S: Final = 30.0


class NotReadyError(NemesisError):
    """The cell did not come up."""

    exit_code = 3


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What to run."""

    cluster: Cluster
    scenario: Scenario
    seed: int = 7
    speed: float = 1.0
    without: tuple[str, ...] = ()
    """Parts that are not started, of PARTS."""
    duration_s: float = 0.0
    """Simulated seconds after which to stop; 0: when the job goes on, or will not."""
    follow: bool = False
    """After the score, go on until interrupted."""
    cell: str = CELL


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """What came of it."""

    score: Score
    truths: tuple[Truth, ...]
    facts: tuple[Fact, ...]
    start_ns: int
    ready_s: float
    """Real seconds until everything had started."""
    wall_s: float
    part_restart_counts: dict[str, int]


async def run(options: Options, emit: Emit, on_look: Callable[[str], None]) -> Outcome:
    """Run a scenario to its end.

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
        duration_ns = round(options.duration_s * 1e9)
        await watcher.until_over(stage.simulation, duration_ns=duration_ns)
        await stage.end()
        outcome = Outcome(
            score=await _judge(options, ledger, watcher.facts),
            truths=tuple(watcher.truths),
            facts=tuple(watcher.facts),
            start_ns=clock.start_ns,
            ready_s=ready_s,
            wall_s=time.monotonic() - began_s,
            part_restart_counts=dict(supervisor.restart_counts),
        )
        emit(show.score(outcome.score))
        if options.follow:
            emit([Text(f"going on until Ctrl-C; the log is at {server.url}", "dim")])
            await asyncio.Event().wait()
        return outcome


def _server(options: Options) -> Server:
    """A server on an empty store: a demo begins with nothing."""
    folder = state_folder(options.cell)
    other = running(folder)
    if other is not None:
        raise ServerRunningError(
            f"cell {options.cell!r} already runs: {other.url}, pid {other.pid}",
            hint=f"end it, or look at it: --server {other.url}",
        )
    shutil.rmtree(folder, ignore_errors=True)
    roles = [f"node/{node}" for node in options.cluster.node_names]
    return Server(options.cell, folder=folder, roles=roles)


async def _set_up(options: Options, server: Server) -> None:
    now_ns = SimClock().start_ns
    async with await server.connect("ticker") as log:
        tick = ticker.tick_of(now_ns)
        await log.publish(ticker.TICK_SUBJECT, encode_observation(tick))
    async with await server.connect("operator") as log:
        await set_up(log, options.cluster, CATALOGUE, now_ns)


def _commands(options: Options, server: Server) -> dict[str, list[str]]:
    """Processors share a process, the actor has one of its own."""
    names = [name for name in PROCESSORS if name not in options.without]
    url, credentials = server.url, server.credentials_folder
    commands: dict[str, list[str]] = {}
    if names:
        folder = server.folder / "processors"
        commands["processors"] = processors_command(url, credentials, folder, names)
    if "job-actor" not in options.without:
        commands["job-actor"] = actor_command(url, credentials, "job-1")
    return commands


async def _ready(log: Log, names: set[str]) -> None:
    """Wait until every processor has taken up work."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            if names:
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
    )


async def _judge(options: Options, ledger: Log, facts: Sequence[Fact]) -> Score:
    truths = await read_ledger(ledger.connection)
    return score(
        [each for each in truths if isinstance(each, FaultInjected)],
        [each for each in truths if isinstance(each, MembershipFormed)],
        facts,
        job=options.cluster.job.name,
    )
