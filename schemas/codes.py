"""Closed lists that facts speak in: verdicts, fault classes, recovery actions, component kinds."""

from typing import Final, Literal, get_args

Verdict = Literal["attributed", "class-only", "insufficient", "no-fault"]

FaultClass = Literal[
    "gpu.off_bus",
    "gpu.memory",
    "gpu.thermal",
    "gpu.driver",
    "gpu.stall",
    "nvlink",
    "nic",
    "network.link",
    "network.fabric",
    "network.pause",
    "network.config",
    "straggler.gpu",
    "straggler.host",
    "straggler.network",
    "desync",
    "app.stall",
    "app.timeout",
    "app.oom",
    "app.program",
    "dataloader",
    "storage",
    "host.memory",
    "host.oom",
    "host.config",
    "host.service",
    "software.version",
    "nccl.bug",
    "silent_corruption",
    "none",
    "unknown",
]

Signature = Literal[
    "",
    "ecc_contained",
    "ecc_uncontained",
    "row_remap_pending",
    "row_remap_failed",
    "hardware_defect",
    "link_recovered",
    "transient",
    "not_understood",
    "process_stopped",
    "process_traced",
]
"""What sets the rung where the class alone does not. hardware_defect: the part itself says that it
must be replaced (SRAM threshold, remap failure on many banks); link_recovered: it is up again;
transient: it is over; not_understood: no
rule explains what was seen; process_stopped: by a signal, as if killed, and nobody knows by whom;
process_traced: by a debugger, so somebody is at work on it."""

Action = Literal[
    "none",
    "watch",
    "collect_more",
    "fix_program",
    "fix_config",
    "raise_timeout",
    "rebalance",
    "reinit_communicator",
    "restart_rank",
    "restore_from_peer",
    "shrink",
    "swap_node",
    "restart_job",
    "restart_service",
    "pause",
    "cordon_node",
    "reset_gpu",
    "reboot_node",
    "drain_node",
    "replace_hardware",
    "fix_fabric",
]

LogSource = Literal[
    "program",
    "torch",
    "nccl",
    "ras",
    "recorder",
    "launcher",
    "scheduler",
    "health",
    "service",
    "network",
    "note",
]
"""Who wrote a line: the training program itself (tracebacks, its own words), PyTorch's distributed
library, NCCL, its RAS client, an analyser of flight recorders, torchrun and the like, Slurm or
Kubernetes, a health agent, a service of the host, the network's own tools, or a person."""

TrialOutcome = Literal["passed", "failed", "hung", "measured"]
"""measured: a number, and nobody says whether it is good."""

ComponentKind = Literal[
    "gpu",
    "nic",
    "port",
    "link",
    "switch",
    "nvlink",
    "nvswitch",
    "node",
    "rack",
    "rank",
    "process",
    "dimm",
    "service",
    "config",
    "program",
    "storage",
    "fabric",
    "software",
    "job",
]

COMPONENT_KINDS: Final[tuple[str, ...]] = get_args(ComponentKind)
FAULT_CLASSES: Final[tuple[str, ...]] = get_args(FaultClass)
SIGNATURES: Final[tuple[str, ...]] = get_args(Signature)
ACTIONS: Final[tuple[str, ...]] = get_args(Action)
