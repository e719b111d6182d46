"""A log of a few nodes for tests of the failure model: cells of five seconds, as records."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS
from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.schemas.channels import GPU_CHANNELS
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.inferred import FailurePredicted
from nemesis.schemas.observed import (
    ClockTicked,
    GpuDescribed,
    InventoryReported,
    Observation,
    SampleTaken,
)
from nemesis.schemas.operated import JobSubmitted, ProcessorActivated
from tests.failure_models import filed, watching_model

START_NS = 1_800_000_000_000_000_000
HISTORY = RECEPTIVE_STEPS
"""Steps in which nothing is said of a part."""
POWER = GPU_CHANNELS.index("power_mw")
MODEL, FILE = filed(watching_model("power_mw"))
OTHER, OTHER_FILE = filed(watching_model("memory_temp_c"))
FILES = {MODEL: FILE, OTHER: OTHER_FILE}
NONE: dict[str, bytes] = {}
"""A release without any model."""


def power_for(code: int) -> int:
    """The power in mW that is shown as this code: watching_model's chance is code/128."""
    return (100 + code) * 4_000


def settings(model: str | None) -> bytes:
    """Of an activation."""
    return b"{}" if model is None else msgspec.json.encode({"model": model})


class Nodes:
    """Writes records."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.now_ns = START_NS
        self._numbers: dict[tuple[str, str], int] = {}
        self.tick(0)

    def tick(self, cells: float = 1) -> None:
        """Log time goes on by so many cells, at one tick."""
        self.now_ns += round(cells * STEP_NS)
        self._observe("tick", ClockTicked, "clock")

    def inventory(self, node: str, *serials: str) -> None:
        """What a node is made of."""
        gpus = tuple(
            GpuDescribed(pci=f"0000:{at + 1:02x}:00.0", serial=serial)
            for at, serial in enumerate(serials)
        )
        self._observe("inventory", InventoryReported, node, gpus=gpus)

    def sample(self, node: str, *gpus: Mapping[str, int], **fields: Any) -> None:
        """A poll, a GPU each; what is not named reads 0."""
        rows = [[gpu.get(name, 0) for name in GPU_CHANNELS] for gpu in gpus]
        block = np.array(rows, "<i8").tobytes()
        self._observe("sample", SampleTaken, node, gpu_count=len(rows), gpu=block, **fields)

    def power(self, node: str, *codes: int) -> None:
        """A poll that shows these codes of power."""
        self.sample(node, *({"power_mw": power_for(code)} for code in codes))

    def activate(self, model: str | None, version: int = 1) -> None:
        """An operator activates a model."""
        self.event(
            ProcessorActivated(
                at_ns=self.now_ns,
                by="op",
                reason="test",
                name="ecc_model",
                version=version,
                settings=msgspec.Raw(settings(model)),
            ),
            "ecc_model",
        )

    def submit(self, job: str, node: str, ranks_per_node: int) -> None:
        """A job begins on one node."""
        self.event(
            JobSubmitted(
                at_ns=self.now_ns,
                by="op",
                reason="test",
                job=job,
                nodes=(node,),
                ranks_per_node=ranks_per_node,
            ),
            job,
        )

    def event(self, data: Any, key: str) -> None:
        """A fact of a person."""
        self.put(
            *encode_conclusion(
                id=f"op/{len(self.records)}",
                source="/operators/op",
                at_ns=self.now_ns,
                data=data,
                key=key,
            )
        )

    def put(self, subject: str, payload: bytes) -> None:
        """Any record."""
        self.records.append(Record(len(self.records) + 1, subject, self.now_ns, payload))

    def _observe(self, token: str, struct: type[Observation], node: str, **fields: Any) -> None:
        n = self._numbers[node, token] = self._numbers.get((node, token), 0) + 1
        data = struct(node=node, start_ns=1, n=n, at_ns=fields.pop("at_ns", self.now_ns), **fields)
        self.put(telemetry_subject(node, token), encode_observation(data))


def watched(*nodes: str, gpus: int = 2, model: str | None = MODEL) -> Nodes:
    """A log of nodes that a model watches from here on."""
    log = Nodes()
    for node in nodes:
        log.inventory(node, *(f"{node}-{at}" for at in range(gpus)))
    log.activate(model)
    return log


def quiet(log: Nodes, *nodes: str, cells: int = HISTORY, gpus: int = 2) -> Nodes:
    """Cells in which every node shows nothing."""
    for _ in range(cells):
        for node in nodes:
            log.power(node, *[0] * gpus)
        log.tick()
    return log


def fold(files: Mapping[str, bytes] = FILES) -> Fold:
    """A fresh one."""
    return Fold(EccModel(files.get))


def stepped(own: Fold, records: list[Record]) -> list[Emission]:
    """Everything that is said of these records."""
    return [each for record in records for each in own.step(Input(record))]


def predictions(emissions: list[Emission]) -> list[FailurePredicted]:
    """What was said of GPUs."""
    found = [decode_conclusion(each.subject.split(".")[2], each.payload)[1] for each in emissions]
    return [each for each in found if isinstance(each, FailurePredicted)]


def said(log: Nodes) -> list[FailurePredicted]:
    """What a fresh copy says of the whole log."""
    return predictions(stepped(fold(), log.records))


def bands(log: Nodes) -> list[tuple[str, str]]:
    """(component, band) of everything that is said."""
    return [(each.component, each.band) for each in said(log)]
