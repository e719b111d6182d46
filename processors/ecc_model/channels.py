"""The nine channels of every GPU that the failure model watches, read from blocks of samples.

Why: a model is worth what it is shown, and what it is shown must mean the same live, in replay and
in training; so this file alone turns counters into rates. How: one call is one step of five seconds
for all GPUs; a counter counts against its own last reading, one that fell began anew, one that
cannot be read is marked and counts as nothing. Numbers are integers; NaN ends as ABSENT where a
reader makes a block. Not here: how a value becomes an input (inputs.py).

| # | channel | NVML | DCGM field | kind |
|---|---|---|---|---|
| 1 | dram_ce | MemoryErrorCounter corrected volatile DRAM, field 11 | 318 | rate |
| 2 | dram_ue | the same, uncorrected, field 12 | 319 | rate |
| 3 | sram_ce | SramEccErrorStatus.volatileCor | 342-346 | rate |
| 4 | sram_ue | volatileUncParity + volatileUncSecDed | 342-346 | rate |
| 5 | remapped_rows | RemappedRows corrected + uncorrected, fields 142, 143 | 393, 394 | rate |
| 6 | spare_rows_low | RowRemapperHistogram: banks with partial, low or none | 387-389 | level |
| 7 | memory_temp_c | field 82 | 140 | level |
| 8 | power_mw | field 186 | 157 | level |
| 9 | link_replay | PCIe replay 94; NVLink replay 52, CRC 38 and 45 | 202, 429, 409, 419 | rate |

A rate is in events a step. After polls that did not come the events since the last reading are
spread over the steps that passed, rounded up: one error is never lost, and a backlog is no burst.
A reading that is new after a first sight, a reset or a change of the part says nothing yet. MIG
hides the remapper: channels 5 and 6 are then missing, the row is still that of the whole GPU.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.packing import (
    Packed,
    packed,
    packed_flags,
    unpacked,
    unpacked_flags,
)
from nemesis.schemas.channels import GPU_CHANNELS

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

STEP_NS: Final = 5_000_000_000
CHANNELS: Final = (
    "dram_ce",
    "dram_ue",
    "sram_ce",
    "sram_ue",
    "remapped_rows",
    "spare_rows_low",
    "memory_temp_c",
    "power_mw",
    "link_replay",
)
RATES: Final = (0, 1, 2, 3, 4, 8)
"""Channels that count events; the others are levels."""
FLAGS: Final = ("remap_pending", "remap_failed", "thermal_slowdown", "power_brake", "counter_reset")
THERMAL_BITS: Final = 0x20 | 0x40  # NVML clocks event reasons: software and hardware thermal
BRAKE_BITS: Final = 0x8 | 0x80  # hardware slowdown, hardware power brake

_COUNTERS: Final = (
    "dram_ce_count",
    "dram_ue_count",
    "sram_ce_count",
    "sram_ue_count",
    "remapped_rows_count",
    "pcie_replay_count",
    "nvlink_replay_count",
    "nvlink_crc_count",
)
_LEVELS: Final = ("banks_spare_low_count", "memory_temp_c", "power_mw")
_REST: Final = ("remap_pending", "remap_failed", "clock_event_reasons")
_READ: Final = [GPU_CHANNELS.index(name) for name in (*_COUNTERS, *_LEVELS, *_REST)]
_LINKS: Final = slice(5, 8)
WIDTH: Final = max(_READ) + 1
"""Columns that a block must have."""


class Step:
    """What one step shows, a column a GPU."""

    __slots__ = ("flags", "missing", "values")

    def __init__(self, values: Ints, missing: Flags, flags: Flags) -> None:
        self.values: Final = values
        """[CHANNELS, GPU]: events of this step, or a level; 0 where missing."""
        self.missing: Final = missing
        """[CHANNELS, GPU]"""
        self.flags: Final = flags
        """[FLAGS, GPU]"""


class Readings(msgspec.Struct, array_like=True, frozen=True):
    """A ChannelReader's state."""

    last: Packed
    known: bytes
    waited: Packed


class ChannelReader:
    """The last reading of every counter of every GPU."""

    def __init__(self, count: int) -> None:
        self._last: Ints = np.zeros((len(_COUNTERS), count), np.int64)
        self._known: Flags = np.zeros((len(_COUNTERS), count), np.bool_)
        self._waited: Ints = np.zeros(count, np.int64)
        """Steps since the last poll."""

    @property
    def count(self) -> int:
        """GPUs."""
        return len(self._waited)

    def grow(self, count: int) -> None:
        """Take up more GPUs, of which nothing is known; the others keep their columns."""
        more = count - self.count
        self._last = np.pad(self._last, ((0, 0), (0, more)))
        self._known = np.pad(self._known, ((0, 0), (0, more)))
        self._waited = np.pad(self._waited, (0, more))

    def forget(self, columns: Ints) -> None:
        """Other parts are in these places: nothing is known of them."""
        self._known[:, columns] = False
        self._waited[columns] = 0

    def wait(self, steps: int) -> None:
        """So many steps passed of which nobody can say anything."""
        self._waited += steps

    def state(self) -> Readings:
        """What is known."""
        return Readings(packed(self._last), packed_flags(self._known), packed(self._waited))

    def resume(self, state: Readings, count: int) -> None:
        """Take up a state of so many GPUs."""
        shape = (len(_COUNTERS), count)
        self._last = unpacked(state.last, shape)
        self._known = unpacked_flags(state.known, shape)
        self._waited = unpacked(state.waited, (count,))

    def read(self, block: Ints, polled: Flags) -> Step:
        """One step of all GPUs: `block` [GPU, GPU_CHANNELS], heeded where `polled` [GPU].

        Raises:
            ValueError: the block is narrower than WIDTH, or has not one row a GPU.
        """
        if block.shape[0] != self.count or block.shape[1] < WIDTH:
            raise ValueError(f"block {block.shape}: expected {self.count} rows of {WIDTH} or more")
        now = np.ascontiguousarray(block.T)[_READ]
        there = (now >= 0) & polled  # ABSENT, and what no counter can be, are below 0
        counters = len(_COUNTERS)
        events, counted, reset = self._events(now[:counters], there[:counters], polled)
        values = np.zeros((len(CHANNELS), self.count), np.int64)
        missing = np.zeros(values.shape, np.bool_)
        values[:5], missing[:5] = events[:5], ~counted[:5]
        values[8] = events[_LINKS].sum(axis=0)
        missing[8] = ~counted[_LINKS].any(axis=0)
        levels = slice(counters, counters + len(_LEVELS))
        values[5:8] = np.where(there[levels], now[levels], 0)
        missing[5:8] = ~there[levels]
        flags = np.empty((len(FLAGS), self.count), np.bool_)
        pending, failed, reasons = (
            np.where(t, n, 0) for t, n in zip(there[-3:], now[-3:], strict=True)
        )
        flags[0], flags[1] = pending > 0, failed > 0
        flags[2], flags[3] = (reasons & THERMAL_BITS) != 0, (reasons & BRAKE_BITS) != 0
        flags[4] = reset
        return Step(values, missing, flags)

    def _events(self, now: Ints, there: Flags, polled: Flags) -> tuple[Ints, Flags, Flags]:
        """Events a step of each counter, where that is known, and whose counters began anew."""
        self._waited += 1
        risen = now - self._last
        fell: Flags = there & self._known & (risen < 0)
        counted = there & self._known
        # since a reset it counts from 0: what it shows came since then
        events = np.where(counted, np.where(fell, now, risen), 0)
        late = self._waited > 1
        if late.any():
            steps = np.where(late, self._waited, 1)
            events = -(-events // steps)
        np.copyto(self._last, now, where=there)
        self._known |= there
        self._waited[polled] = 0
        reset: Flags = np.logical_or.reduce(fell, axis=0)
        return events, counted, reset
