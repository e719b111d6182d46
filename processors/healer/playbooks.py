"""Which recoveries are enough for which fault, as data.

Two tables. For a running job: the steps that would cure it, in order of preference, each with what
must hold for it; the ladder takes the first that is safe. For a part alone (triage of files, a node
without a job): the one action a person should take. A policy may replace the first table's rows,
never the safety rules.
The rows follow the smallest safe recovery that public reports name for each class: NVIDIA's Xid
catalogue (docs.nvidia.com/deploy/xid-errors), Llama 3's failure table (arXiv 2407.21783, table 5).
"""

from collections.abc import Mapping
from typing import Final, cast

from nemesis.schemas.codes import Action, FaultClass, Signature
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.policy import (
    PREDICTED_ACT,
    PREDICTED_WATCH,
    PREDICTED_WORTH,
    Playbook,
    Step,
)

LADDER: Final[tuple[Action, ...]] = (
    "none",
    "collect_more",
    "watch",
    "raise_timeout",
    "fix_config",
    "fix_program",
    "fix_fabric",
    "rebalance",
    "reinit_communicator",
    "restart_rank",
    "restart_service",
    "restore_from_peer",
    "shrink",
    "swap_node",
    "restart_job",
    "cordon_node",
    "reset_gpu",
    "reboot_node",
    "drain_node",
    "replace_hardware",
    "pause",
)
"""Cheapest first."""

RANK_OF: Final[Mapping[Action, int]] = {action: at for at, action in enumerate(LADDER)}

_ELSEWHERE: Final[tuple[Action, ...]] = ("swap_node", "shrink", "restart_job")
"""The part cannot be trusted, the state of the others can: leave it, without losing a step."""

PLAYBOOKS: Final[Mapping[str, Playbook]] = {
    "gpu.off_bus": _ELSEWHERE,
    "gpu.memory": ("drain_node",),
    "gpu.thermal": ("cordon_node",),
    "gpu.driver": _ELSEWHERE,
    "gpu.stall": _ELSEWHERE,
    "nvlink": _ELSEWHERE,
    "nic": _ELSEWHERE,
    "network.link": _ELSEWHERE,
    "network.fabric": ("fix_fabric",),
    "network.pause": ("fix_fabric",),
    "network.config": ("fix_config",),
    "straggler.gpu": ("cordon_node",),
    "straggler.host": ("watch",),
    "straggler.network": ("watch",),
    "desync": ("fix_program",),
    "app.stall": ("restart_job",),
    "app.timeout": ("raise_timeout",),
    "app.oom": ("restart_job",),
    "app.program": ("restart_job",),
    "dataloader": ("fix_config",),
    "storage": ("raise_timeout",),
    "host.memory": _ELSEWHERE,
    "host.oom": ("restart_job",),
    "host.config": ("fix_config",),
    "host.service": ("restart_service",),
    "software.version": ("fix_config",),
    "nccl.bug": ("restart_job",),
    "silent_corruption": ("drain_node",),
    "none": ("none",),
    "unknown": ("restart_rank", "shrink", "restart_job"),
    # a process that is stopped is as good as one that was killed; what is traced is being worked on
    "app.stall/process_stopped": ("restart_rank", "shrink", "restart_job"),
    "app.stall/process_traced": ("watch",),
    # the GPU goes on after its process ended; the page is offline (Xid 94)
    "gpu.memory/ecc_contained": ("restart_rank", *_ELSEWHERE),
    # the row is replaced at the next reset; until then nothing is wrong (Xid 63)
    "gpu.memory/row_remap_pending": ("watch",),
    "gpu.memory/transient": ("watch",),
    "network.link/link_recovered": ("reinit_communicator", *_ELSEWHERE),
    "nic/link_recovered": ("reinit_communicator", *_ELSEWHERE),
    "gpu.thermal/transient": ("watch",),
    "straggler.gpu/transient": ("watch",),
    # nothing has failed: take the rank out while it still works, at the end of a step
    PREDICTED_ACT: ("shrink", "swap_node"),
    PREDICTED_WATCH: ("watch",),
    # most likely it would not fail: only what gives the job as many ranks as it had
    PREDICTED_WORTH: ("swap_node", "watch"),
}
"""What is done where a policy says nothing else; `docs/policy.json` is this table as a policy."""

_PART_ACTIONS: Final[Mapping[FaultClass, Action]] = {
    "gpu.off_bus": "drain_node",
    "gpu.memory": "drain_node",
    "gpu.thermal": "cordon_node",
    "gpu.driver": "reset_gpu",
    "gpu.stall": "shrink",
    "nvlink": "drain_node",
    "nic": "drain_node",
    "network.link": "swap_node",
    "network.fabric": "fix_fabric",
    "network.pause": "fix_fabric",
    "network.config": "fix_config",
    "straggler.gpu": "cordon_node",
    "straggler.host": "watch",
    "straggler.network": "watch",
    "desync": "fix_program",
    "app.stall": "restart_job",
    "app.timeout": "raise_timeout",
    "app.oom": "restart_job",
    "app.program": "restart_job",
    "dataloader": "fix_config",
    "storage": "raise_timeout",
    "host.memory": "drain_node",
    "host.oom": "restart_job",
    "host.config": "fix_config",
    "host.service": "restart_service",
    "software.version": "fix_config",
    "nccl.bug": "restart_job",
    "silent_corruption": "cordon_node",
    "none": "none",
    "unknown": "collect_more",
}
_PART_ACTIONS_SIGNED: Final[Mapping[tuple[FaultClass, Signature], Action]] = {
    ("gpu.memory", "ecc_contained"): "restart_rank",
    ("gpu.memory", "row_remap_pending"): "watch",
    ("gpu.memory", "transient"): "watch",
    ("gpu.memory", "hardware_defect"): "replace_hardware",
    ("network.link", "link_recovered"): "reinit_communicator",
    ("nic", "link_recovered"): "reinit_communicator",
    ("gpu.thermal", "transient"): "watch",
    ("straggler.gpu", "transient"): "watch",
    ("app.stall", "process_stopped"): "restart_rank",
    ("app.stall", "process_traced"): "watch",
}
# a class that is proven without its part: what helps without knowing the part
_CLASS_ONLY_ACTIONS: Final[Mapping[FaultClass, Action]] = {
    "gpu.off_bus": "collect_more",
    "gpu.driver": "collect_more",
    "gpu.stall": "collect_more",
    "gpu.thermal": "watch",
    "network.link": "collect_more",
    "straggler.gpu": "watch",
    "storage": "collect_more",
}
_DRIVER_DECIDES: Final = frozenset({"gpu.memory", "gpu.driver", "gpu.stall", "nvlink"})
"""A GPU off the bus cannot be reset, whatever its driver asked for before."""


def playbook_of(
    name: str, signature: Signature, overrides: Mapping[str, Playbook]
) -> tuple[Step, ...]:
    """The steps that would cure a job of this fault, preferred first; a policy's come first."""
    signed = f"{name}/{signature}"
    found = overrides.get(signed) or overrides.get(name) or PLAYBOOKS.get(signed) or PLAYBOOKS[name]
    return tuple(each if isinstance(each, Step) else Step(action=each) for each in found)


def playbooks_in_force(overrides: Mapping[str, Playbook]) -> dict[str, tuple[Step, ...]]:
    """Every playbook by name, as a policy leaves it."""
    names = dict.fromkeys((*PLAYBOOKS, *overrides))
    return {name: playbook_of(*_split(name), overrides) for name in names}


def _split(name: str) -> tuple[str, Signature]:
    fault_class, _, signature = name.partition("/")
    return fault_class, cast(Signature, signature)


def driver_rung(driver_action: str) -> Action | None:
    """The rung that a driver's recovery action stands for.

    Either its number (NVML field 230: 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset,
    5 recover IMEX domain, 6 bus reset, 7 system reboot) or its name as Xid 154 prints it, which
    varies between drivers ("Node Reboot Required", "OS Reboot").
    """
    text = driver_action.strip().lower()
    if "reboot" in text or text in ("2", "0x2", "7", "0x7"):
        return "reboot_node"
    if "drain" in text or text in ("3", "0x3", "4", "0x4"):
        return "drain_node"
    if "reset" in text or text in ("1", "0x1", "6", "0x6"):
        return "reset_gpu"
    return None


def triage_recovery(verdict: FaultAttributed) -> tuple[Action, str]:
    """(action, target) for a verdict without a job to save: what a person should do.

    The target is the first culprit; without one it is `node/localhost` where the action needs a
    part and empty where it needs none.
    """
    target = verdict.culprits[0].id if verdict.culprits else ""
    match verdict.verdict:
        case "no-fault":
            return "none", ""
        case "insufficient":
            return "watch" if verdict.signature == "not_understood" else "collect_more", target
        case "attributed" | "class-only":
            action = _part_action(verdict)
            needs_part = RANK_OF[action] >= RANK_OF["restart_rank"]
            return action, target or ("node/localhost" if needs_part else "")


def _part_action(verdict: FaultAttributed) -> Action:
    fault_class, signature = verdict.fault_class, verdict.signature
    told = driver_rung(verdict.driver_action)
    if told is not None and fault_class in _DRIVER_DECIDES:
        return told
    signed = _PART_ACTIONS_SIGNED.get((fault_class, signature))
    if signed is not None:
        return signed
    if fault_class == "host.config" and any(each.kind == "service" for each in verdict.culprits):
        return "restart_service"
    if verdict.verdict == "class-only" and fault_class in _CLASS_ONLY_ACTIONS:
        return _CLASS_ONLY_ACTIONS[fault_class]
    return _PART_ACTIONS[fault_class]
