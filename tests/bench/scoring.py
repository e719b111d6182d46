"""The failure model on one core: a poll of every GPU, from decoded samples to probabilities.

The time is of the processor core and not of the wall, so that a busy machine shows the same; BLAS
has one thread, in a process of its own. Weights are drawn and not trained: the work is the same.
"""

import asyncio
import os
import subprocess
import sys
import time
from itertools import pairwise

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import ChannelReader
from nemesis.processors.ecc_model.inputs import InputMaker
from nemesis.processors.ecc_model.model import probabilities_ppm
from nemesis.processors.ecc_model.network import Network
from nemesis.processors.ecc_model.polls import Columns
from nemesis.schemas.channels import GPU_CHANNELS
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import SampleTaken
from tests.bench.row import AtMost, Row, median
from tests.failure_models import drawn_model

CHANNELS = 32
GPUS_OF_NODE = 8
GOALS_MS = {16_384: 60, 100_000: 400}
REPETITIONS = 7


class Measured(msgspec.Struct):
    """Milliseconds of the core, the median, in order of the work."""

    gather_ms: float
    channels_ms: float
    inputs_ms: float
    network_ms: float
    chances_ms: float
    state_bytes: int

    @property
    def total_ms(self) -> float:
        """All of it."""
        parts = (self.gather_ms, self.channels_ms, self.inputs_ms, self.network_ms, self.chances_ms)
        return sum(parts)


def samples_of(nodes: int) -> list[Fact]:
    """A sample of each node under load, as the fold hands it over."""
    row = [0] * len(GPU_CHANNELS)
    row[GPU_CHANNELS.index("memory_temp_c")] = 53
    row[GPU_CHANNELS.index("power_mw")] = 612_000
    block = np.array([row] * GPUS_OF_NODE, "<i8").tobytes()
    return [
        Fact(
            seq=at + 1,
            kind="sample",
            key=f"n{at:05d}",
            id="",
            at_ns=0,
            log_time_ns=0,
            late=False,
            data=SampleTaken(
                node=f"n{at:05d}", start_ns=1, n=1, at_ns=0, gpu_count=GPUS_OF_NODE, gpu=block
            ),
        )
        for at in range(nodes)
    ]


def polled(gpus_count: int) -> Measured:
    """Poll so many GPUs several times."""
    model = drawn_model(channels=CHANNELS)
    facts = samples_of(gpus_count // GPUS_OF_NODE)
    columns = Columns()
    for fact in facts:
        columns.place(fact.key, GPUS_OF_NODE)
    reader, maker = ChannelReader(gpus_count), InputMaker(gpus_count)
    network = Network(model, gpus_count)
    table = model.hazard_table()
    taken: list[list[float]] = []
    for _ in range(REPETITIONS):
        marks = [time.process_time()]
        block, seen = columns.gathered(facts)
        marks.append(time.process_time())
        step = reader.read(block, seen)
        marks.append(time.process_time())
        codes = maker.make(step)
        marks.append(time.process_time())
        logits = network.step(codes)
        marks.append(time.process_time())
        probabilities_ppm(table, logits)
        marks.append(time.process_time())
        taken.append([(b - a) * 1e3 for a, b in pairwise(marks)])
    gather, channels, inputs, run, chances = (median(each) for each in zip(*taken, strict=True))
    return Measured(gather, channels, inputs, run, chances, network.state_bytes)


async def measure() -> list[Row]:
    """A process for each size."""
    rows: list[Row] = []
    for gpus_count, goal_ms in GOALS_MS.items():
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.bench.scoring", str(gpus_count)],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
        )
        found = msgspec.json.decode(ran.stdout, type=Measured)
        how = (
            f"one core, numpy: samples {found.gather_ms:.0f}, channels {found.channels_ms:.0f}, "
            f"inputs {found.inputs_ms:.0f}, network {found.network_ms:.0f}, chances "
            f"{found.chances_ms:.0f} ms; {found.state_bytes} bytes a GPU; weights not trained"
        )
        what = f"poll of {gpus_count:,} GPUs scored"
        rows.append(Row("P1", what, found.total_ms, "ms", how, AtMost(goal_ms)))
    return rows


if __name__ == "__main__":
    print(msgspec.json.encode(polled(int(sys.argv[1]))).decode())
