"""What failed of a host around its GPUs: memory, software, adapters, storage, or nobody knows."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    LINK_DOWN,
    MEMORY_FADES,
    NOT_UNDERSTOOD,
    PORTS_TROUBLED,
    Finding,
)
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_roots import PARTS_MAX, Rooted, attributed, class_only

DATA_DRIVERS: Final = frozenset({"mlx5_core", "mlx4_en", "bnxt_en", "ice"})
"""Of adapters that carry a job's traffic; that a host's administration flaps stops no job."""
_NO_LABELS: Final = frozenset({"", "any", "unknown"})  # drivers/edac/edac_mc.c


def dimm(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """An uncorrectable error of the host's memory, or many that were corrected."""
    labels = {each.clue.message.label for each in roots} - _NO_LABELS
    modules = tuple(sorted(f"dimm/{node}/{label}" for label in labels))
    if roots[0].role.level == MEMORY_FADES:
        return _fading(node, roots, modules)
    if not modules:
        reason = f"a memory module of {node} had an uncorrectable error; the board names none"
        return class_only(roots, reason, 900_000, (wanted.BOARD_LOG,))
    reason = f"{' and '.join(modules[:PARTS_MAX])} had an uncorrectable error"
    return attributed(roots, modules, reason, 950_000)


def _fading(node: str, roots: Sequence[Rooted], modules: tuple[str, ...]) -> Finding:
    """A module whose errors are corrected often: it works, costs time, and will fail."""
    signature = roots[0].role.signature
    if len(modules) != 1:
        reason = f"memory modules of {node} had many errors, all of them corrected"
        return replace(class_only(roots, reason, 600_000, (wanted.BOARD_LOG,)), signature=signature)
    times = max(each.clue.message.code for each in roots)
    reason = f"{times} errors or more of {modules[0]} were corrected"
    return replace(attributed(roots, modules, reason, 600_000), signature=signature)


def version(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """Library and kernel module of different releases."""
    reason = f"driver library and kernel module of {node} differ in version"
    return attributed(roots, (f"software/{node}/nvidia-driver",), reason, 950_000)


def storage(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """A file server that does not answer; one client cannot tell it from its own way there."""
    servers = sorted({f"storage/{each.clue.message.label}" for each in roots})
    reason = f"{' and '.join(servers)} does not answer {node}"
    missing = (wanted.OTHER_CLIENT, wanted.SERVER_LOG)
    return class_only(roots, reason, 800_000, missing)


def nic(node: str, roots: Sequence[Rooted], inventory: Inventory) -> Finding:
    """An adapter whose firmware failed."""
    pcis = sorted({each.clue.message.device for each in roots})
    nics = tuple(inventory.nic_name(node, pci) for pci in pcis)
    return attributed(roots, nics, f"{' and '.join(nics)} stopped working", 930_000)


def transceiver(node: str, roots: Sequence[Rooted], inventory: Inventory) -> Finding:
    """The cable or transceiver in a port, by the port's adapter."""
    ports = {each.clue.message.device: each.clue.message.label for each in roots}
    nics = tuple(sorted(inventory.nic_name(node, pci) for pci in ports))
    reason = f"the transceiver of {' and '.join(nics)} failed: {'; '.join(sorted(ports.values()))}"
    return attributed(roots, nics, reason, 880_000)


def out_of_memory(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """The kernel killed a process for memory."""
    killed = sorted({(each.clue.message.pid, each.clue.message.process) for each in roots})
    names = ", ".join(process for _pid, process in killed)
    reason = f"{node} ran out of memory and the kernel killed {names}"
    processes = tuple(f"process/{node}/{pid}" for pid, _process in killed)
    return attributed(roots, processes, reason, 900_000)


def _flapping(node: str, roots: Sequence[Rooted], inventory: Inventory) -> Finding | None:
    """A link of a data adapter that goes down again and again while the node's others do not.

    Where counters of both ends are polled (inventory.nics), they say more (link_findings.py).
    """
    lost = [each for each in roots if each.clue.message.kind == "link_down"]
    ports = {each.clue.message.device for each in lost}
    if len(ports) != 1 or node in inventory.nics:
        return None
    message = lost[0].clue.message
    if message.driver not in DATA_DRIVERS or message.code <= 0:
        return None
    name = inventory.nic_name(node, message.device)
    finding = attributed(
        lost,
        (name,),
        f"{name} lost its link {message.code} times or more, no other of {node} did",
        700_000,
    )
    return replace(
        finding,
        fault_class="network.link",
        level=PORTS_TROUBLED,
        missing=(wanted.TRANSCEIVERS, wanted.BOTH_ENDS),
    )


def unexplained(node: str, roots: Sequence[Rooted], inventory: Inventory) -> Finding:
    """Something failed, and nothing says what."""
    role = roots[0].role
    if (flapping := _flapping(node, roots, inventory)) is not None:
        return flapping
    reason = f"{node} reports an error that does not say what failed: {role.says}"
    if role.level == LINK_DOWN:
        links = " and ".join(sorted({each.clue.message.label for each in roots}))
        times = max(each.clue.message.code for each in roots)
        how = f"{times} times or more" if times > 0 else "and did not get it back"
        reason = f"of {node}, {links} lost the link {how}; why is not said"
    if role.level == NOT_UNDERSTOOD:
        reason = f"{node} printed what sounds like trouble and is not understood"
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=reason,
        confidence_ppm=0,
        level=role.level,
        signature=role.signature,
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
    )
