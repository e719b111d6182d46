"""From what channels show to the model's inputs: small integers, by tables and shifts alone.

Why: a logarithm of two machines may differ in its last bit, a table cannot. How: counts become
codes that grow with their logarithm (eight an octave for the events of one step, four for what
was counted over days), levels are shifted and cut off; each missing channel has an input of its
own, so 0 never has to mean two things. Most of what is known of real failures is slow: an
uncorrected error makes the next one likelier for weeks (Titan, InfiniteHBD), and no window of half
an hour shows it. So eight inputs are what is left of counts that fade by a power of two a step, and
the time since the last uncorrected error.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import CHANNELS, FLAGS, Ints, Step
from nemesis.processors.ecc_model.packing import Packed, packed, unpacked

Codes = NDArray[np.int8]

CODE_MAX: Final = 127
SLOW: Final = (
    "ue_recency",  # of DRAM and SRAM; 0: never seen
    "ue_month",
    "ce_hours",
    "ce_day",
    "ce_week",
    "remaps_week",
    "links_day",
    "rows_known",  # remapped since the part was first seen
    "ce_age",  # since the last step with a corrected error; 0: not in the last half hour
    "ce_gap",  # between that step and the one before it
)
INPUTS: Final = (
    *CHANNELS,
    *(f"no_{name}" for name in CHANNELS),
    *FLAGS,
    *SLOW,
)
"""Names of the rows of a step's codes."""
FRACTION_BITS: Final = 24  # of a fading count: at the slowest fading 1/32 of an event is left over
_EVENTS_MAX: Final = 1 << 30  # of one step; a fading count then stays below 2^62 for weeks
_SHOWN_BITS: Final = 4  # codes of fading counts begin at a sixteenth of an event
# A count loses its 2^-n th part each step: n = 12 is 5.7 hours, 14 is 23 hours, 17 is 7.6 days,
# 19 is 30 days (of steps of five seconds), each until it has faded to 1/e.
_FADES: Final = (19, 12, 14, 17, 17, 14)
_TOTAL_MAX: Final = 1 << 40
MARK: Final = 64  # a flag that is up
_AGE_STEPS: Final = 3  # an age is told in quarters of a minute, up to the half hour of the network


def octave_codes(per_octave_bits: int) -> Ints:
    """[code]: the smallest count that has at least this code, for `searchsorted`.

    Code of v: 2^bits times (1 + floor(log2 v)), plus the next `bits` binary digits of v.
    """
    steps = 1 << per_octave_bits
    first = [0] + [1] * (steps - 1)  # no count is below 1 and not 0
    codes = [
        -(-((steps + code % steps) << (code // steps - 1)) // steps)
        for code in range(steps, CODE_MAX + 1)
    ]
    return np.array(first + codes, np.int64)


_FAST_CODES: Final = octave_codes(3)
_SLOW_CODES: Final = octave_codes(2)


def coded(values: Ints, table: Ints) -> Codes:
    """Codes of counts that are not negative; nearly all are 0 and cost nothing."""
    codes = np.zeros(values.shape, np.int8)
    some = values != 0
    if some.any():
        found = np.searchsorted(table, values[some], side="right") - 1
        codes[some] = found.astype(np.int8)
    return codes


class Memories(msgspec.Struct, array_like=True, frozen=True):
    """An InputMaker's state."""

    fading: Packed
    since_ue: Packed
    rows: Packed
    since_ce: Packed
    gap_ce: Packed


class InputMaker:
    """What is remembered of every GPU beyond the last half hour."""

    def __init__(self, count: int) -> None:
        self.fading: Ints = np.zeros((len(_FADES), count), np.int64)
        """[ue, ce, ce, ce, remaps, links; GPU] in 2^-FRACTION_BITS of an event."""
        self.since_ue: Ints = np.zeros(count, np.int64)
        """Steps since the last uncorrected error, from 1 on; 0: never seen."""
        self.rows: Ints = np.zeros(count, np.int64)
        """Rows remapped since the part was first seen."""
        self.since_ce: Ints = np.zeros(count, np.int64)
        """Steps since the last corrected error, from 1 on; 0: never seen."""
        self.gap_ce: Ints = np.zeros(count, np.int64)
        """Steps between the last two; 0: there was no other."""

    def grow(self, count: int) -> None:
        """Take up more GPUs, of which nothing is known."""
        more = count - len(self.rows)
        self.fading = np.pad(self.fading, ((0, 0), (0, more)))
        self.since_ue = np.pad(self.since_ue, (0, more))
        self.rows = np.pad(self.rows, (0, more))
        self.since_ce = np.pad(self.since_ce, (0, more))
        self.gap_ce = np.pad(self.gap_ce, (0, more))

    def forget(self, columns: Ints) -> None:
        """Other parts are in these places."""
        self.fading[:, columns] = 0
        self.since_ue[columns] = 0
        self.rows[columns] = 0
        self.since_ce[columns] = 0
        self.gap_ce[columns] = 0

    def state(self) -> Memories:
        """What is remembered."""
        columns = (self.since_ue, self.rows, self.since_ce, self.gap_ce)
        return Memories(packed(self.fading), *map(packed, columns))

    def resume(self, state: Memories, count: int) -> None:
        """Take up a state of so many GPUs."""
        self.fading = unpacked(state.fading, (len(_FADES), count))
        self.since_ue = unpacked(state.since_ue, (count,))
        self.rows = unpacked(state.rows, (count,))
        self.since_ce = unpacked(state.since_ce, (count,))
        self.gap_ce = unpacked(state.gap_ce, (count,))

    def make(self, step: Step) -> Codes:
        """[INPUTS, GPU]: the codes of one step; time passes for what fades."""
        values = np.minimum(step.values, _EVENTS_MAX)
        codes = np.empty((len(INPUTS), values.shape[1]), np.int8)
        codes[:6] = coded(values[:6], _FAST_CODES)
        codes[8] = coded(values[8], _FAST_CODES)
        there = ~step.missing
        temp, power = values[6], values[7]
        codes[6] = np.clip((temp - 50) * 2, -CODE_MAX, CODE_MAX) * there[6]
        codes[7] = np.clip(power // 4_000 - 100, -CODE_MAX, CODE_MAX) * there[7]
        codes[9:18] = step.missing * np.int8(MARK)
        codes[18:23] = step.flags * np.int8(MARK)
        codes[23:] = self._slow(values)
        return codes

    def _slow(self, values: Ints) -> Codes:
        ue = values[1] + values[3]
        ce = values[0] + values[2]
        for row, (shift, events) in enumerate(
            zip(_FADES, (ue, ce, ce, ce, values[4], values[8]), strict=True)
        ):
            count = self.fading[row]
            count -= count >> shift
            if events.any():
                count += events << FRACTION_BITS
                np.minimum(count, 1 << 61, out=count)
        self.since_ue += self.since_ue > 0
        self.since_ue[ue > 0] = 1
        if values[4].any():
            np.minimum(self.rows + values[4], _TOTAL_MAX, out=self.rows)
        self.since_ce += self.since_ce > 0
        if (came := ce > 0).any():
            self.gap_ce[came] = self.since_ce[came]
            self.since_ce[came] = 1
        slow = np.empty((len(SLOW), values.shape[1]), np.int8)
        recency = CODE_MAX - coded(self.since_ue, _SLOW_CODES)
        slow[0] = np.where(self.since_ue > 0, recency, 0)
        slow[1:7] = coded(self.fading >> (FRACTION_BITS - _SHOWN_BITS), _SLOW_CODES)
        slow[7] = coded(self.rows, _SLOW_CODES)
        slow[8], slow[9] = aged(self.since_ce), aged(self.gap_ce)
        return slow


def aged(steps: Ints) -> Ints:
    """Codes of ages: CODE_MAX for 1 to 3 steps, falling by one every three, 0 for never."""
    return np.where(steps > 0, np.maximum(CODE_MAX - (steps - 1) // _AGE_STEPS, 0), 0)
