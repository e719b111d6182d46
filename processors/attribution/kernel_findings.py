"""What the kernel log of one node proves: the root among its messages, and who is innocent.

Why: one dead GPU makes its peers and the switch between them report errors of their own (a GPU off
the bus, then SXid 20034 on three switches: leptonai/gpud, components/accelerator/nvidia/sxid).
How: the messages of the highest level are the roots; a rule for each class says which component
they name and when they name none. Order of lines is not trusted: drivers report late.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from nemesis.processors.attribution.findings import (
    LINK_DOWN,
    NOT_UNDERSTOOD,
    NVLINK_FATAL,
    OUT_OF_MEMORY,
    Finding,
    Proof,
)
from nemesis.processors.attribution.incidents import Clue
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import (
    CONTAINED_XID,
    LINK_EVENT_XID,
    NVLINK5_XIDS,
    NVLINK_XID,
    Role,
    is_switch_dead,
    role_among,
)
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass

PARTS_MAX: Final = 2  # more of one kind at once on one node: what they share is at fault
PROOFS_MAX: Final = 12
_NO_LABELS: Final = frozenset({"", "any", "unknown"})  # drivers/edac/edac_mc.c
UNKNOWN_JOB: Final = "job"
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


class _Rooted(NamedTuple):
    clue: Clue
    role: Role


def judge_kernel(node: str, clues: Sequence[Clue], inventory: Inventory) -> Finding | None:
    """What the clues of one node prove, or None where nothing is wrong."""
    messages = [each.message for each in clues]
    rooted = [
        _Rooted(clue, role)
        for clue in clues
        if (role := role_among(clue.message, messages)) is not None
    ]
    if not rooted:
        return None
    level = max(each.role.level for each in rooted)
    roots = [each for each in rooted if each.role.level == level]
    if roots[0].role.fault_class == "gpu.memory":
        roots = _where_memory_failed(roots, rooted)
    finding = _RULES[roots[0].role.fault_class](node, roots, inventory)
    device_of = {f"gpu/{node}/{each.message.device}" for each in clues if _is_gpu(each.message)}
    return _completed(finding, roots, rooted, clues, device_of)


def _where_memory_failed(roots: list[_Rooted], rooted: Sequence[_Rooted]) -> list[_Rooted]:
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
    roots: Sequence[_Rooted],
    rooted: Sequence[_Rooted],
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
    )


def _is_noise(clue: Clue) -> bool:
    """Lines that nobody understands prove nothing about what something else explains."""
    return clue.message.kind in ("not_understood", "link_up")


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


def _gpus(node: str, roots: Sequence[_Rooted]) -> tuple[str, ...]:
    return tuple(sorted({components.gpu(node, each.clue.message.device) for each in roots}))


def _device(node: str, roots: Sequence[_Rooted], what: str, confidence_ppm: int) -> Finding:
    """The GPUs that the roots name, or the node where they are too many to fail by chance."""
    gpus = _gpus(node, roots)
    role = roots[0].role
    if len(gpus) > PARTS_MAX:
        reason = f"{len(gpus)} GPUs of {node} {what} together: what they share has failed"
        culprits: tuple[str, ...] = (components.node(node),)
    else:
        reason = f"{' and '.join(gpus)} {what}"
        culprits = gpus
    signatures = {each.role.signature for each in roots}
    order = ("row_remap_failed", "ecc_uncontained", "ecc_contained", "row_remap_pending", "")
    return Finding(
        verdict="attributed",
        fault_class=role.fault_class,
        reason=reason,
        confidence_ppm=confidence_ppm,
        level=role.level,
        culprits=culprits,
        signature=next(each for each in order if each in signatures),
    )


def _off_bus(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    return _device(node, roots, "fell off the bus", 980_000)


def _memory(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    what = {
        "row_remap_failed": "could not replace a bad row of memory",
        "ecc_uncontained": "had an uncorrectable memory error",
        "ecc_contained": "had a memory error that was contained to one process",
        "row_remap_pending": "will replace a bad row of memory at its next reset",
    }
    finding = _device(node, roots, "have uncorrectable memory errors", 970_000)
    said = what.get(finding.signature, "")
    if said and len(_gpus(node, roots)) <= PARTS_MAX:
        finding = replace(finding, reason=f"{' and '.join(finding.culprits)} {said}")
    return finding


def _driver(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    return _device(node, roots, "stopped answering its driver", 900_000)


def _nvlink(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    if roots[0].role.level != NVLINK_FATAL:
        return _nvswitch(node, roots)
    initiators = _initiators(roots)
    gpus = tuple(sorted({components.gpu(node, device) for device in initiators}))
    if len(gpus) == 1:
        return Finding(
            verdict="attributed",
            fault_class="nvlink",
            reason=f"{gpus[0]} reported the link error that its peers only felt",
            confidence_ppm=850_000,
            level=NVLINK_FATAL,
            culprits=gpus,
        )
    return Finding(
        verdict="class-only",
        fault_class="nvlink",
        reason=f"links of {len(gpus)} GPUs of {node} failed together: no single GPU is at fault",
        confidence_ppm=800_000,
        level=NVLINK_FATAL,
        missing=("NVSwitch and fabric manager logs", "nvidia-smi nvlink -e of every GPU"),
    )


def _initiators(roots: Sequence[_Rooted]) -> set[str]:
    """The GPUs where a link error began, by what their units report.

    149 comes from the unit at the link, 144-148 and 150 from units behind it that stall when a
    link of a peer is gone (NVIDIA/open-gpu-kernel-modules#1150). Of Hopper's 74, a GPU with errors
    on two links and more whose peers have one each is where the links meet.
    """
    codes: dict[str, set[int]] = {}
    links: dict[str, set[int]] = {}
    for each in roots:
        message = each.clue.message
        code = message.caused_by if message.caused_by >= 0 else message.code
        codes.setdefault(message.device, set()).add(code)
        links.setdefault(message.device, set()).add(message.link_index)
    at_link = {device for device, seen in codes.items() if LINK_EVENT_XID in seen}
    if at_link and all(seen & NVLINK5_XIDS for seen in codes.values()):
        return at_link
    if all(NVLINK_XID in seen for seen in codes.values()):
        hubs = {device for device, seen in links.items() if len(seen - {-1}) >= 2}
        if len(hubs) == 1 and len(links) > PARTS_MAX:
            return hubs
    return set(codes)


def _nvswitch(node: str, roots: Sequence[_Rooted]) -> Finding:
    dead = sorted(
        {
            f"nvswitch/{node}/{each.clue.message.switch_index}"
            for each in roots
            if is_switch_dead(each.clue.message)
        }
    )
    if len(dead) == 1:
        return Finding(
            verdict="attributed",
            fault_class="nvlink",
            reason=f"{dead[0]} failed itself, not one of its links",
            confidence_ppm=850_000,
            level=roots[0].role.level,
            culprits=tuple(dead),
        )
    return Finding(
        verdict="class-only",
        fault_class="nvlink",
        reason=f"an NVSwitch of {node} lost links, and nothing says which end failed",
        confidence_ppm=750_000,
        level=roots[0].role.level,
        missing=("Xids of the GPUs at the links' other ends", "fabric manager log"),
    )


def _program(node: str, roots: Sequence[_Rooted], inventory: Inventory) -> Finding:
    jobs = sorted({seat.job for gpu in _gpus(node, roots) for seat in inventory.seats_of(gpu)})
    culprits = tuple(f"program/{job}" for job in jobs or [UNKNOWN_JOB])
    count = len(_gpus(node, roots))
    if inventory.jobs and not jobs:
        return Finding(
            verdict="class-only",
            fault_class="app.program",
            reason=f"a program of no known job faulted on {count} GPU(s) of {node}",
            confidence_ppm=700_000,
            level=roots[0].role.level,
        )
    return Finding(
        verdict="attributed",
        fault_class="app.program",
        reason=f"the program faulted on {count} GPU(s) of {node}, which only report it",
        confidence_ppm=900_000 if count > 1 else 750_000,
        level=roots[0].role.level,
        culprits=culprits[:1],
        jobs=tuple(jobs),
    )


def _dimm(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    labels = {each.clue.message.label for each in roots} - _NO_LABELS
    modules = tuple(sorted(f"dimm/{node}/{label}" for label in labels))
    if not modules:
        return Finding(
            verdict="class-only",
            fault_class="host.memory",
            reason=f"a memory module of {node} had an uncorrectable error; the board names none",
            confidence_ppm=900_000,
            level=roots[0].role.level,
            missing=("the board's event log (ipmitool sel list)",),
        )
    return Finding(
        verdict="attributed",
        fault_class="host.memory",
        reason=f"{' and '.join(modules[:PARTS_MAX])} had an uncorrectable error",
        confidence_ppm=950_000,
        level=roots[0].role.level,
        culprits=modules,
    )


def _version(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class="software.version",
        reason=f"driver library and kernel module of {node} differ in version",
        confidence_ppm=950_000,
        level=roots[0].role.level,
        culprits=(f"software/{node}/nvidia-driver",),
    )


def _storage(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    servers = sorted({f"storage/{each.clue.message.label}" for each in roots})
    # one client cannot tell a server that is down from its own way to it
    return Finding(
        verdict="class-only",
        fault_class="storage",
        reason=f"{' and '.join(servers)} does not answer {node}",
        confidence_ppm=800_000,
        level=roots[0].role.level,
        missing=("the kernel log of another client of that server", "the server's own log"),
    )


def _nic(node: str, roots: Sequence[_Rooted], inventory: Inventory) -> Finding:
    pcis = sorted({each.clue.message.device for each in roots})
    nics = tuple(inventory.nic_name(node, pci) for pci in pcis)
    return Finding(
        verdict="attributed",
        fault_class="nic",
        reason=f"{' and '.join(nics)} stopped working",
        confidence_ppm=930_000,
        level=roots[0].role.level,
        culprits=nics,
    )


def _out_of_memory(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    killed = sorted({(each.clue.message.pid, each.clue.message.process) for each in roots})
    names = ", ".join(process for _pid, process in killed)
    return Finding(
        verdict="attributed",
        fault_class="host.oom",
        reason=f"{node} ran out of memory and the kernel killed {names}",
        confidence_ppm=900_000,
        level=OUT_OF_MEMORY,
        culprits=tuple(f"process/{node}/{pid}" for pid, _process in killed),
    )


def _unexplained(node: str, roots: Sequence[_Rooted], _: Inventory) -> Finding:
    role = roots[0].role
    reason = f"{node} reports an error that does not say what failed: {role.says}"
    if role.level == LINK_DOWN:
        links = " and ".join(sorted({each.clue.message.label for each in roots}))
        reason = f"of {node}, {links} lost the link and did not get it back; why is not said"
    if role.level == NOT_UNDERSTOOD:
        reason = f"{node} printed what sounds like trouble and is not understood"
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=reason,
        confidence_ppm=0,
        level=role.level,
        signature=role.signature,
        missing=("the kernel log around it", "nvidia-smi -q of the node"),
    )


_RULES: Final[dict[FaultClass, Callable[[str, Sequence[_Rooted], Inventory], Finding]]] = {
    "gpu.off_bus": _off_bus,
    "gpu.memory": _memory,
    "gpu.driver": _driver,
    "nvlink": _nvlink,
    "app.program": _program,
    "host.memory": _dimm,
    "nic": _nic,
    "host.oom": _out_of_memory,
    "software.version": _version,
    "storage": _storage,
    "unknown": _unexplained,
}
