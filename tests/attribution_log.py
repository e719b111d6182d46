"""A log for tests of attribution: one helper a fact, and what was concluded."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nemesis.processors.attribution.attribution import Attribution
from nemesis.processors.processor import Processor
from nemesis.schemas import operated
from nemesis.schemas.channels import (
    GPU_CHANNELS,
    GPU_STATE_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    NIC_STATE_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import (
    ClockTicked,
    CollectiveRecorded,
    FabricSampled,
    GpuDescribed,
    GroupDigest,
    InventoryReported,
    KernelLineLogged,
    NicDescribed,
    Observation,
    PortSeen,
    ProcessExited,
    SampleTaken,
    SpoolAnnounced,
    StepsTimed,
)
from nemesis.schemas.watched import CoverageReported

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS


class Log:
    """Facts in order, each handed to the processor as it is written."""

    def __init__(self, processor: Processor | None = None) -> None:
        self.processor: Processor = processor or Attribution()
        self.facts: list[Fact] = []
        self.conclusions: list[Conclusion] = []
        self.now_ns = START_NS
        self._numbers: dict[tuple[str, str], int] = {}
        self.tick(0)

    @property
    def verdicts(self) -> list[FaultAttributed]:
        """Everything concluded, in order."""
        return [each.data for each in self.conclusions if isinstance(each.data, FaultAttributed)]

    @property
    def last(self) -> FaultAttributed:
        """The only incident's last verdict."""
        assert len({verdict.incident for verdict in self.verdicts}) == 1, self.verdicts
        return self.verdicts[-1]

    def tick(self, seconds: float = 1.0) -> Sequence[Conclusion]:
        """Log time goes on."""
        self.now_ns += round(seconds * SECOND_NS)
        return self._observe("tick", ClockTicked, "clock")

    def kernel(self, text: str, node: str = "n1", **fields: Any) -> Sequence[Conclusion]:
        """A node's kernel prints a line."""
        return self._observe("kernel", KernelLineLogged, node, text=text, **fields)

    def exited(
        self, rank: int, *, node: str = "n1", job: str = "llama", **fields: Any
    ) -> Sequence[Conclusion]:
        """A rank's process ends."""
        return self._observe("process", ProcessExited, node, job=job, rank=rank, **fields)

    def digest(
        self, rank: int, *groups: GroupDigest, node: str = "n1", job: str = "llama", **fields: Any
    ) -> Sequence[Conclusion]:
        """A rank's flight recorder is read."""
        return self._observe(
            "collective", CollectiveRecorded, node, job=job, rank=rank, groups=groups, **fields
        )

    def sample(self, node: str, **fields: Any) -> Sequence[Conclusion]:
        """A node is polled."""
        return self._observe("sample", SampleTaken, node, **fields)

    def fabric(self, switch: str, *ports: PortSeen, **fields: Any) -> Sequence[Conclusion]:
        """A switch is polled."""
        return self._observe(
            "fabric", FabricSampled, switch, switch=f"switch/{switch}", ports=ports, **fields
        )

    def timed(self, step: int, *step_ns: int, job: str = "llama", **fields: Any) -> None:
        """Somebody tells how long each rank took for a step."""
        self._observe("step_times", StepsTimed, "n1", job=job, step=step, step_ns=step_ns, **fields)

    def spooled(self, node: str) -> Sequence[Conclusion]:
        """A node says that it was cut off from the log."""
        return self._observe("spool", SpoolAnnounced, node)

    def unwatched(self, node: str, **fields: Any) -> Sequence[Conclusion]:
        """A node's producer says that it was told to end."""
        return self._observe("coverage", CoverageReported, node, ends=True, **fields)

    def inventory(
        self, node: str, *pcis: str, serial: str = "", **fields: Any
    ) -> Sequence[Conclusion]:
        """A node says what it is made of."""
        gpus = tuple(GpuDescribed(pci=pci, index=at, serial=serial) for at, pci in enumerate(pcis))
        return self._observe("inventory", InventoryReported, node, gpus=gpus, **fields)

    def submitted(
        self, *nodes: str, job: str = "llama", ranks_per_node: int = 2
    ) -> Sequence[Conclusion]:
        """A job is submitted."""
        return self.event(
            "job_submitted",
            operated.JobSubmitted(
                at_ns=self.now_ns,
                by="alice",
                reason="train",
                job=job,
                nodes=nodes,
                ranks_per_node=ranks_per_node,
            ),
        )

    def told(self, kind: str, struct: type[Observation], node: str, **fields: Any) -> None:
        """Any other observation of a node."""
        self._observe(kind, struct, node, **fields)

    def event(self, kind: str, data: Any, key: str = "k") -> Sequence[Conclusion]:
        """Somebody else's fact."""
        return self._take(kind, key, f"{kind}/{len(self.facts)}", self.now_ns, data)

    def lose(self, node: str, kind: str) -> None:
        """A fact that a producer numbered does not reach the log."""
        self._numbers[node, kind] += 1

    def _observe(
        self, kind: str, struct: type[Observation], node: str, **fields: Any
    ) -> Sequence[Conclusion]:
        number = self._numbers[node, kind] = self._numbers.get((node, kind), 0) + 1
        fields.setdefault("at_ns", self.now_ns)
        data = struct(node=node, start_ns=1, n=number, **fields)
        return self._take(kind, node, f"{node}/{kind}/1/{number}", data.at_ns, data)

    def _take(
        self, kind: str, key: str, identity: str, at_ns: int, data: Any
    ) -> Sequence[Conclusion]:
        fact = Fact(
            seq=len(self.facts) + 1,
            kind=kind,
            key=key,
            id=identity,
            at_ns=at_ns,
            log_time_ns=self.now_ns,
            late=at_ns < self.now_ns - 30 * SECOND_NS,
            data=data,
        )
        self.facts.append(fact)
        concluded = self.processor.step(fact)
        self.conclusions += concluded
        return concluded


def xid(code: int, pci: str = "0000:1b:00", rest: str = "") -> str:
    """A line of NVIDIA's driver."""
    return f"NVRM: Xid (PCI:{pci}): {code}, {rest}"


def cluster(*nodes: str, log: Log | None = None) -> Log:
    """A log in which one job runs on two GPUs of each node."""
    log = log or Log()
    for node in nodes:
        log.inventory(node, "0000:1b:00.0", "0000:1c:00.0")
    log.submitted(*nodes)
    return log


def wired(*nodes: str, nics: int = 3) -> Log:
    """As `cluster`, with NICs: the first ones on leaf1, the others each on a leaf of its own."""
    log = Log()
    for at, node in enumerate(nodes):
        places = tuple(
            NicDescribed(
                name=f"mlx5_{index}",
                pci=f"0000:{0x40 + index:x}:00.0",
                switch_port=f"port/leaf{index + 1}/{at + 1}",
            )
            for index in range(nics)
        )
        log.inventory(node, "0000:1b:00.0", "0000:1c:00.0", nics=places)
    log.submitted(*nodes)
    return log


def _block(channels: Sequence[str], rows: Sequence[dict[str, int]]) -> bytes:
    values = [row.get(channel, 0) for row in rows for channel in channels]
    return np.array(values, "<i8").tobytes()


def gpu_block(*rows: dict[str, int]) -> bytes:
    """A sample's GPU section: a row a GPU, the channels that are not zero."""
    return _block(GPU_CHANNELS, rows)


def nic_block(*rows: dict[str, int]) -> bytes:
    """A sample's NIC section; ports are up unless a row says otherwise."""
    return _block(NIC_CHANNELS, [{"port_up": 1, **row} for row in rows])


def host_block(**readings: int) -> bytes:
    """A sample's host section."""
    return _block(HOST_CHANNELS, [readings])


def step_block(*rows: dict[str, int]) -> bytes:
    """A sample's steps."""
    return _block(STEP_CHANNELS, rows)


def gpu_state_block(*rows: dict[str, int]) -> bytes:
    """The GPUs' section of a reading of device states."""
    return _block(GPU_STATE_CHANNELS, rows)


def nic_state_block(*rows: dict[str, int]) -> bytes:
    """The NICs' section of a reading of device states."""
    return _block(NIC_STATE_CHANNELS, rows)
