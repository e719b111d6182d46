"""What each fault looks like from outside: kernel lines, counters, exits and silences over time.

Pure: a fault and a cluster give a list of symptoms. The lines have the form that the driver and
the kernel print (NVIDIA/open-gpu-kernel-modules, docs.nvidia.com/deploy/xid-errors, tests of
leptonai/gpud and NVIDIA/NVSentinel); timings are of the order of what public reports show: lines of
one event within milliseconds, the process dead within a second.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, assert_never

import msgspec

from nemesis.schemas.codes import Action, FaultClass
from nemesis.schemas.components import gpu as gpu_name
from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.sim.cluster import Cluster, FaultKind, FaultPlanned

MS: Final = 1_000_000
SIGABRT: Final = 6  # std::terminate in the NCCL watchdog thread after a CUDA error
SIGKILL: Final = 9


class KernelLine(msgspec.Struct, frozen=True):
    """A node's kernel prints a line."""

    text: str
    priority: int


class RankStuck(msgspec.Struct, frozen=True):
    """A rank's GPU computes no more; its process lives on."""

    rank: int


class RankDies(msgspec.Struct, frozen=True):
    """A rank's process ends; returncode is negative for a signal."""

    rank: int
    returncode: int


class GpuLost(msgspec.Struct, frozen=True):
    """NVML answers GPU_IS_LOST from here on."""

    index: int


class GpuCounted(msgspec.Struct, frozen=True):
    """Readings of a GPU rise by so much, by channel name."""

    index: int
    rises: tuple[tuple[str, int], ...]


class NodeLost(msgspec.Struct, frozen=True):
    """Power is gone: ranks, agent and telemetry with it."""


Effect = KernelLine | RankStuck | RankDies | GpuLost | GpuCounted | NodeLost


class Symptom(msgspec.Struct, frozen=True):
    """Something that can be seen on a node, so long after the fault's onset."""

    after_ns: int
    node: str
    effect: Effect


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that really broke: what the ledger knows and NEMESIS does not."""

    kind: FaultKind
    onset_ns: int
    """From the start of the run."""
    node: str
    culprit: str
    """The component at fault, by its canonical name."""
    classes: tuple[FaultClass, ...]
    """Classes that are right to conclude."""
    lost_ranks: tuple[int, ...]
    """Ranks that cannot go on."""
    actions: tuple[Action, ...]
    """Recoveries that are right to decide."""
    symptoms: tuple[Symptom, ...]


def pid_of(rank: int) -> int:
    """The process id of a rank on its node."""
    return 40_000 + rank


def plan_faults(cluster: Cluster, faults: Sequence[FaultPlanned], seed: int) -> list[Fault]:
    """The faults of a run, targets drawn by the seed where the scenario names none."""
    random = Random(f"{seed}/faults")
    planned = []
    for fault in faults:
        node = fault.node or random.choice(cluster.job_nodes)
        index = fault.gpu if fault.gpu >= 0 else random.randrange(cluster.ranks_per_node)
        planned.append(_fault(cluster, fault, node, index, random))
    return planned


def _fault(cluster: Cluster, planned: FaultPlanned, node: str, index: int, random: Random) -> Fault:
    ranks = cluster.ranks_of(node)
    rank = ranks[index] if ranks else -1
    gpu = gpu_name(node, cluster.node.gpus[index])
    classes: tuple[FaultClass, ...]
    actions: tuple[Action, ...] = ("shrink", "swap_node")
    lost: tuple[int, ...] = (rank,)
    match planned.kind:
        case "xid79":
            culprit = gpu
            classes = ("gpu.off_bus",)
            effects = _off_the_bus(cluster, node, index, rank, random)
        case "xid48":
            culprit = gpu
            classes = ("gpu.memory",)
            effects = _double_bit_error(cluster, node, index, rank, random)
        case "rank-exit":
            culprit = rank_name(cluster.job.name, rank)
            classes = ("app.program", "unknown")
            actions = ("shrink", "swap_node", "restart_rank", "restart_job")
            effects = [(0, RankDies(rank, random.choice((-SIGKILL, -SIGABRT, 1))))]
        case "node-lost":
            culprit = node_name(node)
            classes = ("unknown",)
            lost = ranks
            effects = [(0, NodeLost())]
        case _:
            assert_never(planned.kind)
    return Fault(
        kind=planned.kind,
        onset_ns=round(planned.after_s * 1000) * MS,
        node=node,
        culprit=culprit,
        classes=classes,
        lost_ranks=lost,
        actions=actions,
        symptoms=tuple(Symptom(after, node, effect) for after, effect in effects),
    )


def _off_the_bus(
    cluster: Cluster, node: str, index: int, rank: int, random: Random
) -> list[tuple[int, Effect]]:
    """Xid 79: the link goes, NVML loses the device, peers see NVSwitch links go, the rank dies."""
    device = cluster.gpus_of(node)[index]
    address, slot = device.pci, device.pci.removesuffix(".0")
    lines = [
        (f"NVRM: GPU at PCI:{slot}: {device.uuid}", 3),
        (f"NVRM: GPU Board Serial Number: {device.serial}", 3),
        (
            f"NVRM: Xid (PCI:{slot}): 79, pid='<unknown>', name=<unknown>, "
            "GPU has fallen off the bus.",
            3,
        ),
        (f"NVRM: GPU {address}: GPU has fallen off the bus.", 3),
        (f"NVRM: GPU {address}: GPU serial number is {device.serial}.", 3),
        (
            f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x0 (None) "
            "to 0x2 (Node Reboot Required)",
            3,
        ),
    ]
    effects: list[tuple[int, Effect]] = [
        (at * MS // 2, KernelLine(text, priority)) for at, (text, priority) in enumerate(lines)
    ]
    effects += [(0, GpuLost(index)), (0, RankStuck(rank))]
    # the peers' links to the dead GPU go down a little later: fallout, not cause
    for at, switch in enumerate(cluster.node.nvswitches):
        text = (
            f"nvidia-nvswitch{at}: SXid (PCI:0000:{switch}): 20034, Fatal, "
            f"Link {random.randrange(64)} LTSSM Fault Up"
        )
        effects.append(((320 + 2 * at) * MS, KernelLine(text, 3)))
    effects.append((450 * MS, RankDies(rank, -SIGABRT)))
    return effects


def _double_bit_error(
    cluster: Cluster, node: str, index: int, rank: int, random: Random
) -> list[tuple[int, Effect]]:
    """Xid 48 with what follows it: 171 says DRAM, 63 marks the row, 154 asks for a reset."""
    slot = cluster.gpus_of(node)[index].pci.removesuffix(".0")
    address = random.randrange(1 << 33, 1 << 36) & ~0x1F
    partition, half = random.randrange(10), random.randrange(2)
    process = f"pid={pid_of(rank)}, name=python3"
    lines = [
        f"NVRM: Xid (PCI:{slot}): 48, {process}, An uncorrectable double bit error (DBE) has been "
        f"detected on GPU in the framebuffer at physAddr {address:#x} partition {partition}, "
        f"subpartition {half}.",
        f"NVRM: Xid (PCI:{slot}): 171, HBM, Uncorrectable DRAM error in FBPA {partition} "
        f"subpartition {half} physAddr {address:#x}",
        f"NVRM: Xid (PCI:{slot}): 63, {process}, Row Remapper: New row ({address:#018x}) marked "
        "for remapping, reset gpu to activate.",
        f"NVRM: Xid (PCI:{slot}): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x1 (GPU Reset Required)",
    ]
    effects: list[tuple[int, Effect]] = [
        (at * MS, KernelLine(text, 3)) for at, text in enumerate(lines)
    ]
    effects.append((0, GpuCounted(index, (("dram_ue_count", 1), ("remap_pending", 1)))))
    effects.append((0, RankStuck(rank)))
    # torch raises "CUDA error: uncorrectable ECC error encountered": exit status 1
    effects.append((180 * MS, RankDies(rank, 1)))
    return effects
