"""Whether a job fits into its GPUs' memory. Estimates are low, so what they refuse cannot fit."""

from collections.abc import Iterator
from typing import Final

from nemesis.processors.parallelism.case import Case, Finding
from nemesis.processors.parallelism.memory import Memory, memory_of

MIB: Final = 1 << 20
CONTEXT_MIB_MIN: Final = 2 * 1024
CONTEXT_MIB_MAX: Final = 6 * 1024
"""CUDA context and NCCL's buffers: 2 to 6 GB, assumed."""
USABLE: Final = 0.95
"""Of the memory; the rest is lost to fragments, assumed."""


def memory_mib(case: Case) -> int:
    """Of the largest GPU, 0 where no class is known."""
    return max((each.memory_mib for each in case.classes), default=0)


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.0f} GiB"


def m1(case: Case) -> Iterator[Finding]:
    """Weights, gradients and optimizer fit."""
    found, most = memory_of(case), memory_mib(case) * MIB
    if most and found.state_bytes > most:
        text = (
            f"weights, gradients and optimizer take {_gib(found.state_bytes)} of {_gib(most)} a GPU"
        )
        yield Finding(code="M1", text=text, legal=_more_cuts(case))


def m2(case: Case) -> Iterator[Finding]:
    """They fit together with activations."""
    found, most = memory_of(case), memory_mib(case) * MIB
    if most and found.state_bytes <= most < found.state_bytes + found.activation_bytes:
        yield Finding(code="M2", text=_sum(found, most), legal=_less_activation(case))


def m3(case: Case) -> Iterator[Finding]:
    """They leave room for the driver's context and NCCL; a warning where it may be too little."""
    found, most = memory_of(case), memory_mib(case) * MIB
    need = found.state_bytes + found.activation_bytes
    if not most or need > most:
        return
    ample = found.state_bytes_most + found.activation_bytes_most
    if need + CONTEXT_MIB_MIN * MIB > USABLE * most:
        text = f"{_sum(found, most)}, which leaves too little for context and NCCL (2 to 6 GiB)"
        yield Finding(code="M3", text=text, legal=_less_activation(case))
    elif need + CONTEXT_MIB_MAX * MIB > USABLE * most:
        text = f"{_sum(found, most)}: tight beside context and NCCL (2 to 6 GiB)"
        yield Finding(code="M3", severity="warning", text=text, legal=_less_activation(case))
    elif ample + CONTEXT_MIB_MIN * MIB > USABLE * most:
        text = f"{_gib(need)} to {_gib(ample)} of {_gib(most)} a GPU, as {_unsaid(case)} are set"
        yield Finding(code="M3", severity="warning", text=text)


def _unsaid(case: Case) -> str:
    """The settings that would decide."""
    said = (case.settings.recompute, case.settings.gradient_bytes)
    names = ("recomputation", "the width of gradients")
    return " and ".join(name for name, own in zip(names, said, strict=True) if not own)


def _sum(found: Memory, most: float) -> str:
    state, rest = _gib(found.state_bytes), _gib(found.activation_bytes)
    return f"{state} of weights and optimizer and {rest} of activations, of {_gib(most)} a GPU"


def _more_cuts(case: Case) -> str:
    tp, stages = case.layout.degree("TP"), case.layout.degree("PP")
    return f"TP {tp} -> {2 * tp}, PP {stages} -> {2 * stages}, or FSDP"


def _less_activation(case: Case) -> str:
    if case.settings.recompute not in ("", "full"):
        return "recompute full"
    if case.micro_batch > 1:
        return f"mbs {case.micro_batch} -> {case.micro_batch // 2}"
    return _more_cuts(case)
