"""Xids that a device plugin, an agent or a monitor tells of, in place of the kernel's own line.

Why: in a container the kernel's log is out of reach, and what watches the GPUs repeats the number.
How: the number is read like the kernel's own, with less certainty, because what stood around it is
missing; codes that a program causes acquit the GPU.
"""

from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import UNEXPLAINED, Finding
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import role_of
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Said, Told
from nemesis.schemas.components import pci_address

TOLD_PPM: Final = 800_000


def judge_told_xids(told: Told) -> list[Finding]:
    """What each number that was told proves."""
    by_code: dict[int, list[Said]] = {}
    for each in told.of("xid_told"):
        by_code.setdefault(each.message.number, []).append(each)
    found = [_told(told, code, said) for code, said in sorted(by_code.items())]
    return [each for each in found if each is not None]


def _told(told: Told, code: int, said: list[Said]) -> Finding | None:
    message = KernelMessage(kind="xid", code=code, device="told", severity="fatal")
    if (role := role_of(message)) is None:
        return None
    names = tuple(sorted({_gpu(each) for each in said}))
    hardware = role.fault_class not in ("unknown", "app.program")
    whose = f"Xid {code} was told of {shown(names)}"
    return Finding(
        verdict="attributed"
        if hardware
        else "insufficient"
        if _vague(role.level)
        else "class-only",
        fault_class=role.fault_class,
        reason=whose if hardware else f"{whose}, which only reports it",
        confidence_ppm=0 if _vague(role.level) else TOLD_PPM,
        level=role.level - 1,
        signature=role.signature,
        culprits=names if hardware else (),
        proofs=proofs(said, role.says),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG,),
    )


def _vague(level: int) -> bool:
    return level <= UNEXPLAINED


def _gpu(said: Said) -> str:
    device = said.message.device
    return f"gpu/{said.node}/{device if device.startswith('GPU-') else pci_address(device)}"
