"""What the codes of drivers mean, what they follow, and what to do: Xid, SXid, AER, NIC health.

Why: a number in a kernel log is looked up at three in the morning, and half of what is found says
what to do without saying that the code only follows from another. How: the rows are put together
from NVIDIA's catalogues (xid_table.py, sxid_table.py), the rules' own view of each code
(kernel_rules.py), and the kernel's lists for PCIe and mlx5; one row a code.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from nemesis.processors.attribution.findings import DRIVER_HUNG
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import FOLLOWS, role_of
from nemesis.processors.attribution.sxid_table import SXIDS
from nemesis.processors.attribution.xid_table import XIDS
from nemesis.schemas.codes import Action

Family = Literal["xid", "sxid", "aer", "nic"]
Severity = Literal["fatal", "error", "note"]
"""fatal: the device, or what hangs on it, does no more work; error: something failed; note: nothing
to be done by itself."""
_XID_SOURCE: Final = "docs.nvidia.com/deploy/xid-errors"
_SXID_SOURCE: Final = "NVIDIA Fabric Manager User Guide, NVSwitch errors"
_AER_SOURCE: Final = "Linux drivers/pci/pcie/aer.c"
# the numbers are those of mlx5_ifc.h, MLX5_INITIAL_SEG_HEALTH_SYNDROME_*
_NIC_SOURCE: Final = "Linux drivers/net/ethernet/mellanox/mlx5/core/health.c"
_BUCKETS: Final[Mapping[str, Action]] = {
    "IGNORE": "none",
    "RESTART_APP": "restart_job",
    "RESET_GPU": "reset_gpu",
    "RESTART_VM": "reboot_node",
    "RESTART_BM": "reboot_node",
    "CHECK_MECHANICALS": "drain_node",
    "UPDATE_SWFW": "fix_config",
    "CHECK_UVM": "fix_program",
    "WORKFLOW_XID_45": "watch",
    "WORKFLOW_XID_48": "drain_node",
    "WORKFLOW_NVLINK_ERR": "reset_gpu",
    "WORKFLOW_NVLINK5_ERR": "reset_gpu",
    "XID_154": "collect_more",
    "CONTACT_SUPPORT": "collect_more",
    "": "collect_more",
}
"""NVIDIA's buckets of what to do at once."""


class Code(NamedTuple):
    """One code."""

    family: Family
    code: str
    severity: Severity
    meaning: str
    follows: str
    """Why it may only follow from another; "" where it stands for itself."""
    action: Action
    source: str


_AER: Final = (
    Code("aer", "fatal", "fatal", "the PCIe link below a port is unreliable", "", "drain_node",
         _AER_SOURCE),
    Code("aer", "nonfatal", "error", "a transaction failed, and the link works on", "", "watch",
         _AER_SOURCE),
    Code("aer", "corrected", "note", "the link corrected it by itself", "", "none", _AER_SOURCE),
)  # fmt: skip
_NIC: Final[Mapping[str, tuple[str, Severity]]] = {
    "0x1": ("firmware internal error", "fatal"),
    "0x7": ("a processor of the firmware does not answer", "fatal"),
    "0x8": ("unrecoverable hardware error", "fatal"),
    "0x9": ("the firmware's checksum is wrong", "fatal"),
    "0xa": ("the host's memory could not be read over PCIe", "fatal"),
    "0xb": ("a page of the host's memory is not there", "fatal"),
    "0xc": ("the queue of asynchronous events ran over", "fatal"),
    "0xd": ("an event queue failed", "fatal"),
    "0xe": ("an event queue that does not exist was named", "fatal"),
    "0xf": ("a serial link inside the device failed", "fatal"),
    "0x10": ("it is hot", "note"),
    "0x12": ("data read from the host's memory is marked as spoilt", "fatal"),
    "0x13": ("the device does not trust its firmware and locked itself", "fatal"),
}


def code_rows() -> Iterator[Code]:
    """Every code that is known."""
    for code, xid in sorted(XIDS.items()):
        message = KernelMessage(kind="xid", code=code)
        action = _BUCKETS[xid.immediate]
        yield Code(
            "xid", str(code), _severity(message), xid.meaning, FOLLOWS.get(code, ""), action,
            _XID_SOURCE,
        )  # fmt: skip
    for code, sxid in sorted(SXIDS.items()):
        severity: Severity = (
            "fatal" if sxid.always_fatal else "error" if sxid.potentially_fatal else "note"
        )
        follows = "" if sxid.always_fatal else "a GPU that is gone makes its switches report this"
        action = "drain_node" if sxid.always_fatal else "reset_gpu" if follows else "none"
        yield Code(
            "sxid", str(code), severity, sxid.meaning, follows if severity == "error" else "",
            "none" if severity == "note" else action, _SXID_SOURCE,
        )  # fmt: skip
    yield from _AER
    for syndrome, (meaning, severity) in _NIC.items():
        action = "drain_node" if severity == "fatal" else "watch"
        yield Code("nic", syndrome, severity, meaning, "", action, _NIC_SOURCE)


def _severity(message: KernelMessage) -> Severity:
    role = role_of(message)
    if role is None:
        return "note"
    return "fatal" if role.level >= DRIVER_HUNG else "error"
