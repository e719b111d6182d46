"""What one line of a kernel log says, as far as it bears on faults of a training cluster.

Why: producers forward lines as they are, so that new knowledge applies to old logs. How: a cheap
look for a few words decides which pattern is tried; a line that says nothing about a fault is
None. Prefixes of readers (time stamps, host, `kernel:`) may still be there. Not here: what several
lines prove together (kernel_findings.py).

Shapes: docs.nvidia.com/deploy/xid-errors; github.com/NVIDIA/open-gpu-kernel-modules; Linux
drivers/pci/pcie/aer.c, drivers/edac, mm/oom_kill.c and
drivers/net/ethernet/mellanox/mlx5/core/health.c; the tests of leptonai/gpud and NVIDIA/NVSentinel.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from nemesis.schemas.components import pci_address

Kind = Literal[
    "xid",
    "sxid",
    "gpu_named",
    "gpu_lost",
    "gsp_stuck",
    "gpu_start_failed",
    "version_mismatch",
    "aer",
    "aer_unrecovered",
    "dimm_uncorrectable",
    "dimm_corrected",
    "oom_kill",
    "nic_fatal",
    "module_error",
    "server_silent",
    "trouble",
    "link_down",
    "link_up",
    "not_understood",
]
Severity = Literal["", "fatal", "nonfatal", "corrected"]


class KernelMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that bears on a fault."""

    kind: Kind
    code: int = -1
    """Xid or SXid number, or how often."""
    device: str = ""
    """PCI address in canonical form."""
    driver: str = ""
    """The kernel driver that speaks, of AER lines and links."""
    severity: Severity = ""
    pid: int = -1
    process: str = ""
    link_index: int = -1
    switch_index: int = -1
    caused_by: int = -1
    """The Xid that this one names as its cause on the same GPU."""
    driver_action: int = -1
    """The recovery action that Xid 154 changed to, numbered as NVML field 230."""
    unit: str = ""
    """The NVLink5 unit of Xid 144-150, for example NETIR_LINK_EVT."""
    registers: tuple[int, ...] = ()
    """Interrupt information and error status of Xid 144-150."""
    label: str = ""
    """The memory module, file server or network interface as the kernel prints it, what the trouble
    is, or the line that is not understood, without its numbers."""
    detail: bool = False
    """Registers of an event that another line reports: no event of its own."""


_PCI: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_XID: Final = re.compile(
    rf"NVRM: Xid \((?:PCI:)?({_PCI})(?: GPU-I:\d+)?\): (\d{{1,9}})(?=\D|\Z)(.*)", re.DOTALL
)
_PID: Final = re.compile(r", pid='?(\d+|<unknown>)'?")
_PROCESS: Final = re.compile(r", name='?([^,']*)'?")
_CAUSED_BY: Final = re.compile(r"caused by previous Xid (\d{1,6})")
_ACTION: Final = re.compile(
    r"action changed from 0x[0-9a-f]+ \([^)]*\) to 0x([0-9a-f]{1,4})\b", re.I
)
_NVLINK5: Final = re.compile(
    r"(\w+)\s+(Fatal|Nonfatal)\s+XC\d\s+i\d+\s+Link\s+(-?\d+)\s*\(([0-9a-fx ]*)\)", re.I
)
_LINK_FATAL: Final = re.compile(r"NVLink: fatal error detected on link (\d+)")
_SXID: Final = re.compile(
    rf"nvidia-nvswitch(\d+): SXid \(PCI:({_PCI})\): (\d{{1,9}}), (.*)", re.DOTALL
)
_SXID_SEVERITY: Final = re.compile(r"(Fatal|Non-fatal)\b", re.I)
_SXID_LINK: Final = re.compile(r"Link (\d+)")
_GPU_NAMED: Final = re.compile(rf"NVRM: The NVIDIA GPU ({_PCI})")
# drivers of all ages: "GPU 18:00.0: GPU has", "GPU at 0000:01:00.0 has"
_GPU_LOST: Final = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?({_PCI}|[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-7])"
    r":? (?:GPU )?has fallen off the bus"
)
_GSP_STUCK: Final = re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:({_PCI})")
_GPU_START_FAILED: Final = re.compile(rf"NVRM: GPU ({_PCI}): RmInitAdapter failed")
_CONTAINED: Final = re.compile(rf"pcieport ({_PCI}): DPC: containment event")
_SERVER_SILENT: Final = re.compile(
    r"nfs: server (\S{1,200}) not responding"
    # Lustre's ptlrpc/import.c
    r"|Connection to ([\w-]{1,80}) \(at [^)]{1,80}\) was lost; in progress operations"
)
_AER: Final = re.compile(rf"(\S+) ({_PCI}): (?:AER: )?PCIe Bus Error: severity=([^,]*)")
_AER_RECEIVED: Final = re.compile(
    rf"pcieport ({_PCI}): AER: (?:Multiple )?"
    r"(Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)) error"
)
_AER_UNRECOVERED: Final = re.compile(
    rf"(\S+) ({_PCI}): (?:AER: can't recover|device has no AER-aware driver)"
)
_DIMM: Final = re.compile(r"EDAC \S+?: (\d+) (UE|CE)\b.*? on (\S+)")
_OOM: Final = re.compile(r"(?:Out of memory|out of memory): Kill(?:ed)? process (\d+) \(([^)]*)\)")
_MLX5: Final = re.compile(rf"mlx5_core ({_PCI}):? (.*)", re.DOTALL)
# the syndromes of mlx5/core/health.c but 0x10, which is a warning of high temperature
_NIC_FATAL: Final = re.compile(
    r"device's health compromised - reached miss count|health recovery flow aborted"
    r"|Health issue observed, (?!High temp).*, severity\([0-3]\)|Driver is in error state"
    r"|synd 0x(?:1|[7-9a-f]): |unrecoverable hardware error|handling bad device here"
    r"|ENABLE_HCA\(0x104\) timeout"
    r"|Fatal error|fatal firmware error|device is in fatal|health recovery failed"
    r"|timeout\. Will cause a leak of a command resource"
)
# drivers/net/ethernet/broadcom/bnxt/bnxt.c; the kind before "reset event" is fatal or non-fatal
_BNXT_FATAL: Final = re.compile(
    rf"bnxt_en ({_PCI}) .*(?:Firmware fatal reset event|Firmware not responding"
    r"|Error \(timeout: \d+\) msg \{)"
)
# mm/memory-failure.c: a page was lost to the machine; "soft offline" of corrected errors differs
_PAGE_LOST: Final = re.compile(r"Memory failure: 0x[0-9a-f]+: ")
_DRIVER_TROUBLE: Final[Mapping[str, str]] = {
    # leptonai/gpud, components/accelerator/nvidia/nvlink
    "Failed to update Rx Detect Link mask": "the driver could not find the links of a GPU",
    "No NVIDIA GPU found": "the driver found no GPU",
    "NVIDIA probe routine failed": "the driver could not take up a GPU",
    "PCI I/O region assigned to your NVIDIA device is invalid": "a GPU has no address space",
}
DISK_FAILED: Final = "a disk failed a request"
_TROUBLE: Final[Mapping[str, str]] = {
    "Kernel panic - not syncing": "the kernel stopped",
    "Machine Check Exception": "the processor reported a fatal machine check",
    "event severity: fatal": "the firmware reported a fatal hardware error",
    "event severity: recoverable": "the firmware reported an uncorrected hardware error",
    " lockup - CPU#": "a processor made no progress for seconds",
    "LOCKUP on cpu": "a processor made no progress for seconds",
    " blocked for more than ": "a task made no progress for minutes",
    " segfault at ": "a process crashed",
    " general protection fault ": "a process crashed",
    "I/O error, dev nvme": DISK_FAILED,
    "I/O error, dev sd": DISK_FAILED,
}
"""Lines that say that something failed, and not which part: kernel/hung_task.c, kernel/watchdog.c,
drivers/firmware/efi/cper.c, arch/x86/mm/fault.c, block/blk-core.c, Lustre's ptlrpc/import.c."""
# mlx5/core/events.c: port_module_event_error_type and port_module_event_status_str
_MODULE_ERROR: Final = re.compile(
    rf"mlx5_core ({_PCI}):? .*Port module event\[error\]: module (\d+), Cable error, (.+)"
)
_NIC_TROUBLE: Final = re.compile(
    r"TX timeout detected|mlx5_load_one failed|probe .*failed with error"
)
_UNKNOWN_PIDS: Final = frozenset({"<unknown>", ""})


def parse(text: str) -> KernelMessage | None:
    """What the line says, or None where it bears on no fault."""
    if "NVRM: " in text:
        return _of_nvidia(text)
    if "SXid" in text:
        return _of_nvswitch(text)
    if "AER" in text or "PCIe Bus Error" in text or "DPC:" in text:
        return _of_pcie(text)
    if "mlx5_core" in text:
        return _of_mlx5(text)
    if "bnxt_en" in text:
        match = _BNXT_FATAL.search(text)
        return match and KernelMessage(kind="nic_fatal", device=pci_address(match[1]))
    return _of_host(text)


def _of_host(text: str) -> KernelMessage | None:
    if "EDAC" in text:
        match = _DIMM.search(text)
        if match and match[2] == "CE":
            return KernelMessage(kind="dimm_corrected", code=int(match[1][:9]), label=match[3])
        return match and KernelMessage(kind="dimm_uncorrectable", label=match[3])
    if "Kill" in text:
        match = _OOM.search(text)
        return match and KernelMessage(kind="oom_kill", pid=int(match[1][:18]), process=match[2])
    if "nfs: server" in text or "was lost; in progress" in text:
        match = _SERVER_SILENT.search(text)
        return match and KernelMessage(kind="server_silent", label=match[1] or match[2])
    if "Memory failure" in text and _PAGE_LOST.search(text):
        return KernelMessage(kind="dimm_uncorrectable")
    return _trouble(text, _TROUBLE)


def _of_nvidia(text: str) -> KernelMessage | None:
    if match := _XID.search(text):
        return _xid(pci_address(match[1]), int(match[2]), match[3])
    if "fallen off the bus" in text:
        named = _GPU_NAMED.search(text)
        lost = _GPU_LOST.search(text)
        device = (named and named[1]) or (lost and lost[1]) or ""
        return KernelMessage(kind="gpu_lost", code=79, device=pci_address(device) if device else "")
    if match := _GPU_NAMED.search(text):
        return KernelMessage(kind="gpu_named", device=pci_address(match[1]))
    if match := _GPU_START_FAILED.search(text):
        return KernelMessage(kind="gpu_start_failed", device=pci_address(match[1]))
    if "API mismatch" in text:
        return KernelMessage(kind="version_mismatch")
    if match := _GSP_STUCK.search(text):
        return KernelMessage(kind="gsp_stuck", device=pci_address(match[1]))
    return _trouble(text, _DRIVER_TROUBLE)


def _trouble(text: str, kinds: Mapping[str, str]) -> KernelMessage | None:
    says = next((says for words, says in kinds.items() if words in text), None)
    return None if says is None else KernelMessage(kind="trouble", label=says)


def _xid(device: str, code: int, rest: str) -> KernelMessage:
    pid, process = _PID.search(rest), _PROCESS.search(rest)
    caused_by, action = _CAUSED_BY.search(rest), _ACTION.search(rest)
    nvlink5, fatal_link = _NVLINK5.search(rest), _LINK_FATAL.search(rest)
    severity: Severity = "fatal" if fatal_link else ""
    if nvlink5:
        severity = "fatal" if nvlink5[2].lower() == "fatal" else "nonfatal"
    link = (nvlink5 and nvlink5[3]) or (fatal_link and fatal_link[1]) or "-1"
    return KernelMessage(
        kind="xid",
        code=code,
        device=device,
        severity=severity,
        pid=int(pid[1][:18]) if pid and pid[1] not in _UNKNOWN_PIDS else -1,
        process=process[1] if process and process[1] not in _UNKNOWN_PIDS else "",
        link_index=int(link[:9]),
        caused_by=int(caused_by[1]) if caused_by else -1,
        driver_action=int(action[1], 16) if action and code == 154 else -1,
        unit=nvlink5[1] if nvlink5 else "",
        registers=_registers(nvlink5[4]) if nvlink5 else (),
    )


def _registers(text: str) -> tuple[int, ...]:
    words = [word for word in text.split() if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word)]
    return tuple(int(word, 16) for word in words[:8])


def _of_nvswitch(text: str) -> KernelMessage | None:
    match = _SXID.search(text)
    if match is None:
        return None
    severity, link = _SXID_SEVERITY.match(match[4]), _SXID_LINK.search(match[4])
    return KernelMessage(
        kind="sxid",
        code=int(match[3]),
        device=pci_address(match[2]),
        severity="" if not severity else "fatal" if severity[1].lower() == "fatal" else "nonfatal",
        link_index=int(link[1][:9]) if link else -1,
        switch_index=int(match[1][:9]),
        detail=match[4].startswith(("Data ", "Severity ")),
    )


def _of_pcie(text: str) -> KernelMessage | None:
    if match := _CONTAINED.search(text):
        device = pci_address(match[1])
        return KernelMessage(kind="aer", driver="pcieport", device=device, severity="fatal")
    if match := _AER.search(text):
        return KernelMessage(
            kind="aer", driver=match[1], device=pci_address(match[2]), severity=_aer(match[3])
        )
    if match := _AER_RECEIVED.search(text):
        return KernelMessage(
            kind="aer", driver="pcieport", device=pci_address(match[1]), severity=_aer(match[2])
        )
    if match := _AER_UNRECOVERED.search(text):
        return KernelMessage(kind="aer_unrecovered", driver=match[1], device=pci_address(match[2]))
    return None


def _aer(severity: str) -> Severity:
    if severity.startswith("Correct"):
        return "corrected"
    return "nonfatal" if "non-fatal" in severity.lower() else "fatal"


def _of_mlx5(text: str) -> KernelMessage | None:
    if (found := _MODULE_ERROR.search(text)) is not None:
        return KernelMessage(
            kind="module_error", device=pci_address(found[1]), label=found[3][:80].strip()
        )
    match = _MLX5.search(text)
    if match and _NIC_FATAL.search(match[2]):
        return KernelMessage(kind="nic_fatal", device=pci_address(match[1]))
    if _NIC_TROUBLE.search(text):
        return KernelMessage(kind="trouble", label="a network adapter made no progress")
    return None
