"""Replay rate: a recording of samples verified by every processor, on one core.

What is timed is what `nemesis replay FILE` does: read, check the hash, decode, fold, compare.
"""

import asyncio
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

from nemesis.processors.catalogue import CATALOGUE
from nemesis.replay.reader import Recording
from nemesis.replay.verify import verify
from nemesis.replay.versions import maker
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.facts import Record, encode_conclusion, encode_observation
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams.ticker import TICK_SUBJECT, tick_of
from tests.bench.load import samples_of_a_day
from tests.bench.row import AtLeast, Row, median

SAMPLES_COUNT = 200_000
SAMPLES_A_TICK = 2_500
REPETITIONS = 5
RATE_GOAL = 50_000


async def measure() -> list[Row]:
    """Replay the same recording five times, each in a fresh process on one core."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.ndjson"
        write(path)
        rates = [await replayed(path) for _ in range(REPETITIONS)]
    how = f"{SAMPLES_COUNT} samples through {', '.join(CATALOGUE)}; median of {REPETITIONS}"
    return [Row("P5", "replay, one core", median(rates), "samples/s", how, AtLeast(RATE_GOAL))]


async def replayed(path: Path) -> float:
    """Samples a second of one replay in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.replaying", str(path), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return float(out)


def write(path: Path) -> None:
    """A recording of a quiet day: activations, samples, a tick each second."""
    start_ns = time.time_ns()
    seqs = itertools.count(1)
    with RecordingWriter(
        path, cell="bench", made_by="bench", made_at="", from_seq=1, force=False
    ) as writer:
        for name, versions in CATALOGUE.items():
            subject, payload = encode_conclusion(
                id=f"bench/{name}",
                source="/operator",
                at_ns=start_ns,
                data=ProcessorActivated(
                    at_ns=start_ns, by="bench", reason="bench", name=name, version=max(versions)
                ),
                key=name,
            )
            writer.record(Record(next(seqs), subject, start_ns, payload))
        messages = samples_of_a_day()
        for second in range(SAMPLES_COUNT // SAMPLES_A_TICK):
            tick = encode_observation(tick_of(start_ns + second * 1_000_000_000))
            writer.record(Record(next(seqs), TICK_SUBJECT, start_ns, tick))
            for message in itertools.islice(messages, SAMPLES_A_TICK):
                writer.record(Record(next(seqs), message.subject, start_ns, message.payload))
        writer.finish(to_seq=next(seqs) - 1)


def run(path: Path) -> float:
    """Samples a second of one replay on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    recording = Recording(path)
    report = verify(recording, maker(recording.header.nemesis_version))
    elapsed_s = time.perf_counter() - start
    assert report.samples_count == SAMPLES_COUNT, report
    return report.samples_count / elapsed_s


if __name__ == "__main__":
    sys.stdout.write(str(run(Path(sys.argv[1]))))
