"""What the GPUs and hosts of a job tell while some of its ranks are slow.

Why: a slow rank alone proves no cause, and nearly all samples of a healthy cluster need no look at
clocks and pressure. How: only while a job has slow ranks are the samples of its nodes read for
clocks, the driver's reasons to lower them, and the host's pressure; how often each was seen counts,
because one poll of a noisy reading proves nothing. Not here: what it proves (slow_findings.py).

Bits: NVML's clocks event reasons (nvml.h). Pressure: share of time in which some task waited (Linux
Documentation/accounting/psi.rst); run queue: wait / (run + wait) of the trainer's threads
(/proc/<pid>/task/<tid>/schedstat), where a spinner among four others on two CPUs waits 765 ms/s.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution.findings import Proof
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, HOST_CHANNELS
from nemesis.schemas.facts import Fact

THERMAL_BITS: Final = 0x20 | 0x40  # software and hardware thermal slowdown
BRAKE_BITS: Final = 0x8 | 0x80  # hardware slowdown, hardware power brake
# application clocks, the driver's power cap: usual where all GPUs have it, a cause where one has
SET_BITS: Final = 0x2 | 0x4
IDLE_BIT: Final = 0x1
LOW_CLOCK_PPM: Final = 900_000  # of the median of the node's GPUs; they scatter by 2 %
LIMITS_PPM: Final = {
    "cpu_pressure_ppm": 100_000,
    "run_queue_wait_ppm": 100_000,
    "memory_pressure_ppm": 100_000,
    "io_pressure_ppm": 100_000,
    "cpu_steal_ppm": 50_000,
    "numa_remote_ppm": 200_000,
}
"""From which on a reading bears on how fast a rank gets to its next collective."""
HOST_SAYS: Final = {
    "cpu_pressure_ppm": "tasks wait for a CPU",
    "run_queue_wait_ppm": "the ranks' threads wait in the run queue",
    "memory_pressure_ppm": "tasks wait for memory",
    "io_pressure_ppm": "tasks wait for storage",
    "cpu_steal_ppm": "the hypervisor takes the CPUs away",
    "numa_remote_ppm": "memory of other NUMA nodes is used",
}
_INT64: Final = np.dtype("<i8")
_HOST: Final = {name: HOST_CHANNELS.index(name) for name in LIMITS_PPM}
_CLOCK, _REASONS, _TEMP = (
    GPU_CHANNELS.index(name) for name in ("sm_clock_mhz", "clock_event_reasons", "temp_c")
)


class GpuSlowness(msgspec.Struct):
    """One GPU that lowered its clock while its job was slow."""

    proof: Proof
    """The latest poll that shows it."""
    polls_count: int = 0
    """In which its clock was lowered."""
    thermal_count: int = 0
    """Of those, for heat."""


class NodeSlowness(msgspec.Struct):
    """One node of a job with slow ranks."""

    job: str
    polls_count: int = 0
    gpus: dict[int, GpuSlowness] = {}
    """By the GPU's place in the inventory; those that never lowered their clock are not there."""
    host: dict[str, int] = {}
    """By channel: the latest reading, in ppm."""
    host_count: dict[str, int] = {}
    """By channel: polls in which it was above its limit."""
    host_proof: Proof | None = None


class Slowness(msgspec.Struct):
    """All nodes of jobs with slow ranks."""

    nodes: dict[str, NodeSlowness] = {}

    def take(self, fact: Fact) -> None:
        """One sample of a node whose job has slow ranks.

        An agent's own sample has steps and no devices: it says nothing about them either way.
        """
        data = fact.data
        if not (data.gpu_count or data.host):
            return
        node = self.nodes.get(fact.key)
        if node is None or node.job != data.job:
            node = self.nodes[fact.key] = NodeSlowness(job=data.job)
        node.polls_count += 1
        _take_gpus(node, fact)
        _take_host(node, fact)

    def forget(self, jobs: Sequence[str]) -> None:
        """Nobody is slow in these jobs any more."""
        for name in [name for name, node in self.nodes.items() if node.job in jobs]:
            del self.nodes[name]


def _take_gpus(node: NodeSlowness, fact: Fact) -> None:
    count, block = fact.data.gpu_count, fact.data.gpu
    if not count or len(block) % (8 * count) or len(block) < 8 * count * (_REASONS + 1):
        return
    table = np.frombuffer(block, _INT64).reshape(count, -1)
    clocks, reasons = table[:, _CLOCK].tolist(), table[:, _REASONS].tolist()
    working = sorted(
        clock
        for clock, reason in zip(clocks, reasons, strict=True)
        if clock != ABSENT and not (reason != ABSENT and reason & IDLE_BIT)
    )
    median = working[len(working) // 2] if working else 0
    masks = [0 if reason == ABSENT else reason for reason in reasons]
    # what most GPUs of a node say is how the node is, and slows none of them apart
    odd_bits = SET_BITS & ~_most_have(masks)
    for row, (clock, bits) in enumerate(zip(clocks, masks, strict=True)):
        is_low = clock > 0 and clock * 1_000_000 < median * LOW_CLOCK_PPM
        if bits & IDLE_BIT or not (bits & (THERMAL_BITS | BRAKE_BITS | odd_bits) or is_low):
            continue
        says = f"its clock is {clock} MHz (the node's median: {median}), reasons {bits:#x}"
        temp = int(table[row, _TEMP])
        if temp != ABSENT:
            says += f", {temp} C"
        proof = Proof(fact.id, fact.seq, says)
        gpu = node.gpus.setdefault(row, GpuSlowness(proof))
        gpu.proof = proof
        gpu.polls_count += 1
        gpu.thermal_count += bool(bits & THERMAL_BITS)


def _most_have(masks: Sequence[int]) -> int:
    """The bits of SET_BITS that more than half of the GPUs have."""
    bits = (bit for bit in (0x2, 0x4) if 2 * sum(bool(each & bit) for each in masks) > len(masks))
    return sum(bits)


def _take_host(node: NodeSlowness, fact: Fact) -> None:
    if len(fact.data.host) % 8:
        return
    row = np.frombuffer(fact.data.host, _INT64).tolist()
    above: list[str] = []
    for name, column in _HOST.items():
        if column >= len(row) or row[column] == ABSENT:
            continue
        node.host[name] = row[column]
        if row[column] >= LIMITS_PPM[name]:
            node.host_count[name] = node.host_count.get(name, 0) + 1
            above.append(
                f"{HOST_SAYS[name]} ({name.removesuffix('_ppm')} {row[column] // 10_000} %)"
            )
    if above:
        node.host_proof = Proof(fact.id, fact.seq, ", ".join(above))
