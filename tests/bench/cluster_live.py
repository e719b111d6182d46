"""100,000 simulated GPUs through a real server, twice as fast as time passes, everybody reading.

One process makes the telemetry of all nodes and switches and writes it in atomic batches; all
processors share another one, as they do in `nemesis serve`. Log time is that of the simulation.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from nemesis.processors.catalogue import CATALOGUE
from nemesis.sim.clock import SimClock
from nemesis.sim.operator import set_up
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import message_of, told
from nemesis.streams import ticker
from nemesis.streams.batch import Message
from nemesis.streams.log import Log, connect
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.status import read_status
from nemesis.streams.supervisor import Supervisor
from tests.bench.generating import NODES_COUNT_MAX, SECOND_NS, cluster_at_scale, simulation_of
from tests.bench.pipeline import all_up, cpu_s, peak_mib, watch
from tests.bench.row import AtLeast, AtMost, Row

SPEED = 2.0
RUN_S = 60
BATCH_COUNT = 500
QUANTUM_NS = 200_000_000
LAG_GOAL_S = 5.0
MEMORY_GOAL_MIB = 4_096


class Sent(msgspec.Struct):
    """What the generator reached."""

    speed: float
    """Simulated seconds in one real second."""
    facts_count: int
    elapsed_s: float
    cores: float
    memory_mib: float


async def measure(run_s: int = RUN_S, nodes: int = NODES_COUNT_MAX) -> list[Row]:
    """Run the cell and report how far generator and processors kept up."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            limits = Limits(log_bytes=12 * 2**30)
            server = await enter(Server("bench", folder=state / "cell", limits=limits))
            clock = SimClock(speed=SPEED)
            operator = await enter(await server.connect("operator"))
            await set_up(operator, cluster_at_scale(nodes), CATALOGUE, clock.start_ns)
            copy = _command("tests.bench.pipeline", "copy", server.url, folder, *CATALOGUE)
            commands = {"processors": copy}
            supervisor = await enter(Supervisor(commands))
            await all_up(state, len(CATALOGUE))
            load = await asyncio.create_subprocess_exec(
                *_command("tests.bench.cluster_live", server.url, folder, str(run_s), str(nodes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert load.stdin is not None
            assert load.stdout is not None
            start_ns = int(await load.stdout.readline())
            await _caught_up(state)
            load.stdin.write(b"\n")
            await load.stdin.drain()
            began_s = time.monotonic()
            log = await enter(await server.connect("ticker"))
            ticking = asyncio.create_task(
                ticker.run(
                    log,
                    lambda: start_ns + round((time.monotonic() - began_s) * SPEED * SECOND_NS),
                    speed=SPEED,
                )
            )
            pids = {name: supervisor.pid(name) for name in commands} | {"server": server.pid}
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            lags = await watch(state, run_s)
            cores = {name: (cpu_s(pid) - before[name]) / run_s for name, pid in pids.items()}
            out, _ = await load.communicate()
            memory = {name: peak_mib(pid) for name, pid in pids.items()}
            ticking.cancel()
    return rows(msgspec.json.decode(out, type=Sent), lags, cores, memory)


async def _caught_up(folder: Path) -> None:
    """Wait until every processor has read what the nodes are made of."""
    async with asyncio.timeout(300):
        while any(each.lag_seq for each in read_status(folder)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def rows(
    sent: Sent, lags: list[int], cores: dict[str, float], memory_mib: dict[str, float]
) -> list[Row]:
    """What was measured, as rows of the table."""
    rate = sent.facts_count / sent.elapsed_s
    how = f"{NODES_COUNT_MAX * 8:,} GPUs, 10 jobs, {rate:,.0f} facts/s, server and all processors"
    cores = cores | {"generator": sent.cores}
    used = ", ".join(f"{name} {value:.2f}" for name, value in cores.items())
    largest = max(memory_mib, key=memory_mib.__getitem__)
    taken = f"generator; {largest} {memory_mib[largest]:.0f} MiB"
    last = sum(lags[-5:]) / 5 / rate
    return [
        Row("S3", "cluster through the server", sent.speed, "x real", how, AtLeast(SPEED * 0.99)),
        Row("S4", "lag of a processor, last 5 s", last, "s", "simulated", AtMost(LAG_GOAL_S)),
        Row("S5", "cores used", sum(cores.values()), "cores", used),
        Row("S6", "memory", sent.memory_mib, "MiB", taken, AtMost(MEMORY_GOAL_MIB)),
    ]


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


async def load(url: str, folder: str, run_s: int, nodes: int) -> Sent:
    """Describe all nodes first; then let time pass, and write what is told."""
    seed = Path(folder) / "cell" / "credentials" / "sim.nk"
    start_ns = time.time_ns()
    with tempfile.TemporaryDirectory() as agents:
        simulation = simulation_of(cluster_at_scale(nodes), Path(agents), start_ns)
        async with await connect(url, name="load", seed_path=seed) as log:
            await _send(log, simulation, start_ns)
            sys.stdout.write(f"{start_ns}\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            return await _run(log, simulation, start_ns, run_s)


async def _run(log: Log, simulation: Simulation, start_ns: int, run_s: int) -> Sent:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    count, passed_ns, until_ns = 0, 0, round(run_s * SPEED * SECOND_NS)
    while passed_ns < until_ns:
        passed_ns += QUANTUM_NS
        ahead_s = began_s + passed_ns / SECOND_NS / SPEED - time.monotonic()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
        simulation.advance(start_ns + passed_ns, lambda node: True)
        count += await _send(log, simulation, start_ns + passed_ns)
    elapsed_s = time.monotonic() - began_s
    return Sent(
        cores=(time.process_time() - began_cpu_s) / elapsed_s,
        speed=passed_ns / SECOND_NS / elapsed_s,
        facts_count=count,
        elapsed_s=elapsed_s,
        memory_mib=peak_mib("self"),
    )


async def _send(log: Log, simulation: Simulation, now_ns: int) -> int:
    """Write everything that is told now; how much it was."""
    batch: list[Message] = []
    count = 0
    for observation in told(simulation, now_ns):
        batch.append(message_of(observation))
        if len(batch) == BATCH_COUNT:
            count += await _commit(log, batch)
            batch = []
    return count + (await _commit(log, batch) if batch else 0)


async def _commit(log: Log, batch: list[Message]) -> int:
    await log.commit(batch, timeout_s=60)
    return len(batch)


if __name__ == "__main__":
    url, folder, run_s, nodes = sys.argv[1:]
    sent = asyncio.run(load(url, folder, int(run_s), int(nodes)))
    sys.stdout.write(msgspec.json.encode(sent).decode())
