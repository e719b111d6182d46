"""Tables of step times, one column a rank: CSV and tab-separated, with a head.

The first column counts steps or seconds, the others are named `worker0`, `rank 3`, `r7`. Also the
long form, one row a worker and step: `time,worker,batch_time`.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import LogLineWritten, StepsTimed

MS_NS: Final = 1_000_000
UNITS_NS: Final = {"s": 1_000_000_000, "ms": MS_NS, "us": 1_000, "ns": 1}
_STEP: Final = re.compile(r"(?:time|step|iter(?:ation)?|batch|epoch|t)\Z", re.IGNORECASE)
_CELL: Final = r' *"?(?:time|step|iter(?:ation)?|batch|epoch|t)"? *(?:[,;\t]|\Z)'
_FIRST: Final = re.compile(_CELL, re.IGNORECASE)
_LATER: Final = re.compile(r"[,;\t]" + _CELL, re.IGNORECASE)
_RANK: Final = re.compile(
    r"(?:worker|rank|r|w|gpu|proc(?:ess)?)[ _-]?(\d{1,6})(?:_(s|ms|us|ns))?\Z", re.I
)
_WORKER: Final = re.compile(r"(?:worker|rank)\Z", re.IGNORECASE)
_TIME: Final = re.compile(
    r"(?:step|batch|iter(?:ation)?)_?(?:time|duration)(?:_norm)?(?:_(s|ms|us|ns))?\Z", re.I
)
RANKS_MIN: Final = 2
TEXT_CHARS_MAX: Final = 2000
_NO_NUMBER: Final = re.compile(r"\s*[-+]?(?:nan|inf(?:inity)?|null|none|n/a)\s*\Z", re.IGNORECASE)
"""A rank that told of no time for a step: it may have been measured by nobody, or not have come."""


class StepTimes(Reader):
    """Reads the rows of a table."""

    starts = (_FIRST,)
    holds = (_LATER,)

    def __init__(self) -> None:
        self._split = ","
        self._step_at = 0
        self._ranks_at: list[tuple[int, int]] = []
        """(rank, column), ascending without a gap."""
        self._worker_at = -1
        self._unit_ns = MS_NS

    @property
    def busy(self) -> bool:
        """In a table."""
        return self.known

    def take(self, line: TextLine) -> Iterable[Note]:
        """A row, or the head."""
        raw = line.raw.strip()
        if (_FIRST.match(raw) or _LATER.search(raw)) and self._takes_head(raw):
            self.known = True
            return ()
        if not self.known:
            return ()
        cells = raw.split(self._split)
        try:
            step = int(float(cells[self._step_at]))
            if self._worker_at >= 0:
                first_rank = int(cells[self._worker_at])
                columns = [self._ranks_at[0][1]]
            else:
                first_rank, columns = self._ranks_at[0][0], [at for _, at in self._ranks_at]
            times = tuple(self._time_ns(cells[at]) for at in columns)
        except (ValueError, IndexError, OverflowError):
            return ()
        if step < 0 or first_rank < 0 or max(step, first_rank) >= 2**31:
            return ()
        timed = StepsTimed(**unplaced(), job="", step=step, step_ns=times, first_rank=first_rank)
        found = [note(line, timed)]
        if any(_NO_NUMBER.match(cells[at]) for at in columns):
            told = LogLineWritten(**unplaced(), source="program", text=raw[:TEXT_CHARS_MAX])
            found.append(note(line, told))
        return found

    def _time_ns(self, cell: str) -> int:
        if not cell.strip():
            return 0
        if _NO_NUMBER.match(cell):
            return 0
        time_ns = int(float(cell) * self._unit_ns)
        return time_ns if 0 <= time_ns < 2**62 else 0

    def _takes_head(self, raw: str) -> bool:
        for split in (",", "\t", ";"):
            names = [name.strip().strip('"') for name in raw.split(split)]
            steps = [at for at, name in enumerate(names) if _STEP.match(name)]
            if len(names) < RANKS_MIN + 1 or not steps:
                continue
            ranks = sorted((int(m[1]), at) for at, n in enumerate(names) if (m := _RANK.match(n)))
            numbers = [rank for rank, _ in ranks]
            workers = [at for at, name in enumerate(names) if _WORKER.match(name)]
            times = [at for at, name in enumerate(names) if _TIME.match(name)]
            if len(ranks) >= RANKS_MIN and numbers == list(
                range(numbers[0], numbers[0] + len(numbers))
            ):
                self._set(split, steps[0], ranks, -1, names[ranks[0][1]])
                return True
            if workers and times:
                self._set(split, steps[0], [(0, times[0])], workers[0], names[times[0]])
                return True
        return False

    def _set(
        self, split: str, step_at: int, ranks: list[tuple[int, int]], worker_at: int, name: str
    ) -> None:
        self._split, self._step_at, self._ranks_at = split, step_at, ranks
        self._worker_at = worker_at
        match = _RANK.match(name) or _TIME.match(name)
        unit = match[match.re.groups] if match else None
        self._unit_ns = UNITS_NS[unit.lower()] if unit else MS_NS
