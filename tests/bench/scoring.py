"""The failure model on one core: a poll of every GPU, from decoded samples to facts.

What is timed is what a copy does: the fold takes each sample, the tick makes the step. The time is
of the processor core and not of the wall, so that a busy machine shows the same; BLAS has one
thread, in a process of its own. Weights are drawn and not trained: the work is the same.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.cli.models import network_of
from nemesis.processors.ecc_model.channels import STEP_NS, ChannelReader
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.inputs import InputMaker
from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, RECEPTIVE_STEPS, UNIT, Model
from nemesis.processors.ecc_model.network import Network
from nemesis.processors.fold import Fold, Input
from nemesis.processors.window import ROOTS_A_LOOKBACK
from nemesis.schemas.channels import GPU_CHANNELS
from nemesis.schemas.facts import Record, encode_conclusion, encode_observation, telemetry_subject
from nemesis.schemas.observed import GpuDescribed, InventoryReported, SampleTaken
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams.ticker import TICK_SUBJECT, tick_of
from tests.bench.row import AtMost, Row, median
from tests.failure_models import drawn_model

CHANNELS = 32
GPUS_OF_NODE = 8
FEW, MANY = 16_384, 100_000
GOALS_MS = {"numpy": {FEW: 60, MANY: 400}, "torch": {FEW: 45, MANY: 250}}
"""By engine."""
REBUILT_GOAL_S = 60
REBUILT_STEPS = RECEPTIVE_STEPS * (ROOTS_A_LOOKBACK + 1) // ROOTS_A_LOOKBACK
"""At most: a root lies up to an eighth before what the window needs."""
REPETITIONS = 7
ALARMED_NODES = 16
START_NS = 1_800_000_000_000_000_000
_ROW = {"memory_temp_c": 53, "power_mw": 612_000}


class Measured(msgspec.Struct):
    """Of the core."""

    poll_ms: float
    """The median of those that say something, where any may."""
    said_count: int
    rebuilt_s: float
    """Of REBUILT_STEPS steps, decoding included; 0 where it was not measured."""
    snapshot_bytes: int
    snapshot_ms: float


class Polls:
    """A log of polls under load, made while it is read."""

    def __init__(self, gpus_count: int, model: str) -> None:
        self._nodes = [f"n{at:05d}" for at in range(gpus_count // GPUS_OF_NODE)]
        self._model = model
        self._seq = self._cell = 0

    def beginning(self) -> Iterator[Record]:
        """Inventories and the activation."""
        gpus = tuple(GpuDescribed(pci=f"0000:{at:02x}:00.0") for at in range(GPUS_OF_NODE))
        for node in self._nodes:
            data = InventoryReported(node=node, start_ns=1, n=1, at_ns=START_NS, gpus=gpus)
            yield self._record(telemetry_subject(node, "inventory"), encode_observation(data))
        activated = ProcessorActivated(
            at_ns=START_NS,
            by="bench",
            reason="bench",
            name="ecc_model",
            version=1,
            settings=msgspec.Raw(msgspec.json.encode({"model": self._model})),
        )
        yield self._record(
            *encode_conclusion(
                id="bench", source="/bench", at_ns=START_NS, data=activated, key="ecc_model"
            )
        )

    def poll(self, *, errors: int = 0) -> list[Record]:
        """A sample of every node and the tick behind them; the first GPUs of some count errors."""
        self._cell += 1
        at_ns = START_NS + self._cell * STEP_NS
        quiet, alarmed = block(0), block(errors)
        records = []
        for number, node in enumerate(self._nodes):
            data = SampleTaken(
                node=node,
                start_ns=1,
                n=self._cell,
                at_ns=at_ns,
                gpu_count=GPUS_OF_NODE,
                gpu=alarmed if number < ALARMED_NODES else quiet,
            )
            records.append(
                self._record(telemetry_subject(node, "sample"), encode_observation(data))
            )
        records.append(self._record(TICK_SUBJECT, encode_observation(tick_of(at_ns))))
        return records

    def _record(self, subject: str, payload: bytes) -> Record:
        self._seq += 1
        return Record(self._seq, subject, START_NS, payload)


def block(errors: int) -> bytes:
    """The readings of a node; its first GPU has counted so many errors."""
    rows = np.array([[_ROW.get(name, 0) for name in GPU_CHANNELS]] * GPUS_OF_NODE, "<i8")
    rows[0, GPU_CHANNELS.index("dram_ce_count")] = errors
    return rows.tobytes()


def speaking_model() -> Model:
    """Drawn weights, and chances that tell a GPU with a burst of errors from one at rest."""
    certain = np.zeros(LOGITS, np.int64)
    for seed in range(1, 50):
        model = drawn_model(seed, channels=CHANNELS)
        network, reader, maker = Network(model, 2), ChannelReader(2), InputMaker(2)
        rows = np.frombuffer(block(0), "<i8").reshape(GPUS_OF_NODE, -1)[:2].copy()
        polled = np.ones(2, np.bool_)
        logits: NDArray[np.int16] = np.zeros(0, np.int16)
        for step in range(RECEPTIVE_STEPS + 2):
            if step > RECEPTIVE_STEPS:
                rows[0, GPU_CHANNELS.index("dram_ce_count")] = 1_000_000
            logits = network.step(maker.make(reader.read(rows, polled)))
        burst, rest = logits[0].tolist()
        if burst > rest:
            chances = np.where(np.arange(LOGITS) - LOGITS // 2 > rest, UNIT, 0)
            hazards = np.array([chances, *[certain] * (len(HORIZONS_S) - 1)])
            return msgspec.structs.replace(model, hazards=hazards.astype("<i4").tobytes())
    raise AssertionError("no seed gives a model that hears a burst")


def polled(gpus_count: int, *, rebuild: bool, engine: str) -> Measured:
    """Poll so many GPUs several times, after half an hour of them where it is asked for."""
    raw = msgspec.msgpack.encode(speaking_model())
    name = sha256(raw).hexdigest()
    polls, fold = Polls(gpus_count, name), Fold(EccModel({name: raw}.get, network_of(engine)))
    for record in polls.beginning():
        fold.step(Input(record))
    rebuilt_s = 0.0
    for _ in range(REBUILT_STEPS if rebuild else 1):
        records = polls.poll()
        began_s = time.process_time()
        for record in records:
            fold.step(Input(record))
        rebuilt_s += time.process_time() - began_s
    taken_ms, said_count = [], 0
    for repetition in range(REPETITIONS):
        items = [Input(record) for record in polls.poll(errors=(repetition + 1) * 1_000_000)]
        for item in items:
            item.decoded()
        began_s = time.process_time()
        for item in items:
            said_count += len(fold.step(item))
        taken_ms.append((time.process_time() - began_s) * 1e3)
    began_s = time.process_time()
    snapshot = fold.snapshot()
    snapshot_ms = (time.process_time() - began_s) * 1e3
    return Measured(
        median(taken_ms), said_count, rebuilt_s if rebuild else 0.0, len(snapshot), snapshot_ms
    )


async def measure() -> list[Row]:
    """A process for each size and engine; torch's where it is installed."""
    rows = await measured("numpy")
    return rows + (await measured("torch") if find_spec("torch") else [])


async def measured(engine: str) -> list[Row]:
    """A process for each size."""
    rows: list[Row] = []
    for gpus_count, goal_ms in GOALS_MS[engine].items():
        rebuild = gpus_count == FEW and engine == "numpy"
        ran = await asyncio.to_thread(
            subprocess.run,
            [
                sys.executable,
                "-m",
                "tests.bench.scoring",
                str(gpus_count),
                str(int(rebuild)),
                engine,
            ],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
        )
        found = msgspec.json.decode(ran.stdout, type=Measured)
        said = f"{found.said_count} facts said" if rebuild else "before anything may be said"
        how = (
            f"one core, {engine}, from decoded samples to facts, median of {REPETITIONS}, {said}; "
            f"snapshot {found.snapshot_bytes / 1e3:.0f} KB in {found.snapshot_ms:.0f} ms; "
            f"weights not trained"
        )
        what = f"poll of {gpus_count:,} GPUs scored"
        rows.append(Row("P1", what, found.poll_ms, "ms", how, AtMost(goal_ms)))
        if rebuild:
            how = f"{REBUILT_STEPS} steps, decoding included, the log's transport not; one core"
            what = f"31 min of {gpus_count:,} GPUs again"
            rows.append(Row("P1", what, found.rebuilt_s, "s", how, AtMost(REBUILT_GOAL_S)))
    return rows


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.json.encode(
            polled(int(sys.argv[1]), rebuild=sys.argv[2] == "1", engine=sys.argv[3])
        )
    )
