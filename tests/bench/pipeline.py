"""The pipeline under load: producer → log → every processor, each in a process of its own.

One loader process writes the samples of many nodes in atomic batches; once a second a
kernel line with Xid 79 of another node goes in as a plain publish, and the time until the verdict
stands on `nemesis.events` is one latency. Everything runs on this machine, the server included.
"""

import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from nemesis.processors.catalogue import CATALOGUE
from nemesis.producers.origin import Origin
from nemesis.schemas.facts import (
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.observed import KernelLineLogged
from nemesis.schemas.operated import ProcessorActivated
from nemesis.sim.telemetry.load import LoadMeasured, publish_load
from nemesis.streams import ticker
from nemesis.streams.copy import run_copy
from nemesis.streams.credentials import seed_path
from nemesis.streams.log import Log, connect
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.status import read_status
from nemesis.streams.supervisor import Supervisor
from tests.bench.load import samples_of_a_day
from tests.bench.row import AtLeast, AtMost, Row, median, percentile

SAMPLES_PER_S = 2_500
LOAD_S = 60
LONG_S = 600
LAG_GOAL_S = 1.0
GROWTH_GOAL_PERCENT = 5.0
"""Of resident memory over the second half of the long run: what is bounded has stopped growing."""
LATENCY_P99_GOAL_MS = 250.0
XID_79 = "NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid=1234, GPU has fallen off the bus."


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What was read once a second meanwhile."""

    lags: list[int]
    """The worst lag of any copy, in inputs."""
    memory_mib: dict[str, list[float]]
    """Resident, by process."""


async def measure(load_s: int = LOAD_S) -> list[Row]:
    """Run the load and report rates, lag, latency, memory and cores."""
    found, _ = await _measured(load_s)
    return found


async def measure_long(load_s: int = LONG_S) -> list[Row]:
    """The same for ten minutes: the same bound on lag, and memory that has stopped growing."""
    found, seen = await _measured(load_s)
    half = load_s // 2
    grown = {
        name: 100 * (max(each[half:]) / max(each[half - half // 2 : half]) - 1)
        for name, each in seen.memory_mib.items()
    }
    worst = max(grown, key=grown.__getitem__)
    how = "resident, second half of the run over the quarter before"
    return [
        *found,
        Row("P5", f"memory grown, {worst}", grown[worst], "%", how, AtMost(GROWTH_GOAL_PERCENT)),
    ]


async def _measured(load_s: int) -> tuple[list[Row], Watched]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            probes = [f"node/probe{i:03d}" for i in range(load_s)]
            server = await enter(
                Server(
                    "bench", folder=state / "cell", limits=Limits(log_bytes=8 * 2**30), roles=probes
                )
            )
            await activate(await enter(await server.connect("operator")))
            commands = {
                name: [
                    sys.executable,
                    "-m",
                    "tests.bench.pipeline",
                    "copy",
                    server.url,
                    folder,
                    name,
                ]
                for name in CATALOGUE
            }
            supervisor = await enter(Supervisor(commands))
            clock = asyncio.create_task(
                ticker.run(await enter(await server.connect("ticker")), time.time_ns)
            )
            await all_up(state, len(commands))
            pids = {name: supervisor.pid(name) for name in commands} | {"server": server.pid}
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            load = await asyncio.create_subprocess_exec(
                *[
                    sys.executable,
                    "-m",
                    "tests.bench.pipeline",
                    "load",
                    server.url,
                    folder,
                    str(load_s),
                ],
                stdout=asyncio.subprocess.PIPE,
            )
            started = time.perf_counter()
            latencies_ms, seen = await asyncio.gather(
                probe(server, load_s), watch_all(state, pids, load_s)
            )
            out, _ = await load.communicate()
            elapsed_s = time.perf_counter() - started
            cores = {n: (cpu_s(pid) - before[n]) / elapsed_s for n, pid in pids.items()}
            memory = {name: peak_mib(pid) for name, pid in pids.items()}
            clock.cancel()
    sent = msgspec.json.decode(out, type=LoadMeasured)
    return rows(sent, latencies_ms, seen.lags, cores=cores, memory_mib=memory), seen


def rows(
    sent: LoadMeasured,
    latencies_ms: list[float],
    lags: list[int],
    *,
    cores: dict[str, float],
    memory_mib: dict[str, float],
) -> list[Row]:
    """What was measured, as rows of the table."""
    rate = sent.sent_count / sent.elapsed_s
    lag_s = max(lags) / SAMPLES_PER_S
    p50, p99 = median(latencies_ms), percentile(latencies_ms, 99)
    how = (
        f"{sent.elapsed_s:.0f} s, 8 GPUs and 8 NICs a sample, {len(CATALOGUE)} processors in "
        "processes of their own, server and load on the same cores"
    )
    probes = f"Xid 79 → fault_attributed on nemesis.events, {len(latencies_ms)} times meanwhile"
    largest = max(memory_mib, key=memory_mib.__getitem__)
    return [
        Row("P5", "samples taken", rate, "samples/s", how, AtLeast(SAMPLES_PER_S * 0.99)),
        Row("P5", "worst lag of a processor", lag_s, "s", "read each second", AtMost(LAG_GOAL_S)),
        Row("P5", "publish → event, p50", p50, "ms", probes),
        Row("P5", "publish → event, p99", p99, "ms", "the same", AtMost(LATENCY_P99_GOAL_MS)),
        Row("P5", "cores used", sum(cores.values()), "cores", _listed(cores, 2)),
        Row("P5", f"peak memory, {largest}", memory_mib[largest], "MiB", _listed(memory_mib, 0)),
    ]


def _listed(values: dict[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


async def activate(log: Log) -> None:
    """Put every processor of this release in force."""
    for name, versions in CATALOGUE.items():
        subject, payload = encode_conclusion(
            id=f"bench/{name}",
            source="/operator",
            at_ns=time.time_ns(),
            data=ProcessorActivated(
                at_ns=time.time_ns(), by="bench", reason="bench", name=name, version=max(versions)
            ),
            key=name,
        )
        await log.publish(subject, payload)


async def all_up(folder: Path, count: int) -> None:
    """Wait until every copy is active."""
    async with asyncio.timeout(60):
        while sum(each.active for each in read_status(folder)) < count:  # noqa: ASYNC110  # files of other processes
            await asyncio.sleep(0.2)


async def probe(server: Server, load_s: int) -> list[float]:
    """Publish one Xid 79 a second; milliseconds until its verdict is out."""
    arrived: dict[str, float] = {}
    latencies_ms: list[float] = []
    async with await server.connect("browser") as browser:

        async def on_event(msg: object) -> None:
            text = getattr(msg, "data", b"")
            if b"fault_attributed" in text:
                at = text.index(b"gpu/probe") + 4
                arrived.setdefault(text[at : at + 8].decode(), time.perf_counter())

        await browser.connection.subscribe("nemesis.events", on_event)
        for i in range(load_s):
            node = f"probe{i:03d}"
            async with await server.connect(f"node/{node}") as log:
                line = KernelLineLogged(
                    **Origin(node, start_ns=time.time_ns()).stamp("kernel", time.time_ns()),
                    text=XID_79.format(bus=i % 200 + 16),
                    priority=3,
                )
                start = time.perf_counter()
                await log.publish(telemetry_subject(node, "kernel"), encode_observation(line))
                while node not in arrived and time.perf_counter() - start < 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            latencies_ms.append((arrived.get(node, start + 10) - start) * 1e3)
            await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - start)))
    return latencies_ms


async def watch(folder: Path, load_s: int) -> list[int]:
    """The worst lag in inputs of any copy, once a second."""
    lags: list[int] = []
    for _ in range(load_s):
        await asyncio.sleep(1)
        lags.append(max((each.lag_seq for each in read_status(folder)), default=0))
    return lags


async def watch_all(folder: Path, pids: dict[str, int | None], load_s: int) -> Watched:
    """The worst lag and everybody's memory, once a second."""
    memory_mib: dict[str, list[float]] = {name: [] for name in pids}

    async def weigh() -> None:
        for _ in range(load_s):
            await asyncio.sleep(1)
            for name, pid in pids.items():
                memory_mib[name].append(_memory_mib(pid, "VmRSS"))

    lags, _ = await asyncio.gather(watch(folder, load_s), weigh())
    return Watched(lags=lags, memory_mib=memory_mib)


def cpu_s(pid: int | None) -> float:
    """User and system seconds of a process so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int | str | None) -> float:
    """Peak resident memory of a process (proc(5), VmHWM)."""
    return _memory_mib(pid, "VmHWM")


def _memory_mib(pid: int | str | None, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


async def load(url: str, folder: str, load_s: int) -> None:
    """Write samples at the rate; print what was reached."""
    seed = Path(folder) / "cell" / "credentials" / "sim.nk"
    async with await connect(url, name="load", seed_path=seed) as log:
        measured = await publish_load(
            log, samples_of_a_day(), rate_per_s=SAMPLES_PER_S, seconds=load_s
        )
    sys.stdout.write(msgspec.json.encode(measured).decode())


async def copy(url: str, folder: str, *names: str) -> None:
    """Processors that share a process."""
    credentials = Path(folder) / "cell" / "credentials"

    async def sign_in(role: str) -> Log:
        return await connect(url, name=role, seed_path=seed_path(credentials, role))

    await run_copy(names, CATALOGUE, connect=sign_in, folder=Path(folder))


if __name__ == "__main__":
    _, what, *arguments = sys.argv
    if what == "load":
        asyncio.run(load(arguments[0], arguments[1], int(arguments[2])))
    else:
        asyncio.run(copy(*arguments))
