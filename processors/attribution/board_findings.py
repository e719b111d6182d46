"""What a server's board logged of its memory.

Why: an error that memory could not correct takes the node down before its kernel can say so, and
the board's controller keeps a log of its own. How: an uncorrectable error names its module, or the
kind of fault where no module is named. Corrected ones are nothing until the board itself stops
counting them, or has logged several of one module; they stop no job.

IPMI 2.0, table 42-3, sensor type 0Ch (Memory).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import HOST_MEMORY, MEMORY_FADES, Finding
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Said, Told

UNCORRECTED: Final = "uncorrectable"
LIMIT: Final = "limit"
CORRECTED_MIN: Final = 5  # assumed; firmware logs one only after a threshold of its own


def judge_board(told: Told) -> list[Finding]:
    """What events of memory prove."""
    events = told.of("memory_event")
    failed = [each for each in events if each.message.what == UNCORRECTED]
    if failed:
        return [_failed(told, failed)]
    count = Counter(each.message.device for each in events)
    fading = [
        each
        for each in events
        if each.message.what == LIMIT or count[each.message.device] >= CORRECTED_MIN
    ]
    if not fading:
        return []
    found = _failed(told, fading)
    return [
        replace(
            found,
            reason=f"errors of {shown(_modules(fading)) or 'memory'} were corrected over and over",
            confidence_ppm=600_000,
            level=MEMORY_FADES,
            signature="transient",
        )
    ]


def _modules(events: Sequence[Said]) -> list[str]:
    named = {f"dimm/{each.node}/{each.message.device}" for each in events if each.message.device}
    return sorted(named)


def _failed(told: Told, events: Sequence[Said]) -> Finding:
    modules = tuple(_modules(events))
    return Finding(
        verdict="attributed" if modules else "class-only",
        fault_class="host.memory",
        reason=f"{shown(modules) or 'a memory module that is not named'} had an error that could"
        " not be corrected",
        confidence_ppm=850_000,
        level=HOST_MEMORY,
        culprits=modules,
        proofs=proofs(events, "the board's own log of its memory"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG,) if modules else (wanted.BOARD_LOG, wanted.KERNEL_LOG),
    )
