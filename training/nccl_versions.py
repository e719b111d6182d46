"""What each version of NCCL can do to a communicator's members, and what of it is not safe. Data.

First versions are those whose nccl.h has the call, tag by tag (github.com/NVIDIA/nccl). Hazards are
of reports by others: NCCL issues, torch issues and the pins of other recovery tools.
"""

from typing import Final, Literal

import msgspec

Version = tuple[int, int, int]
Call = Literal["init", "abort", "split", "shrink", "revoke", "grow"]
Change = Literal["shrink", "grow"]
Answer = Literal["rebuild", "abort_parent", "fence_first", "deadline", "never_default", "check"]
"""rebuild: do not use the call, make a new group. abort_parent: abort the old communicator, never
destroy it. fence_first: the excluded ranks are killed before. deadline: give the call up in time,
then rebuild. never_default: shrink groups of our own, not torch's default group. check: look at
the arguments before the call."""

FIRST: Final[dict[Call, Version]] = {
    "init": (2, 4, 0),
    "abort": (2, 4, 0),
    "split": (2, 18, 1),
    "shrink": (2, 27, 3),
    "revoke": (2, 28, 7),
    "grow": (2, 29, 2),
}
SYMBOLS: Final[dict[Call, tuple[str, ...]]] = {
    "init": ("ncclCommInitRank", "ncclGetUniqueId", "ncclCommGetAsyncError"),
    "abort": ("ncclCommAbort",),
    "split": ("ncclCommSplit",),
    "shrink": ("ncclCommShrink",),
    "revoke": ("ncclCommRevoke",),
    "grow": ("ncclCommGrow", "ncclCommGetUniqueId"),
}
"""What a library exports that can do it."""


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """Something that goes wrong in a range of versions, and what is done instead."""

    name: str
    call: Call
    first: Version = (0, 0, 0)
    last: Version = (9_999, 0, 0)
    """The last one that has it, as far as known."""
    answer: Answer
    what: str
    source: str

    def is_in(self, version: Version) -> bool:
        """Whether that version has it."""
        return self.first <= version <= self.last


HAZARDS: Final[tuple[Hazard, ...]] = (
    Hazard(
        name="segfault",
        call="shrink",
        first=(2, 28, 3),
        last=(2, 28, 8),
        answer="rebuild",
        what="the process crashes",
        source="NVIDIA/nvidia-resiliency-ext release notes, which exclude these versions",
    ),
    Hazard(
        name="destroy_waits",
        call="shrink",
        first=(2, 31, 0),
        answer="abort_parent",
        what="destroying the parent after SHRINK_ABORT waits for ever, and so does"
        " dist.shrink_group, which destroys it",
        source="pytorch/pytorch#194679",
    ),
    Hazard(
        name="destroy_with_dead",
        call="shrink",
        answer="abort_parent",
        what="destroying a communicator with a dead member hangs the live ones",
        source="pytorch/pytorch#180611",
    ),
    Hazard(
        name="excluded_sends",
        call="shrink",
        answer="fence_first",
        what="an excluded rank that still runs breaks later collectives of the others",
        source="NVIDIA/nccl#2397",
    ),
    Hazard(
        name="dead_gpu",
        call="shrink",
        answer="deadline",
        what="the call waits for its own GPU's stream: it never returns where that GPU is gone",
        source="NVIDIA/nccl src/init.cc, ncclCommShrink",
    ),
    Hazard(
        name="default_group",
        call="shrink",
        answer="never_default",
        what="shrinking torch's default group destroys every other group of the process",
        source="torch 2.13, distributed_c10d.py, shrink_group",
    ),
    Hazard(
        name="null_parent",
        call="shrink",
        answer="check",
        what="called without a communicator it crashes instead of refusing",
        source="seen with 2.32.3",
    ),
)


class Way(msgspec.Struct, frozen=True):
    """How a change of membership is made."""

    by: Literal["nccl", "rebuild"]
    why: str = ""
    """Where it is not by NCCL."""


def version_of(code: int) -> Version:
    """What `ncclGetVersion` says: 2.9 and later count minors by hundreds, earlier by tens."""
    if code < 10_000:
        return code // 1_000, code // 100 % 10, code % 100
    return code // 10_000, code // 100 % 100, code % 100


def calls_of(version: Version) -> tuple[Call, ...]:
    """What a version has."""
    return tuple(call for call, first in FIRST.items() if version >= first)


def hazards_of(version: Version, call: Call) -> tuple[Hazard, ...]:
    """What is to be heeded when a version is asked for a call."""
    return tuple(each for each in HAZARDS if each.call == call and each.is_in(version))


def way_of(version: Version, change: Change, symbols: frozenset[str]) -> Way:
    """By NCCL where the version has the call and survives it; `symbols`: that the library has."""
    named = ".".join(map(str, version))
    if version < FIRST[change]:
        first = ".".join(map(str, FIRST[change]))
        return Way("rebuild", f"NCCL {named} cannot {change}, {first} is the first that can")
    missing = [each for each in SYMBOLS[change] if each not in symbols]
    if missing:
        return Way("rebuild", f"this NCCL {named} has no {missing[0]}")
    for hazard in hazards_of(version, change):
        if hazard.answer == "rebuild":
            return Way("rebuild", f"NCCL {named}: {hazard.what} ({hazard.source})")
    return Way("nccl")
