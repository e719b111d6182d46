"""Which end of a failed NVLink is at fault: the GPU where it began, a dead switch, or neither."""

from collections.abc import Sequence

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import NVLINK_FATAL, Finding
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_roots import PARTS_MAX, Rooted, attributed, class_only
from nemesis.processors.attribution.kernel_rules import (
    LINK_EVENT_XID,
    NVLINK5_XIDS,
    NVLINK_XID,
    is_switch_dead,
)
from nemesis.schemas import components


def nvlink(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """Links between GPUs failed."""
    if roots[0].role.level != NVLINK_FATAL:
        return _nvswitch(node, roots)
    initiators = _initiators(roots)
    gpus = tuple(sorted({components.gpu(node, device) for device in initiators}))
    if len(gpus) == 1 and all(_is_felt(each) for each in roots):
        reason = f"links of {gpus[0]} stalled as they do when a peer's link is lost, and no GPU of"
        reason += f" {node} lost one: in a rack the peer may be on any node"
        return class_only(roots, reason, 700_000, (wanted.KERNEL_LOGS, wanted.FABRIC_MANAGER_LOG))
    if len(gpus) == 1:
        reason = f"{gpus[0]} reported the link error that its peers only felt"
        return attributed(roots, gpus, reason, 850_000)
    reason = f"links of {len(gpus)} GPUs of {node} failed together: no single GPU is at fault"
    missing = (wanted.FABRIC_MANAGER_LOG, wanted.NVLINK_ERRORS)
    return class_only(roots, reason, 800_000, missing)


def _initiators(roots: Sequence[Rooted]) -> set[str]:
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


def _is_felt(root: Rooted) -> bool:
    """Whether a message is what a GPU prints whose peer lost a link, and not one that lost it."""
    message = root.clue.message
    behind = message.code in NVLINK5_XIDS - {LINK_EVENT_XID}
    return behind and message.severity == "nonfatal"


def _nvswitch(node: str, roots: Sequence[Rooted]) -> Finding:
    dead = sorted(
        {
            f"nvswitch/{node}/{each.clue.message.switch_index}"
            for each in roots
            if is_switch_dead(each.clue.message)
        }
    )
    if len(dead) == 1:
        reason = f"{dead[0]} failed itself, not one of its links"
        return attributed(roots, tuple(dead), reason, 850_000)
    reason = f"an NVSwitch of {node} lost links, and nothing says which end failed"
    missing = (wanted.PEER_XIDS, wanted.FABRIC_MANAGER_LOG)
    return class_only(roots, reason, 750_000, missing)
