"""What a program's own errors prove: its code, its memory, its host, or a GPU that nobody names.

Why: most failures that look like hardware are the program's, and a GPU's error reaches the program
as an exception. How: CUDA's error string says which of the two; an exception of one rank before the
others only lost their peer is the program's; a worker that was killed points to the host's memory.
Follow-up errors (a closed connection, an aborted communicator) say nothing.
"""

import re
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    MEMORY_SAID,
    NOT_UNDERSTOOD,
    OFF_BUS,
    PROGRAM_FAULT,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Said, Told
from nemesis.schemas.components import pci_address

# cudaGetErrorString: what the program did wrong, as far as CUDA can tell
_PROGRAM_ERRORS: Final = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "invalid argument",
    "invalid configuration",
    "invalid device ordinal",
    "too many resources",
    "no kernel image",
    "invalid resource handle",
)
# these stay with a process once they happened; the others are of the very call that reports them
_STICKY: Final = ("illegal memory access", "device-side assert", "misaligned address")
_ASSERTED: Final = "device-side assert"
_MEMORY_SPENT: Final = ("out of memory",)
_ECC: Final = ("uncorrectable ecc error",)
_NVLINK: Final = ("nvlink error", "peer gpu memory over nvlink")
NAMED_MAX: Final = 3
# SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV: nobody sends these to stop a job in order
_OWN_DEATHS: Final = frozenset({4, 7, 8, 9, 11})
# PyTorch's words for what a program did wrong
_OWN_ERRORS: Final = (
    "Expected to have finished reduction",
    "modified by an inplace operation",
    "shapes cannot be multiplied",
    "expected scalar type",
    "The size of tensor",
    "is invalid for input of size",
    "stack expects each tensor",
    "Error(s) in loading state_dict",
    "does not require grad",
    "Expected all tensors to be on the same device",
    "Trying to backward through the graph a second time",
    "Sizes of tensors must match",
)
_STOPPED: Final = frozenset({"KeyboardInterrupt", "SystemExit"})
# what the world around a program raises in it: sockets, stores, a rendezvous, files, memory
_NOT_THE_CODE: Final = re.compile(
    r"(?:OS|IO|Memory|\w*Time[Oo]ut|\w*Connect(?:ion)?|\w*Rendezvous\w*|\w*Network|\w*Socket|\w*Store)"
    r"(?:Error|Exception)\Z"
)


def judge_program(told: Told) -> list[Finding]:
    """What errors of the program prove."""
    found = [
        _ecc(told),
        _nvlink(told),
        _lost_gpu(told),
        _cuda(told),
        _cuda_program(told),
        _gpu_memory(told),
        _misused(told),
        _exception(told),
        _died(told),
    ]
    return [each for each in found if each is not None]


def _cuda_errors(told: Told, words: Sequence[str]) -> list[Said]:
    return [e for e in told.of("cuda_error") if any(word in e.message.what for word in words)]


def _ecc(told: Told) -> Finding | None:
    errors = _cuda_errors(told, _ECC)
    if not errors:
        return None
    where = shown(sorted({f"rank {each.rank}" for each in errors if each.rank >= 0}))
    return Finding(
        verdict="class-only",
        fault_class="gpu.memory",
        reason=f"a GPU of {told.job} met an uncorrectable memory error"
        + (f" under {where}" if where else "")
        + "; which GPU that is, is not said",
        confidence_ppm=900_000,
        level=MEMORY_SAID,
        proofs=proofs(errors, "CUDA's word for memory that cannot be corrected"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS, wanted.GPU_OF_RANK),
    )


def _nvlink(told: Told) -> Finding | None:
    errors = _cuda_errors(told, _NVLINK)
    if not errors:
        return None
    return Finding(
        verdict="class-only",
        fault_class="nvlink",
        reason=f"{told.job} met an NVLink error that could not be corrected; which link that is, is"
        " not said",
        confidence_ppm=850_000,
        level=MEMORY_SAID,
        proofs=proofs(errors, "CUDA's word for a link whose errors cannot be corrected"),
        jobs=(told.job,),
        missing=(wanted.NVLINK_ERRORS, wanted.KERNEL_LOGS),
    )


def _lost_gpu(told: Told) -> Finding | None:
    lost = told.of("gpu_lost")
    if not lost:
        return None
    names = sorted({f"gpu/{e.node}/{pci_address(e.message.device)}" for e in lost})
    return Finding(
        verdict="attributed",
        fault_class="gpu.off_bus",
        reason=f"the driver lost {shown(names)}",
        confidence_ppm=850_000,
        level=OFF_BUS,
        culprits=tuple(names),
        proofs=proofs(lost, "the driver cannot reach this GPU"),
        missing=(wanted.KERNEL_LOG,),
    )


def _cuda(told: Told) -> Finding | None:
    """Errors that program and hardware may both have made."""
    known = (*_PROGRAM_ERRORS, *_MEMORY_SPENT, *_ECC, *_NVLINK, "not yet initialized")
    errors = [
        e
        for e in told.of("cuda_error")
        if is_of_nccl(e) or not any(w in e.message.what for w in known)
    ]
    if not errors:
        return None
    what = shown(sorted({each.message.what for each in errors}), 2)
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{told.job} ended with a CUDA error that does not say what failed: {what}",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(errors, "an error that a program, a driver or a GPU may have made"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOGS, wanted.NODE_GPUS),
    )


def _cuda_program(told: Told) -> Finding | None:
    errors = [e for e in _cuda_errors(told, _PROGRAM_ERRORS) if not is_of_nccl(e)]
    if not errors:
        return None
    what = shown(sorted({each.message.what for each in errors}), 2)
    # one GPU may have made it up; GPUs of several nodes do not at once, nor does one fail a check
    # that the program itself makes in its kernels
    several = len({each.node for each in errors if each.rank >= 0}) > 1
    named = several or all(_ASSERTED in each.message.what for each in errors)
    return Finding(
        verdict="attributed" if named else "class-only",
        fault_class="app.program",
        reason=f"{told.job} did what CUDA does not allow: {what}",
        confidence_ppm=800_000 if named else 700_000,
        level=PROGRAM_FAULT - 1,
        culprits=(f"program/{told.job}",) if named else (),
        of_its_own=named,
        proofs=proofs(errors, "an error that programs make"),
        jobs=(told.job,),
        missing=("where it happens: CUDA_LAUNCH_BLOCKING=1, compute-sanitizer",),
    )


def is_of_nccl(said: Said) -> bool:
    """Whether NCCL's own call was refused, of which the program says nothing."""
    message = said.message
    own = any(words in message.what for words in _PROGRAM_ERRORS)
    return message.device == "nccl" and own and not any(w in message.what for w in _STICKY)


def _gpu_memory(told: Told) -> Finding | None:
    errors = _cuda_errors(told, _MEMORY_SPENT)
    errors += [e for e in told.of("exception") if "OutOfMemory" in e.message.device]
    if not errors:
        return None
    return Finding(
        verdict="attributed",
        fault_class="app.oom",
        reason=f"{told.job} asked for more GPU memory than there is",
        confidence_ppm=850_000,
        level=PROGRAM_FAULT - 1,  # a rank that ends so says why
        culprits=(f"program/{told.job}",),
        of_its_own=True,
        proofs=proofs(errors, "an allocation on the GPU failed"),
    )


def _misused(told: Told) -> Finding | None:
    """What NCCL refuses because nobody may ask it: a device twice, a root that there is not."""
    misused = told.of("misused")
    if not misused:
        return None
    return Finding(
        verdict="attributed",
        fault_class="app.program",
        reason=f"{told.job} asked of NCCL what it does not do: {misused[0].message.what}",
        confidence_ppm=750_000,
        level=PROGRAM_FAULT - 1,
        culprits=(f"program/{told.job}",),
        of_its_own=True,
        proofs=proofs(misused, "NCCL says what it was asked for wrongly"),
        jobs=(told.job,),
    )


def _exception(told: Told) -> Finding | None:
    """An exception that is no follow-up of somebody else's end."""
    raised = [
        each
        for each in told.of("exception")
        if each.message.device not in _STOPPED
        and not _NOT_THE_CODE.match(each.message.device)
        and "OutOfMemory" not in each.message.device
        and "CUDA" not in each.message.what
    ]
    errors = [each for each in raised if each.message.device.endswith(("Error", "Exception"))]
    if not errors:
        return None
    ranks = sorted({each.rank for each in errors if each.rank >= 0})
    first = min(errors, key=lambda each: each.at_ns)
    # RuntimeError is what libraries raise for what they cannot name
    vague = all(e.message.device == "RuntimeError" and not _is_own(e) for e in errors)
    who = f"rank {shown(ranks, NAMED_MAX)} of {told.job}" if ranks else told.job
    reason = f"{who} raised {first.message.device}: {first.message.what[:120]}"
    return Finding(
        verdict="insufficient" if vague else "attributed",
        fault_class="unknown" if vague else "app.program",
        reason=reason,
        confidence_ppm=0 if vague else 800_000,
        level=NOT_UNDERSTOOD + 1 if vague else PROGRAM_FAULT - 1,
        culprits=() if vague else (f"program/{told.job}",),
        victims=(),
        proofs=proofs(errors, "raised by the program itself"),
        jobs=(told.job,),
        missing=(wanted.RANKS_OUTPUT,),
    )


def _is_own(said: Said) -> bool:
    return any(words in said.message.what for words in _OWN_ERRORS)


def _died(told: Told) -> Finding | None:
    """A process that crashed or was killed, and nothing says why."""
    died = [each for each in told.of("died") if each.message.number in _OWN_DEATHS]
    if not died:
        return None
    signals = shown(sorted({each.message.number for each in died}))
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"a process of {told.job} was ended by signal {signals}; what sent it is not said",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(died, "it crashed or was killed, before the others were told to stop"),
        jobs=(told.job,),
        missing=(wanted.MEMORY_LEFT, wanted.RANKS_OUTPUT, wanted.KERNEL_LOGS),
    )
