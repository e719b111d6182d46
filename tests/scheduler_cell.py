"""A log with one scheduler for a test: what it says is written back at once, as a runner would."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from nemesis.processors.fold import Fold, Input
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.components import node_of
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.inferred import Culprit, FaultAttributed, IncidentClosed
from nemesis.schemas.observed import (
    ClockTicked,
    FabricInventoryReported,
    GpuDescribed,
    InventoryReported,
    NicDescribed,
    Observation,
    PortDescribed,
)
from nemesis.schemas.operated import JobEnded, JobSubmitted, ProcessorActivated
from nemesis.schemas.scheduled import JobPlaced

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS
H100 = "NVIDIA H100 80GB HBM3"
T = TypeVar("T")


class Cell:
    """A log with one scheduler, which is taken up from its snapshot after each fact."""

    def __init__(
        self,
        leaves: Sequence[int] = (4, 4),
        *,
        settings: bytes = b"{}",
        at_once: bool = True,
        active: bool = True,
    ) -> None:
        self.fold = Fold(Scheduler())
        self.records: list[Record] = []
        self.said: list[Any] = []
        self.held_back: list[tuple[str, bytes]] = []
        self.at_once = at_once
        self.now_ns = START_NS
        self.number = 0
        if active:
            self.activate(settings)
        self.tick(0)
        self.describe(leaves)
        self.tick(3)

    def activate(self, settings: bytes = b"{}") -> None:
        self.event(
            ProcessorActivated(
                at_ns=self.now_ns,
                by="me",
                reason="test",
                name="scheduler",
                version=1,
                settings=msgspec.Raw(settings),
            ),
            "scheduler",
        )

    def describe(self, leaves: Sequence[int], *, first: int = 1, model: str = H100) -> None:
        """Nodes n001, n002, ... of eight GPUs below leaves of so many each, and one spine."""
        at = first
        for leaf, size in enumerate(leaves, first):
            nodes = [f"n{number:03}" for number in range(at, at + size)]
            at += size
            for row, node in enumerate(nodes, 1):
                self.inventory(node, f"port/leaf{leaf}/{row}", model=model)
            ports = [PortDescribed(f"port/leaf{leaf}/{row}", f"nic/{node}/ib0")
                     for row, node in enumerate(nodes, 1)]  # fmt: skip
            up = [PortDescribed(f"port/leaf{leaf}/{60 + n}", f"port/spine1/{leaf}") for n in (0,)]
            self.observe("fabric_inventory", FabricInventoryReported(
                **self.stamp(f"leaf{leaf}"), switch=f"switch/leaf{leaf}", tier="leaf",
                transport="infiniband", ports=(*ports, *up),
            ))  # fmt: skip
        spine = tuple(PortDescribed(f"port/spine1/{n}", f"port/leaf{n}/60")
                      for n, _ in enumerate(leaves, first))  # fmt: skip
        self.observe("fabric_inventory", FabricInventoryReported(
            **self.stamp("spine1"), switch="switch/spine1", tier="spine", ports=spine))  # fmt: skip

    def inventory(self, node: str, port: str, *, model: str = H100, boot: str = "1") -> None:
        gpus = tuple(
            GpuDescribed(pci=f"0000:{bus:02x}:00.0", index=bus, model=model, nvlink_domain=node)
            for bus in range(8)
        )
        nics = tuple(
            NicDescribed(name=f"ib{rail}", switch_port=port if not rail else "", rail=rail)
            for rail in range(8)
        )
        told = InventoryReported(**self.stamp(node), gpus=gpus, nics=nics)
        self.observe("inventory", msgspec.structs.replace(told, boot_id=boot))

    def stamp(self, node: str) -> dict[str, Any]:
        self.number += 1
        return {"node": node, "start_ns": 1, "n": self.number, "at_ns": self.now_ns}

    def observe(self, kind: str, data: Observation) -> int:
        return self.put(telemetry_subject(data.node, kind), encode_observation(data))

    def event(self, data: msgspec.Struct, key: str, job: str = "") -> int:
        subject, payload = encode_conclusion(
            id=f"test/{len(self.records)}",
            source="/test",
            at_ns=self.now_ns,
            data=data,
            key=key,
            job=job,
        )
        return self.put(subject, payload)

    def put(self, subject: str, payload: bytes) -> int:
        record = Record(len(self.records) + 1, subject, 0, payload)
        self.records.append(record)
        emissions = self.fold.step(Input(record))
        state = self.fold.snapshot()
        self.fold = Fold(Scheduler())
        self.fold.restore(state)
        assert self.fold.snapshot() == state
        for emission in emissions:
            token = emission.subject.split(".")[2]
            self.said.append(decode_conclusion(token, emission.payload)[1])
            self.held_back.append((emission.subject, emission.payload))
        if self.at_once:
            self.flush()
        return record.seq

    def flush(self) -> None:
        while self.held_back:
            self.put(*self.held_back.pop(0))

    def tick(self, seconds: int = 1) -> None:
        self.now_ns += seconds * SECOND_NS
        self.observe("tick", ClockTicked(**self.stamp("clock")))

    def submit(self, job: str, spec: str = "", **fields: Any) -> int:
        data = JobSubmitted(
            at_ns=self.now_ns,
            by=fields.pop("by", "ann"),
            reason="test",
            job=job,
            nodes=fields.pop("nodes", ()),
            spec=spec,
            **fields,
        )
        return self.event(data, job)

    def end(self, job: str, *, requeued: bool = False) -> int:
        ended = JobEnded(at_ns=self.now_ns, by="ann", reason="done", job=job, requeued=requeued)
        return self.event(ended, job)

    def blame(self, component: str, incident: str = "i-1") -> None:
        kind = component.split("/", maxsplit=1)[0]
        verdict = FaultAttributed(
            at_ns=self.now_ns,
            reason="test",
            incident=incident,
            revision=0,
            verdict="attributed",
            fault_class="gpu.off_bus",
            culprits=(Culprit(kind=kind, id=component),),  # type: ignore[arg-type]
        )
        self.event(verdict, node_of(component) or incident)

    def close(self, incident: str = "i-1") -> None:
        closed = IncidentClosed(
            at_ns=self.now_ns, reason="test", incident=incident, outcome="recovered"
        )
        self.event(closed, incident)

    def told(self, kind: type[T], job: str = "") -> list[T]:
        """What was said of this kind, of one job if it is named."""
        return [each for each in self.said
                if isinstance(each, kind) and job in ("", getattr(each, "job", ""))]  # fmt: skip

    def nodes_of(self, job: str) -> tuple[str, ...]:
        """Where a job was put last; () where it never was."""
        placed = self.told(JobPlaced, job)
        return placed[-1].submission.node_names if placed else ()
