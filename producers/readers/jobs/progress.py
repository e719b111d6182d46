"""Lines in which a training program tells how long its steps took.

Megatron's `elapsed time per iteration`, open_clip's and timm's `Data (t): ... Batch (t): ...`,
and plain `step 12 ... step_time: 1.2s`.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import StepsTimed

SECOND_NS: Final = 1_000_000_000
_STEP: Final = re.compile(
    r"\b(?:iter(?:ation)?|step|global_step)s?[ :=\[]+(\d{1,12})\b|\[\s*(\d{1,15})/\d+",
    re.IGNORECASE,
)
_TIME: Final = re.compile(
    r"elapsed time per iteration \((m?s)\): ?([\d.]+)|\bBatch \(t\): ?([\d.]+)"
    r"|\b(?:step|iter(?:ation)?|batch)[ _]time[ :=]+([\d.]+) ?(ms|s)?\b",
    re.IGNORECASE,
)
_DATA: Final = re.compile(
    r"\bData \(t\): ?([\d.]+)|\bdata(?:loader|load|ing)?[ _](?:time|wait)[ :=]+([\d.]+) ?(ms|s)?\b",
    re.I,
)


class Progress(Reader):
    """Reads how long steps took."""

    holds = (_TIME,)

    def __init__(self) -> None:
        self._count = 0

    def take(self, line: TextLine) -> Iterable[Note]:
        """One step."""
        lower = line.text.lower()
        time = _TIME.search(line.text) if "time" in lower or "(t)" in lower else None
        if time is None:
            return ()
        step_ns = _ns(time[2] or time[3] or time[4], time[1] or time[5])
        if not step_ns:
            return ()
        self.known = True
        self._count += 1
        step = _STEP.search(line.text)
        data = _DATA.search(line.text)
        data_ns = _ns(data[1] or data[2], data[3]) if data else 0
        timed = StepsTimed(
            **unplaced(line.host),
            job="",
            step=int(step[1] or step[2]) if step else self._count,
            step_ns=(step_ns,),
            data_ns=(data_ns,) if data else (),
            first_rank=line.rank,
        )
        return [note(line, timed)]


def _ns(number: str, unit: str | None) -> int:
    try:
        seconds = float(number) / (1000 if (unit or "s").lower() == "ms" else 1)
    except ValueError:
        return 0
    return int(seconds * SECOND_NS) if 0 <= seconds < 1e9 else 0
