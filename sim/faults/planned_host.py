"""Faults of hosts, storage and input pipelines, as a scenario plans them."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from nemesis.sim.faults.plan import Answer, OnRank, PerMille, Planned, Ppm, Right, Seconds

_SLOW: Final = Right(
    classes=("straggler.host",),
    components=("{node}",),
    actions=("watch", "rebalance", "swap_node", "cordon_node"),
    harmless=("{ranks}",),
)


class NodeLost(Planned, kw_only=True, frozen=True, tag="node-lost"):
    """A whole node loses power."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("unknown",),
        components=("{node}",),
        actions=("shrink", "swap_node"),
        harmless=("{ranks}",),
    )


class HostHang(Planned, kw_only=True, frozen=True, tag="host-hang"):
    """A host hangs whole: no process of it runs any more, and its links stay up."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("unknown", "host.service"),
        components=("{node}",),
        actions=("shrink", "swap_node", "reboot_node"),
        harmless=("{ranks}",),
    )


class HostContention(Planned, kw_only=True, frozen=True, tag="host-contention"):
    """Another process takes a node's CPUs: every rank of the node is late."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("straggler.host",),
        components=("{node}",),
        actions=("watch", "rebalance", "swap_node"),
    )

    slowdown_per_mille: PerMille = 300
    pressure_ppm: Ppm = 620_000
    run_queue_wait_ppm: Ppm = 340_000
    steal_ppm: Ppm = 180_000
    ramp_s: Seconds = 3.0
    lasts_s: Seconds = 0.0
    """0: until the end."""


class CpuSteal(Planned, kw_only=True, frozen=True, tag="cpu-steal"):
    """The hypervisor gives a virtual machine's CPUs to others; inside, nothing else is loaded."""

    RIGHT: ClassVar[Answer] = _SLOW

    slowdown_per_mille: PerMille = 300
    steal_ppm: Ppm = 350_000
    lasts_s: Seconds = 0.0


class NumaMisplaced(Planned, kw_only=True, frozen=True, tag="numa-misplaced"):
    """A node's processes run on one socket and their memory lies on the other."""

    RIGHT: ClassVar[Answer] = _SLOW

    slowdown_per_mille: PerMille = 250
    remote_ppm: Ppm = 700_000
    lasts_s: Seconds = 0.0


class ThpFallback(Planned, kw_only=True, frozen=True, tag="thp-fallback"):
    """Memory is fragmented: huge pages are not to be had, and the kernel stalls to make some."""

    RIGHT: ClassVar[Answer] = _SLOW

    slowdown_per_mille: PerMille = 250
    fallbacks_count: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 32_000
    lasts_s: Seconds = 40.0


class DiskStall(Planned, kw_only=True, frozen=True, tag="disk-stall"):
    """A local disk fails requests: whoever reads from it waits, on this node alone."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("straggler.host", "storage"),
        components=("{node}", "storage/{node_name}/nvme1n1"),
        actions=("watch", "swap_node", "cordon_node", "drain_node"),
        harmless=("{ranks}",),
    )

    slowdown_per_mille: PerMille = 500
    lasts_s: Seconds = 0.0


class OomKill(OnRank, kw_only=True, frozen=True, tag="oom-kill"):
    """A host runs out of memory and the kernel kills the largest process: a rank."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("host.oom", "host.memory"),
        components=("{process}", "{rank}", "{node}"),
        actions=("restart_rank", "restart_job", "shrink", "swap_node"),
    )

    ramp_s: Seconds = 8.0


class LoaderKilled(OnRank, kw_only=True, frozen=True, tag="loader-killed"):
    """The kernel kills a data loader's worker for memory; its rank dies of it, others abort."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("host.oom", "host.memory", "dataloader"),
        components=("{loader}", "{node}"),
        actions=("restart_rank", "restart_job", "shrink", "swap_node"),
        harmless=("{rank}",),
    )

    ramp_s: Seconds = 8.0
    dies_after_s: Seconds = 2.0
    """When the rank notices that its worker is gone."""


class LoaderStall(OnRank, kw_only=True, frozen=True, tag="loader-stall"):
    """A rank waits for its next batch, step after step; its GPU and its host are idle."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("dataloader",),
        components=("{rank}", "{node}"),
        actions=("watch", "fix_program", "fix_config", "rebalance", "none"),
    )

    wait_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 900
    steps_count: Annotated[int, msgspec.Meta(ge=1, le=500)] = 40


class CheckpointStall(Planned, kw_only=True, frozen=True, tag="checkpoint-stall"):
    """The file server stops answering while a checkpoint is written: rank 0 hangs in its save, and
    every other rank of the job times out waiting for it."""

    SEAT: ClassVar[str] = "storage"
    RIGHT: ClassVar[Answer] = Right(
        classes=("storage",),
        components=("{storage}",),
        actions=("raise_timeout", "none", "watch", "pause", "restart_job"),
        harmless=("rank/{job}/0",),
    )

    server: str = "10.0.40.11"
    lasts_s: Annotated[float, msgspec.Meta(ge=1.0, le=3_600.0)] = 45.0


class DimmUncorrectable(Planned, kw_only=True, frozen=True, tag="dimm-uncorrectable"):
    """A memory module of the host fails: corrected errors, then one that kills a rank."""

    SEAT: ClassVar[str] = "dimm"
    RIGHT: ClassVar[Answer] = Right(
        classes=("host.memory",),
        components=("{dimm}", "{node}"),
        actions=("drain_node", "swap_node", "shrink", "replace_hardware"),
        harmless=("{ranks}",),
    )

    corrected_count: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 40


class HostMisset(Planned, kw_only=True, frozen=True, tag="host-misset"):
    """A node came back from repair set otherwise than its peers, and its ranks do not get going."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("host.config", "host.service", "software.version"),
        components=(
            "{node}",
            "{misset}",
            "software/{node_name}/nvidia-driver",
            "service/{node_name}/nvidia-fabricmanager",
        ),
        actions=("fix_config", "restart_service", "swap_node", "shrink"),
        harmless=("{ranks}",),
    )

    setting: Literal["nvidia_driver", "fabric_manager", "memlock_kib", "pcie_acs", "shm_mib"] = (
        "nvidia_driver"
    )


class ClockSkew(Planned, kw_only=True, frozen=True, tag="clock-skew"):
    """A node lost its time server: its clock is off by seconds, and it says that it may be."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("host.config", "host.service"),
        components=("{node}", "service/{node_name}/chronyd"),
        actions=("none", "watch", "fix_config", "restart_service"),
        harmless=("{ranks}",),
    )

    offset_ms: Annotated[int, msgspec.Meta(ge=-600_000, le=600_000)] = 2_500
