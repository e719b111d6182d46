"""A log with one scheduler for a test, and what it is told of a cluster."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from nemesis.processors.processor import Processor
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.components import node_of
from nemesis.schemas.inferred import Culprit, FaultAttributed, IncidentClosed
from nemesis.schemas.observed import (
    FabricInventoryReported,
    GpuDescribed,
    InventoryReported,
    NicDescribed,
    PortDescribed,
)
from nemesis.schemas.operated import JobEnded, JobSubmitted, ProcessorActivated
from nemesis.schemas.scheduled import JobPlaced
from tests.log_cell import SECOND_NS, LogCell

START_NS = 1_800_000_000 * SECOND_NS
H100 = "NVIDIA H100 80GB HBM3"
T = TypeVar("T")


class Cell(LogCell):
    """A log with one scheduler, and with whatever processors are named beside it."""

    def __init__(
        self,
        leaves: Sequence[int] = (4, 4),
        *,
        settings: bytes = b"{}",
        at_once: bool = True,
        active: bool = True,
        beside: Sequence[Callable[[], Processor]] = (),
    ) -> None:
        super().__init__(Scheduler, *beside, start_ns=START_NS, at_once=at_once)
        if active:
            self.activate(settings)
        self.tick(0)
        self.describe(leaves)
        self.tick(3)

    def activate(self, settings: bytes = b"{}") -> None:
        raw = msgspec.Raw(settings)
        self.operate(ProcessorActivated, "scheduler", name="scheduler", version=1, settings=raw)

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
                **self.stamp(f"leaf{leaf}", "fabric_inventory"), switch=f"switch/leaf{leaf}",
                tier="leaf", transport="infiniband", ports=(*ports, *up),
            ))  # fmt: skip
        spine = tuple(PortDescribed(f"port/spine1/{n}", f"port/leaf{n}/60")
                      for n, _ in enumerate(leaves, first))  # fmt: skip
        self.observe("fabric_inventory", FabricInventoryReported(
            **self.stamp("spine1", "fabric_inventory"), switch="switch/spine1", tier="spine",
            ports=spine,
        ))  # fmt: skip

    def inventory(self, node: str, port: str, *, model: str = H100, boot: str = "1") -> None:
        gpus = tuple(
            GpuDescribed(pci=f"0000:{bus:02x}:00.0", index=bus, model=model, nvlink_domain=node)
            for bus in range(8)
        )
        nics = tuple(
            NicDescribed(name=f"ib{rail}", switch_port=port if not rail else "", rail=rail)
            for rail in range(8)
        )
        told = InventoryReported(**self.stamp(node, "inventory"), gpus=gpus, nics=nics)
        self.observe("inventory", msgspec.structs.replace(told, boot_id=boot))

    def tick(self, seconds: int = 1) -> None:
        """One tick, so long after the last."""
        self.tick_after(seconds * SECOND_NS)

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
