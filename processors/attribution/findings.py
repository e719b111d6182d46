"""What a set of observations proves: the common currency of all rules of attribution."""

from typing import Final

import msgspec

from nemesis.schemas.codes import FaultClass, Signature, Verdict
from nemesis.schemas.inferred import RuledOut

TEXT_CHARS_MAX: Final = 1000  # a kernel record is at most 1 KiB (kernel/printk)


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """One observation and what it proves."""

    fact: str
    seq: int
    says: str
    text: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict in the making."""

    verdict: Verdict
    fault_class: FaultClass
    reason: str
    confidence_ppm: int
    level: int
    """How much it explains; of several findings of one incident the highest one is the root."""
    culprits: tuple[str, ...] = ()
    """Canonical names, sorted."""
    victims: tuple[str, ...] = ()
    signature: Signature = ""
    driver_action: str = ""
    proofs: tuple[Proof, ...] = ()
    missing: tuple[str, ...] = ()
    """What would settle it, with the command that gets it (wanted.py)."""
    ruled_out: tuple[RuledOut, ...] = ()
    jobs: tuple[str, ...] = ()
    """Jobs that it touches beyond those with ranks on the culprits."""
    provisional: bool = False
    """What it names may only have been the first to cry out: hear everybody before it is said."""
    waits_for_steps: bool = False
    """Its job getting on refutes it: wait until that job is known to stand still."""
    of_its_own: bool = False
    """No other fault explains it, so it is told of beside whatever else is wrong with its job."""


# Levels of findings. A dead device explains everything that follows on its node and in its job;
# a silent node explains its ranks; what ranks did explains what programs printed; a row remap
# explains nothing but itself.
OFF_BUS: Final = 90
MEMORY_LOST: Final = 80
MEMORY_CONTAINED: Final = 75
NVLINK_FATAL: Final = 70
NVSWITCH_FATAL: Final = 65
HOST_MEMORY: Final = 60
NIC_FATAL: Final = 55
MEMORY_SAID: Final = 54
LINK_LOST: Final = 53
PAUSED: Final = 52
DRIVER_HUNG: Final = 50
GPU_SHOWS: Final = 49
SERVICE_DOWN: Final = 48
CORRUPTED: Final = 48
CONFIGURED: Final = 46
NODE_SILENT: Final = 45
PROGRAM_FAULT: Final = 44
RANK_HALTED: Final = 43
RANK_EXITED: Final = 42
CALLS_DIFFER: Final = 41
RANK_STUCK: Final = 40
STAGE_SLOW: Final = 39
VERSION_DIFFERS: Final = 37
OUT_OF_MEMORY: Final = 35
STORAGE_SILENT: Final = 33
REMAP_PENDING: Final = 30
STRAGGLER: Final = 28
RANK_LATE: Final = 25
PORTS_TROUBLED: Final = 24
PATH_SLOW: Final = 22
UNEXPLAINED: Final = 10
MEMORY_FADES: Final = 9
LINK_DOWN: Final = 8
NOT_UNDERSTOOD: Final = 5


def is_same(one: Finding, other: Finding) -> bool:
    """Whether two findings say the same, whatever they cite."""
    return _said(one) == _said(other)


def _said(finding: Finding) -> tuple[object, ...]:
    return (
        finding.verdict,
        finding.fault_class,
        finding.culprits,
        finding.signature,
        finding.reason,
    )
