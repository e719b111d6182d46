"""Catch-up: one reader over a log of millions of samples, bounded in memory.

A process of its own reads, so that its peak memory is the reader's and not the writer's.
"""

import asyncio
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from nemesis.streams.log import Log, Message, connect
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from tests.bench.load import samples_of_a_day
from tests.bench.row import AtLeast, AtMost, Row

MESSAGES_COUNT = 5_000_000
MEMORY_GOAL_MIB = 1024
RATE_GOAL = 50_000  # five million within 100 s
BATCH_COUNT = 900
IN_FLIGHT_COUNT = 4


async def measure(messages_count: int = MESSAGES_COUNT) -> list[Row]:
    """Fill a log, read it all in another process."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(log_bytes=24 * 2**30)
        async with Server("bench", folder=Path(folder), limits=limits) as server:
            async with await server.connect("sim") as log:
                await fill(log, messages_count)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.bench.catch_up",
                server.url,
                str(server.credentials_folder / "reader.nk"),
                str(messages_count),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await process.communicate()
    got = msgspec.json.decode(out, type=dict[str, float])
    how = f"{messages_count} samples of 8 GPUs and 8 NICs in a file store, a reader alone"
    return [
        Row("P5", "catch-up", got["rate"], "messages/s", how, AtLeast(RATE_GOAL)),
        Row("P5", "catch-up, peak memory", got["peak_mib"], "MiB", how, AtMost(MEMORY_GOAL_MIB)),
    ]


async def fill(log: Log, messages_count: int) -> None:
    """Write samples in atomic batches, a few in flight."""
    gate = asyncio.Semaphore(IN_FLIGHT_COUNT)

    async def commit(batch: list[Message]) -> None:
        async with gate:
            await log.commit(batch, timeout_s=60)

    pending: set[asyncio.Task[None]] = set()
    batch: list[Message] = []
    for message in itertools.islice(samples_of_a_day(), messages_count):
        batch.append(message)
        if len(batch) == BATCH_COUNT:
            pending.add(asyncio.create_task(commit(batch)))
            batch = []
            while len(pending) > IN_FLIGHT_COUNT:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
    if batch:
        await log.commit(batch, timeout_s=60)
    for task in pending:
        await task


async def read_all(url: str, seed: str, count: int) -> dict[str, float]:
    """Read `count` records from the beginning; rate and peak memory of this process."""
    async with await connect(url, name="bench", seed_path=Path(seed)) as log:
        start = time.perf_counter()
        seen = 0
        async with log.reader(1) as reader:
            async for records in reader:
                seen += len(records)
                if seen >= count:
                    break
        elapsed_s = time.perf_counter() - start
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rate": seen / elapsed_s, "peak_mib": peak_kib / 1024}


if __name__ == "__main__":
    sys.stdout.write(
        msgspec.json.encode(
            asyncio.run(read_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))
        ).decode()
    )
