"""What stacks of a job's processes prove: who is not where the others wait.

Why: in a job that stands still all processes but one are in the same collective, and the one that
is not keeps them there. How: of each process the main thread is looked at; if at least three wait
in a collective or for their GPU and exactly one does something else, that one is named, and what it
does is said. Two that do something else, or none, name nobody.
"""

import re
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import RANK_STUCK, UNEXPLAINED, Finding
from nemesis.processors.attribution.report_rules import proofs, proofs_of
from nemesis.processors.attribution.reports import Stacked, Told
from nemesis.processors.attribution.stack_places import INNERMOST, LOADS, WAITS, is_in
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass

WAITING_MIN: Final = 3
MAIN: Final = ("MainThread", "1")
"""How py-spy and gdb call it."""
# a host's own waits: for a queue, a lock or a child, and never for a collective
_OWN_WAITS: Final = re.compile(
    r"\((?:\S*/)?(?:threading|queue|selectors|subprocess|connection|popen_fork|synchronize)\.py:"
)
_ITERATES: Final = re.compile(r"__next__ \(\S*data\S*\)")  # a loader of somebody's own


def judge_stacks(told: Told) -> list[Finding]:
    """What stacks prove side by side."""
    main: dict[tuple[str, int, int], Stacked] = {}
    for each in told.stacks:
        if each.thread in MAIN:
            main[each.node, each.rank, each.pid] = each
    waiting = [each for each in main.values() if _waits(each)]
    others = [each for each in main.values() if each not in waiting]
    if len(waiting) < WAITING_MIN or len(others) != 1:
        return [_all_alike(told, waiting)] if len(waiting) >= WAITING_MIN else []
    return [_elsewhere(told, others[0], waiting)]


def _waits(stacked: Stacked) -> bool:
    """Whether a thread waits for others or for its GPU."""
    frames = stacked.frames[:INNERMOST]
    return is_in([each for each in frames if not _OWN_WAITS.search(each)], WAITS)


def _elsewhere(told: Told, other: Stacked, waiting: Sequence[Stacked]) -> Finding:
    frames = other.frames[:INNERMOST]
    loads = is_in(frames, LOADS) or is_in(frames, _ITERATES)
    fault_class: FaultClass = "dataloader" if loads else "app.stall"
    name = f"process/{other.node}/{other.pid}"
    if other.rank >= 0:
        name = components.rank(told.job, other.rank)
    return Finding(
        verdict="attributed",
        fault_class=fault_class,
        reason=f"{name} is in {other.frames[0]} while {len(waiting)} others wait in a collective",
        confidence_ppm=700_000,
        level=RANK_STUCK,
        culprits=(name,),
        proofs=proofs_of(
            [(other, f"it is in {other.frames[0]}")]
            + [(each, f"it waits in {each.frames[0]}") for each in waiting[:4]]
        ),
        jobs=(told.job,),
    )


def _all_alike(told: Told, waiting: Sequence[Stacked]) -> Finding:
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{len(waiting)} processes of {told.job} wait, and no single other one was seen",
        confidence_ppm=0,
        level=UNEXPLAINED,
        proofs=proofs(waiting, "it waits"),
        jobs=(told.job,),
        missing=(wanted.PYTHON_STACK, wanted.ALL_DUMPS),
    )
