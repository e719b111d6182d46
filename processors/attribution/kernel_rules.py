"""What one kernel message is worth: a root, a symptom, or nothing by itself.

Why: of twenty lines that a dying GPU prints, one names the fault. How: each message has a role
(class, level, signature) from NVIDIA's catalogue and from what public reports found to be roots;
symptoms have none. Not here: what messages of one node prove together (kernel_findings.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution.findings import (
    DRIVER_HUNG,
    HOST_MEMORY,
    LINK_DOWN,
    LINK_LOST,
    MEMORY_CONTAINED,
    MEMORY_FADES,
    MEMORY_LOST,
    NIC_FATAL,
    NOT_UNDERSTOOD,
    NVLINK_FATAL,
    NVSWITCH_FATAL,
    OFF_BUS,
    OUT_OF_MEMORY,
    PROGRAM_FAULT,
    REMAP_PENDING,
    STORAGE_SILENT,
    UNEXPLAINED,
    VERSION_DIFFERS,
)
from nemesis.processors.attribution.kernel_messages import KernelMessage, Kind
from nemesis.processors.attribution.nvlink5_table import ANY_STATUS, NVLINK5_RULES
from nemesis.processors.attribution.sxid_table import SXIDS
from nemesis.processors.attribution.xid_table import XIDS
from nemesis.schemas.codes import FaultClass, Signature


class Role(NamedTuple):
    """What a message is worth."""

    fault_class: FaultClass
    level: int
    says: str
    signature: Signature = ""


OFF_BUS_XID: Final = 79
RECOVERY_ACTION_XID: Final = 154
REMOVED_CHANNEL_XID: Final = 45
STOPPED_CHANNEL_XID: Final = 43  # follows 13 and 31; alone it is the program's channel too
FALLOUT_XIDS: Final = frozenset({STOPPED_CHANNEL_XID, REMOVED_CHANNEL_XID})
"""What a driver prints of a process that ends in the middle of its work, whatever ended it."""
DOUBLE_BIT_XID: Final = 48
CONTAINED_XID: Final = 94
HIGH_SINGLE_BIT_XID: Final = 92  # many errors, all corrected: nothing was lost
NVLINK_XID: Final = 74
LINK_EVENT_XID: Final = 149  # NETIR, the unit at the link itself; 144-148 and 150 sit behind it
NVLINK5_XIDS: Final = frozenset(NVLINK5_RULES)

NIC_DRIVERS: Final = ("mlx5_core", "bnxt_en")
ECC_DETAIL_XIDS: Final = frozenset({DOUBLE_BIT_XID, 171, 172})
# GSP timeout and error; PMU halt, context switch timeout, fatal timeout, failed start, and others
# that leave a GPU which does not process any more
_DRIVER_HUNG: Final = frozenset({119, 120, 46, 62, 109, 110, 143, 158, 169})
SWITCH_TIMEOUT_XID: Final = 109
_BAD_ACCESS_XIDS: Final = frozenset({13, 31})
"""A program's kernel that did what the GPU forbids. Its context may then not leave the GPU in time:
NVIDIA/k8s-device-plugin internal/rm/health.go counts 109 with these as the application's."""
_NVLINK: Final = NVLINK5_XIDS | {NVLINK_XID, 136, 155}
_CHECK_PROGRAM: Final = frozenset({"CHECK_APP/CUDA", "WORKFLOW_XID_13", "WORKFLOW_XID_31"})
_SAYS_NOTHING: Final = frozenset({106, 107, 162})  # tests of the SMBPBI, a feature that is back

_BY_KIND: Final[Mapping[Kind, Role]] = {
    "gpu_lost": Role("gpu.off_bus", OFF_BUS, "the GPU has fallen off the bus"),
    "gsp_stuck": Role("gpu.driver", DRIVER_HUNG, "the GPU's system processor does not answer"),
    "gpu_start_failed": Role("gpu.driver", DRIVER_HUNG, "its driver could not start this GPU"),
    "version_mismatch": Role(
        "software.version", VERSION_DIFFERS, "driver library and kernel module differ in version"
    ),
    "server_silent": Role("storage", STORAGE_SILENT, "this file server does not answer"),
    "dimm_uncorrectable": Role(
        "host.memory", HOST_MEMORY, "uncorrectable error of this memory module"
    ),
    "dimm_corrected": Role(
        "host.memory",
        MEMORY_FADES,
        "errors of this memory module are corrected again and again",
        "transient",
    ),
    "nic_fatal": Role("nic", NIC_FATAL, "the adapter's firmware failed or does not answer"),
    # modules are called hot or bad while a healthy host boots: it takes the loss of the link
    "module_error": Role("unknown", NOT_UNDERSTOOD, "not understood", "not_understood"),
    "oom_kill": Role("host.oom", OUT_OF_MEMORY, "the kernel killed this process for memory"),
    "link_down": Role("unknown", LINK_DOWN, "this link went down"),
    "not_understood": Role("unknown", NOT_UNDERSTOOD, "not understood", "not_understood"),
    "aer": Role("unknown", UNEXPLAINED, "fatal error on the PCIe link below this port"),
    "aer_unrecovered": Role("unknown", UNEXPLAINED, "no driver recovered from this PCIe error"),
}
# docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt: 48 without 94 counts as uncontained; 171 and 172
# are details of 48; 140 is an error that escaped the usual handling
_MEMORY: Final[Mapping[int, tuple[int, Signature]]] = {
    **dict.fromkeys(sorted(ECC_DETAIL_XIDS | {95, 140}), (MEMORY_LOST, "ecc_uncontained")),
    63: (REMAP_PENDING, "row_remap_pending"),
    HIGH_SINGLE_BIT_XID: (REMAP_PENDING, "transient"),
    64: (MEMORY_LOST, "row_remap_failed"),
    CONTAINED_XID: (MEMORY_CONTAINED, "ecc_contained"),
}


def role_of(message: KernelMessage) -> Role | None:
    """What the message is worth alone; None for symptoms, context and what needs no action."""
    match message.kind:
        case "xid" if message.code == REMOVED_CHANNEL_XID:
            return _of_cause(message)
        case "trouble":
            return Role("unknown", UNEXPLAINED, message.label)
        case "xid":
            return _of_xid(message)
        case "sxid":
            return _of_sxid(message)
        case "gpu_lost" if not message.device:
            return None
        case "aer" if message.severity != "fatal":
            return None
        case "aer_unrecovered" if message.driver not in ("nvidia", *NIC_DRIVERS):
            return None
        case kind:
            return _BY_KIND.get(kind)


def role_among(message: KernelMessage, others: Sequence[KernelMessage]) -> Role | None:
    """AER names the port that saw the error; the driver that could not recover names the device."""
    if message.kind == "aer_unrecovered" and any(
        each.kind == "aer" and each.severity == "fatal" for each in others
    ):
        return _of_lost_device(message, "its driver could not recover from the PCIe error")
    if message.kind == "module_error" and any(
        each.kind == "link_down" and each.device == message.device for each in others
    ):
        return Role("network.link", LINK_LOST, "the cable or transceiver of this port failed")
    if message.code in ECC_DETAIL_XIDS and message.kind == "xid":
        return _of_ecc(message, others)
    if message.kind == "aer" and message.severity == "fatal":
        return _of_lost_device(message, "fatal PCIe error of this device") or role_of(message)
    if message.code == SWITCH_TIMEOUT_XID and any(
        each.code in _BAD_ACCESS_XIDS and each.device == message.device for each in others
    ):
        says = "Xid 109: the context of a program that had failed did not leave the GPU in time"
        return Role("app.program", PROGRAM_FAULT, says)
    return role_of(message)


def _of_lost_device(message: KernelMessage, says: str) -> Role | None:
    """A driver speaks for its own device, a port for whatever is below it."""
    if message.driver == "nvidia":
        return Role("gpu.off_bus", OFF_BUS, says)
    return Role("nic", NIC_FATAL, says) if message.driver in NIC_DRIVERS else None


def _of_ecc(message: KernelMessage, others: Sequence[KernelMessage]) -> Role | None:
    """48 and its details say that memory is bad; 94 and 95 whether the damage spread."""
    codes = {each.code for each in others if each.device == message.device}
    role = role_of(message)
    if role is not None and CONTAINED_XID in codes and 95 not in codes:
        return role._replace(level=MEMORY_CONTAINED, signature="ecc_contained")
    return role


def _of_cause(message: KernelMessage) -> Role | None:
    """Xid 45 is never a root, but it may name one on the same GPU."""
    if message.caused_by in (-1, REMOVED_CHANNEL_XID, RECOVERY_ACTION_XID):
        return Role("unknown", UNEXPLAINED, "Xid 45: a channel was removed, and nothing says why")
    cause = KernelMessage(
        kind="xid", code=message.caused_by, device=message.device, severity="fatal"
    )
    role = _of_xid(cause)
    return role and role._replace(says=f"a channel was removed because of Xid {cause.code}")


def _of_xid(message: KernelMessage) -> Role | None:
    code = message.code
    known = XIDS.get(code)
    says = f"Xid {code}: {known.meaning if known else 'not in the catalogue'}"
    if code == OFF_BUS_XID:
        return Role("gpu.off_bus", OFF_BUS, says)
    if code in _MEMORY:
        level, signature = _MEMORY[code]
        return Role("gpu.memory", level, says, signature)
    if code in _NVLINK:
        return Role("nvlink", NVLINK_FATAL, says) if _stops_link(message) else None
    if code in _DRIVER_HUNG:
        return Role("gpu.driver", DRIVER_HUNG, says)
    if code in _SAYS_NOTHING or (code == RECOVERY_ACTION_XID and message.driver_action == 0):
        return None
    if known is None:
        return Role("unknown", UNEXPLAINED, says)
    if code == STOPPED_CHANNEL_XID or known.investigate in _CHECK_PROGRAM:
        return Role("app.program", PROGRAM_FAULT, says)
    return Role("unknown", UNEXPLAINED, says)


def _stops_link(message: KernelMessage) -> bool:
    """Whether an NVLink5 error is more than a note, as the driver says or it decodes to."""
    if message.severity != "nonfatal" or message.code not in NVLINK5_XIDS:
        return True
    if not message.registers:
        return False
    info = message.registers[0]
    status = message.registers[1] if len(message.registers) > 1 else ANY_STATUS
    for rule in NVLINK5_RULES[message.code]:
        if not message.unit or message.unit.split("/")[0] not in rule.unit:
            continue
        if info & rule.info_mask == rule.info or info & rule.old_info_mask == rule.old_info:
            resolution = rule.resolutions.get(status) or rule.resolutions.get(ANY_STATUS)
            if resolution is not None:
                return resolution != "IGNORE"
    return False


def _of_sxid(message: KernelMessage) -> Role | None:
    if message.detail or message.severity == "nonfatal":
        return None
    known = SXIDS.get(message.code)
    if message.severity != "fatal" and not (known and known.always_fatal):
        return None
    meaning = known.meaning if known else "not in the catalogue"
    return Role("nvlink", NVSWITCH_FATAL, f"SXid {message.code}: {meaning}")


def is_switch_dead(message: KernelMessage) -> bool:
    """Whether an SXid is one of the switch itself rather than of one of its links."""
    known = SXIDS.get(message.code)
    return message.kind == "sxid" and known is not None and known.always_fatal


def spelled(message: KernelMessage) -> str:
    """A message in two words, for a sentence."""
    named = {"xid": f"its Xid {message.code}", "sxid": f"SXid {message.code}"}
    return named.get(message.kind, "its message")


def why_it_follows(message: KernelMessage) -> str:
    """Why a message beside a graver one is no fault of its own."""
    if message.kind == "xid":
        return FOLLOWS.get(message.code, "is less grave than what its node printed beside it")
    if message.kind == "sxid":
        return "is what a switch reports when the other end of its link is gone"
    return "names it, and says of no fault"


FOLLOWS: Final[Mapping[int, str]] = {
    **dict.fromkeys(sorted(FALLOUT_XIDS), "is printed of any process that ends in its work"),
    **dict.fromkeys(
        sorted(NVLINK5_XIDS - {LINK_EVENT_XID}),
        "comes from a unit behind the link, which stalls when its peer's link is gone",
    ),
    NVLINK_XID: "is what a GPU reports when the other end of its link is gone",
    CONTAINED_XID: "is also printed by peers that read the bad row over NVLink",
    RECOVERY_ACTION_XID: "is the driver's recommendation, not a fault",
}
"""docs.nvidia.com/deploy/xid-errors; GPU Memory Error Management; open-gpu-kernel-modules#1150."""
