"""What a library was refused by an adapter or the kernel, and which releases it is made of.

Why: a device that cannot be opened, memory that cannot be registered and a library of another
release on one host stop a job before any part of it is broken. How: who was refused says what, and
which of driver, module and permission is missing is not said: the kind of fault, no part. Releases
differ only between hosts that both told theirs, and count only where something failed; the host
that is alone with its release is named, of two nobody knows which one is right.

NVIDIA NCCL User Guide, GPU Direct RDMA (nvidia-peermem, DMA-BUF); ibv_open_device(3).
"""

from collections import Counter
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    CONFIGURED,
    UNEXPLAINED,
    VERSION_DIFFERS,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Told

OTHERS_MIN: Final = 2
_RELEASE: Final = "release."
_OF_A_COMMUNICATOR: Final = frozenset({"nccl", "plugin", "aws-ofi-nccl", "hpc-x", "hpcx", "ucx"})
"""What must be of one release in all of its processes; others may differ and mostly work."""
_FAILED: Final = (
    "timeout",
    "follower",
    "trouble",
    "connect_failed",
    "peer_closed",
    "completion",
    "release_mismatch",
)


def judge_refusals(told: Told) -> list[Finding]:
    """What was refused, and releases that differ."""
    found = [
        _memory_refused(told),
        _device_refused(told),
        _releases(told) or _mismatch(told),
        *_tabled(told),
    ]
    return [each for each in found if each is not None]


def _memory_refused(told: Told) -> Finding | None:
    refused = told.of("registration_refused")
    if not refused:
        return None
    what = shown(sorted({each.message.what.lower() for each in refused}), 2)
    return Finding(
        verdict="class-only",
        fault_class="host.config",
        reason=f"the adapter of {shown(sorted({e.node for e in refused}))} could not register"
        f" memory ({what}): a driver or module for GPU memory is missing or does not fit",
        confidence_ppm=550_000,
        level=UNEXPLAINED + 3,
        proofs=proofs(refused, "memory that cannot be registered, and not for want of room"),
        jobs=(told.job,),
        missing=(wanted.PEER_MEMORY,),
    )


def _device_refused(told: Told) -> Finding | None:
    refused = told.of("device_refused")
    if not refused:
        return None
    devices = shown(sorted({each.message.device for each in refused}))
    return Finding(
        verdict="class-only",
        fault_class="network.config",
        reason=f"{devices} could not be opened on {shown(sorted({e.node for e in refused}))}:"
        " permissions, or a device that the container does not have",
        confidence_ppm=600_000,
        level=CONFIGURED - 2,
        proofs=proofs(refused, "this adapter is there and cannot be opened"),
        jobs=(told.job,),
        missing=(wanted.DEVICE_ACCESS,),
    )


def _releases(told: Told) -> Finding | None:
    """NCCL must be of one release in all processes of a communicator (NCCL User Guide)."""
    by_node = {e.node: e for e in told.of("release")}
    count = Counter(each.message.what for each in by_node.values())
    if len(count) < 2 or not told.of(*_FAILED, "severe"):
        return None
    usual, others = count.most_common(1)[0]
    odd = [each for each in by_node.values() if each.message.what != usual]
    certain = others >= OTHERS_MIN and len(odd) == 1
    names = tuple(_library(each) for each in odd) if certain else ()
    return Finding(
        verdict="attributed" if certain else "class-only",
        fault_class="software.version",
        reason=f"hosts of {told.job} run NCCL {shown(sorted(count))}",
        confidence_ppm=800_000 if certain else 650_000,
        level=VERSION_DIFFERS,
        culprits=names,
        proofs=proofs_of((e, f"{e.node} runs NCCL {e.message.what}") for e in by_node.values()),
        jobs=(told.job,),
    )


def _mismatch(told: Told) -> Finding | None:
    """A rank found it out, and which of them is the odd one is not said."""
    noticed = told.of("release_mismatch")
    if not noticed:
        return None
    return Finding(
        verdict="class-only",
        fault_class="software.version",
        reason=f"ranks of {told.job} are of different releases of NCCL",
        confidence_ppm=650_000,
        level=VERSION_DIFFERS,
        proofs=proofs(noticed, "a rank compared its release with the others'"),
        jobs=(told.job,),
        missing=(wanted.RANKS_OUTPUT,),
    )


def _library(said: Said) -> str:
    return f"software/{said.node}/nccl-{said.message.what}"


def _tabled(told: Told) -> list[Finding]:
    """Releases that somebody put side by side: one host that differs, where something failed."""
    found = []
    named = [each for each in told.settings if each.name.startswith(_RELEASE)]
    for name in sorted({each.name for each in named}):
        own = {each.component: each for each in named if each.name == name}
        count = Counter(each.value for each in own.values())
        if len(count) < 2:
            continue
        usual, others = count.most_common(1)[0]
        odd = [each for each in own.values() if each.value != usual]
        what = name.removeprefix(_RELEASE)
        failed = told.of(*_FAILED, "severe")
        alone = others >= OTHERS_MIN and len(odd) == 1
        certain = bool(failed) and alone and what in _OF_A_COMMUNICATOR
        found.append(
            Finding(
                verdict="attributed" if certain else "class-only" if failed else "insufficient",
                fault_class="software.version" if failed else "unknown",
                reason=f"hosts of {told.job} run {what} {shown(sorted(count))}"
                + ("" if failed else "; that anything failed for it is not shown"),
                confidence_ppm=700_000 if certain else 500_000 if failed else 0,
                level=VERSION_DIFFERS - 1 if failed else UNEXPLAINED - 2,
                culprits=tuple(f"software/{e.node}/{what}-{e.value}" for e in odd)
                if certain
                else (),
                proofs=proofs_of((e, f"{e.component} runs {what} {e.value}") for e in own.values()),
                jobs=(told.job,),
                missing=(wanted.ONE_RUN_EACH, wanted.RANKS_OUTPUT),
            )
        )
    return found
