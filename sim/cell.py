"""A simulated cell that runs: server, clock, processors, actors, and the cluster on its wire.

Everything is started here and ended here, in the opposite order, whatever happens in between. The
cell is empty at each start, and its policy acts: nothing real can be hurt.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.decided import Mode
from nemesis.schemas.facts import encode_observation
from nemesis.sim.clock import SimClock
from nemesis.sim.dry_run import weighed
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.operator import set_up
from nemesis.sim.params import Params
from nemesis.sim.show import Show
from nemesis.sim.simulation import Simulation
from nemesis.sim.stage import Stage, wire_roles
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.watcher import Emit, Watcher
from nemesis.streams import crew, ticker
from nemesis.streams.crew import ARCHIVIST, JOB_ACTOR
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.side_by_side import background
from nemesis.streams.supervisor import Supervisor

CELL: Final = "demo"
PROCESSORS: Final = tuple(sorted(CATALOGUE))
PARTS: Final = (*PROCESSORS, JOB_ACTOR, ARCHIVIST)
READY_TIMEOUT_S: Final = 30.0
WEIGHING_QUANTUM_NS: Final = 200_000_000
"""How finely a run without processors is looked at, that only asks what is delivered."""
LIMITS: Final = Limits(log_bytes=2 * 2**30, store_bytes=64 * 2**20)
"""The server wants this much free disk before it starts; a log grows by 2.5 MB a minute."""


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
    mode: Mode = "act"
    """Of the policy."""
    weigh: Params | None = None
    """By these, say in the ledger of each fault whether it is attributable."""
    ledger: Path | None = None
    """Where to write the ledger when the run is judged."""


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
    faults = _faults(options)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server = await enter(_server(options))
        reader = await enter(await server.connect("reader"))
        ledger = await enter(await server.connect("sim"))
        await _set_up(options, server)
        names = [name for name in PROCESSORS if name not in options.without]
        job_actor = JOB_ACTOR not in options.without
        children = crew.commands(
            server,
            names,
            cell=server.cell,
            copies=options.copies,
            job_actor=job_actor,
            archivist=ARCHIVIST not in options.without,
        )
        supervisor = await enter(Supervisor(children))
        await crew.until_started(reader, names, from_seq=1, timeout_s=READY_TIMEOUT_S)
        ready_s = time.monotonic() - began_s
        clock = SimClock(speed=options.speed)
        await enter(crew.clockwork(server, clock.now_ns, lambda alarm: None, speed=clock.speed))
        show = Show(options.cluster, clock.start_ns, cell=options.cell)
        watcher = Watcher(show, clock, emit, on_look)
        stage = _stage(options, faults, clock=clock, server=server, ledger=ledger, watcher=watcher)
        await enter(background(stage.run(), watcher.follow(reader)))
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
    return Server(options.cell, roles=wire_roles(options.cluster), limits=LIMITS, empty=True)


async def _set_up(options: Options, server: Server) -> None:
    now_ns = SimClock().start_ns
    async with await server.connect("ticker") as log:
        tick = ticker.tick_of(now_ns)
        await log.publish(ticker.TICK_SUBJECT, encode_observation(tick))
    async with await server.connect("operator") as log:
        await set_up(log, options.cluster, CATALOGUE, now_ns, options.mode)


def _faults(options: Options) -> list[Fault]:
    """What will break; weighed before anything runs."""
    scenario = options.scenario
    faults = plan_faults(
        options.cluster, scenario.faults, options.seed, lasts_s=scenario.duration_s
    )
    if options.weigh is None:
        return faults
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        return weighed(
            options.cluster,
            faults,
            (),
            options.weigh,
            seed=options.seed,
            folder=Path(folder),
            start_ns=SimClock().start_ns,
            quantum_ns=WEIGHING_QUANTUM_NS,
        )


def _stage(
    options: Options,
    faults: list[Fault],
    *,
    clock: SimClock,
    server: Server,
    ledger: Log,
    watcher: Watcher,
) -> Stage:
    cluster = options.cluster
    simulation = Simulation(
        cluster,
        faults,
        seed=options.seed,
        folder=server.folder / "agents",
        start_ns=clock.start_ns,
        params=options.weigh,
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
