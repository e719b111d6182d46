"""Faults of the training program and its software, as a scenario plans them."""

from typing import ClassVar, Final, Literal

from nemesis.sim.faults.plan import Answer, Few, OnRank, Planned, Right

_PROGRAM: Final = ("program/{job}",)


class RankExit(OnRank, kw_only=True, frozen=True, tag="rank-exit"):
    """A rank's process ends."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("app.program", "unknown"),
        components=("{rank}",),
        actions=("restart_rank", "shrink", "swap_node", "restart_job"),
    )


class Desync(OnRank, kw_only=True, frozen=True, tag="desync"):
    """A rank calls another collective than the others, and everybody waits for ever."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("desync",),
        components=("{rank}", *_PROGRAM),
        actions=("fix_program",),
    )

    differs_in: Literal["operation", "size", "order", "absent"] = "operation"
    """absent: it never calls it, and computes on; order: it calls two of its groups the other way
    round, or, of a job that is one group, skips a call."""


class IllegalAccess(Planned, kw_only=True, frozen=True, tag="illegal-access"):
    """A kernel of the program reads beyond its memory on several GPUs at once (Xid 31, then 43)."""

    SEAT: ClassVar[str] = "program"
    RIGHT: ClassVar[Answer] = Right(
        classes=("app.program",),
        components=_PROGRAM,
        actions=("fix_program", "restart_job", "restart_rank"),
        harmless=("{ranks}",),
    )

    gpus_count: Few = 4


class ContextError(OnRank, kw_only=True, frozen=True, tag="context-error"):
    """A CUDA context is in error (Xid 43): its program hangs in it, and does not end."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("app.program", "app.stall", "gpu.stall"),
        components=("{rank}", *_PROGRAM),
        actions=("fix_program", "restart_rank", "restart_job", "shrink", "swap_node"),
    )

    prints: bool = True
    """Whether the program says what its last call returned, before it hangs."""


class RankOom(OnRank, kw_only=True, frozen=True, tag="rank-oom"):
    """One rank asks for more memory than its GPU has, and ends with a traceback."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("app.oom",),
        components=("{rank}", *_PROGRAM),
        actions=("fix_program", "restart_job", "restart_rank", "shrink"),
    )


class NanLoss(OnRank, kw_only=True, frozen=True, tag="nan-loss"):
    """One rank's gradients hold NaN; after the next all-reduce all ranks' do."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("silent_corruption", "app.program"),
        components=("{rank}", "{gpu}", *_PROGRAM),
        # nothing tells a NaN of the program from one that its GPU made
        actions=(
            "shrink",
            "swap_node",
            "cordon_node",
            "drain_node",
            "restart_job",
            "fix_program",
        ),
    )


class NcclVersion(Planned, kw_only=True, frozen=True, tag="nccl-version"):
    """A node has another release of NCCL: the job hangs in its first collective there."""

    SEAT: ClassVar[str] = "software"
    RIGHT: ClassVar[Answer] = Right(
        classes=("software.version",),
        components=("{software}", "{node}"),
        actions=("fix_config", "swap_node", "shrink"),
        harmless=("{ranks}",),
    )

    version: str = "2.21.5"
