"""What the kernel log of one node proves: the root among its messages, and who is innocent.

Why: one dead GPU makes its peers and the switch between them report errors of their own (a GPU off
the bus, then SXid 20034 on three switches: leptonai/gpud, components/accelerator/nvidia/sxid).
How: the messages of the highest level are the roots; a rule for each class says which component
they name and when they name none (gpu_findings.py, nvlink_findings.py, host_findings.py). Order of
lines is not trusted: drivers report late.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import gpu_findings, host_findings, nvlink_findings
from nemesis.processors.attribution.findings import Finding, Proof
from nemesis.processors.attribution.incidents import Clue
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_roots import Rooted
from nemesis.processors.attribution.kernel_rules import (
    CONTAINED_XID,
    NVLINK_XID,
    is_switch_dead,
    role_among,
    spelled,
    why_it_follows,
)
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass
from nemesis.schemas.inferred import RuledOut

PROOFS_MAX: Final = 12
NAMED_MAX: Final = 4  # GPUs that are acquitted one by one
# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvml.h
DRIVER_ACTIONS: Final = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


def judge_kernel(node: str, clues: Sequence[Clue], inventory: Inventory) -> Finding | None:
    """What the clues of one node prove, or None where nothing is wrong."""
    messages = [each.message for each in clues]
    rooted = [
        Rooted(clue, role)
        for clue in clues
        if (role := role_among(clue.message, messages)) is not None
    ]
    if not rooted:
        return None
    level = max(each.role.level for each in rooted)
    roots = [each for each in rooted if each.role.level == level]
    if roots[0].role.fault_class == "gpu.memory":
        roots = _where_memory_failed(roots, rooted)
    if roots[0].role.fault_class == "nvlink":
        roots = _where_links_meet(roots, rooted)
    finding = _RULES[roots[0].role.fault_class](node, roots, inventory)
    device_of = {f"gpu/{node}/{each.message.device}" for each in clues if _is_gpu(each.message)}
    return _completed(finding, roots, rooted, clues, device_of)


def _where_links_meet(roots: list[Rooted], rooted: Sequence[Rooted]) -> list[Rooted]:
    """A switch that halted takes links of many GPUs with it, and each of them tells of its own."""
    switches = [each for each in rooted if is_switch_dead(each.clue.message)]
    gpus = {each.clue.message.device for each in roots if each.clue.message.kind == "xid"}
    follow = all(each.clue.message.code in (NVLINK_XID, -1) for each in roots)
    return switches if switches and follow and len(gpus) > 1 else roots


def _where_memory_failed(roots: list[Rooted], rooted: Sequence[Rooted]) -> list[Rooted]:
    """Xid 94 is also printed by peers that read the bad row over NVLink (NVIDIA GPU Memory Error
    Management, Error Containment); the one whose row it is says more."""
    own = {
        each.clue.message.device
        for each in rooted
        if each.role.fault_class == "gpu.memory" and each.clue.message.code != CONTAINED_XID
    }
    return [each for each in roots if each.clue.message.device in own] or roots


def _is_gpu(message: KernelMessage) -> bool:
    return bool(message.device) and (
        message.kind in ("xid", "gpu_lost", "gsp_stuck") or message.driver == "nvidia"
    )


def _completed(
    finding: Finding,
    roots: Sequence[Rooted],
    rooted: Sequence[Rooted],
    clues: Sequence[Clue],
    gpus: set[str],
) -> Finding:
    """The finding with its proofs, the driver's word, and the GPUs that only suffer."""
    says = {each.clue.proof.fact: each.role.says for each in rooted}
    own = [each.clue for each in roots]
    root_facts = {each.proof.fact for each in own}
    told = [each for each in clues if each in own or not _is_noise(each)]
    lines = sorted(told, key=lambda each: each.proof.fact not in root_facts)
    proofs = tuple(
        Proof(clue.proof.fact, clue.proof.seq, _said(clue, says), clue.proof.text)
        for clue in lines[:PROOFS_MAX]
    )
    at_fault = set(finding.culprits)
    innocent = finding.fault_class in ("gpu.off_bus", "gpu.memory", "nvlink", "gpu.driver")
    victims = tuple(sorted(gpus - at_fault)) if innocent and at_fault else ()
    return replace(
        finding,
        proofs=proofs,
        victims=victims,
        driver_action=_driver_action(clues, at_fault),
        ruled_out=(*finding.ruled_out, *_followers(clues, victims, root_facts)),
    )


def _followers(
    clues: Sequence[Clue], victims: Sequence[str], roots: Collection[str]
) -> list[RuledOut]:
    """The GPUs that only suffer, each with the message that is not its own fault."""
    found: list[RuledOut] = []
    for name in victims:
        own = [each for each in clues if name == f"gpu/{each.node}/{each.message.device}"]
        if any(each.proof.fact in roots for each in own):
            continue  # one of many that failed together: what they share is named
        because = f"{spelled(own[0].message)} {why_it_follows(own[0].message)}"
        found.append(RuledOut(says=name, because=because, fact=own[0].proof.fact))
    return found[:NAMED_MAX]


def _is_noise(clue: Clue) -> bool:
    """Lines that nobody understands prove nothing about what something else explains."""
    return clue.message.kind in ("not_understood", "link_up", "module_error")


def _said(clue: Clue, says: dict[str, str]) -> str:
    if clue.proof.fact in says:
        return says[clue.proof.fact]
    if clue.message.driver_action >= 0:
        return "the driver's own recovery action"
    return "follows from it, or surrounds it"


def _driver_action(clues: Sequence[Clue], culprits: set[str]) -> str:
    """The latest word of the driver on a culprit, else the gravest on anyone."""
    said = [clue for clue in clues if clue.message.driver_action >= 0]
    own = [clue for clue in said if components.gpu(clue.node, clue.message.device) in culprits]
    numbers = [own[-1].message.driver_action] if own else [c.message.driver_action for c in said]
    known = [number for number in numbers if 0 < number < len(DRIVER_ACTIONS)]
    return DRIVER_ACTIONS[max(known)] if known else ""


_RULES: Final[dict[FaultClass, Callable[[str, Sequence[Rooted], Inventory], Finding]]] = {
    "gpu.off_bus": gpu_findings.off_bus,
    "gpu.memory": gpu_findings.memory,
    "gpu.driver": gpu_findings.driver,
    "nvlink": nvlink_findings.nvlink,
    "app.program": gpu_findings.program,
    "host.memory": host_findings.dimm,
    "nic": host_findings.nic,
    "network.link": host_findings.transceiver,
    "host.oom": host_findings.out_of_memory,
    "software.version": host_findings.version,
    "storage": host_findings.storage,
    "unknown": host_findings.unexplained,
}
