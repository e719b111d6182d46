"""All GPUs of a cluster: readings that a seed, the time and their load decide, nothing else.

A GPU has a place in the air stream and on its voltage curve, drawn once: its place in the published
distributions of power and temperature. Counters only rise, but for a reboot.
"""

from collections.abc import Mapping
from typing import Final, assert_never

import numpy as np

from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, GPU_STATE_CHANNELS
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuEffect,
    GpuLost,
    GpuReads,
    GpuThrottled,
)
from nemesis.sim.params import GpuParams, Params
from nemesis.sim.telemetry.columns import Columns, Reads, Rows
from nemesis.sim.telemetry.draws import (
    LANE_BITS,
    Flags,
    Ints,
    at_time,
    either_way,
    keys,
    lanes,
    mixed,
    placed,
)
from nemesis.sim.telemetry.loads import IDLE, LOADS, TRAINING

REASON_IDLE: Final = 0x1  # nvmlClocksEventReasonGpuIdle
THERMAL_BITS: Final = 0x20 | 0x40  # software and hardware thermal slowdown
BRAKE_BITS: Final = 0x8 | 0x80  # hardware slowdown, hardware power brake
CLOCK_STEP_MHZ: Final = 15
PCIE_WIDTH: Final = 16
PERCENT_PPM: Final = 10_000
DAY_NS: Final = 86_400_000_000_000
_VOLATILE: Final = (
    "dram_ce_count",
    "dram_ue_count",
    "sram_ce_count",
    "sram_ue_count",
    "sram_ue_parity_count",
    "sram_ue_secded_count",
    "remap_pending",
)
_FOLLOWS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "dram_ce_count": (("dram_ce_aggregate_count", 1),),
    "dram_ue_count": (("dram_ue_aggregate_count", 1),),
    "sram_ce_count": (("sram_ce_aggregate_count", 1),),
    "sram_ue_count": (
        ("sram_ue_aggregate_count", 1),
        ("sram_ue_parity_count", 1),
        ("sram_ue_sm_aggregate_count", 1),
    ),
    "remapped_rows_count": (
        ("remapped_ue_rows_count", 1),
        ("remap_histogram_max_count", -1),
        ("remap_histogram_high_count", 1),
    ),
    "banks_spare_low_count": (
        ("remap_histogram_max_count", -1),
        ("remap_histogram_low_count", 1),
    ),
}
"""What else moves where a counter does: NVML tells the same errors in several ways."""


class Gpus:
    """Every GPU, [node, index]."""

    def __init__(self, touched: Flags, count: int, model: str, params: Params, seed: int) -> None:
        """`touched`: where to mark the nodes of which something changed by itself that is news."""
        nodes = len(touched)
        self._touched: Final = touched
        family = params.gpu_family(model)
        noise = params.gpu_noise
        self._family: Final = family
        self._noise: Final = noise
        self._keys: Final = keys(seed, 1, (nodes, count))
        power, heat, replays, _ = lanes(mixed(self._keys))
        self._power_mw: Final = _by_load(family, "power", "w", power)
        self._warm_mc: Final = _by_load(family, "temp", "c", heat)
        self._memory_mc: Final = _by_load(family, "memory_temp", "c", heat)
        self._temp_mc: Final = self._warm_mc[IDLE].copy()
        self._memory_temp_mc: Final = self._memory_mc[IDLE].copy()
        self._lost: Final = np.zeros((nodes, count), bool)
        self._throttled: Final[dict[int, dict[int, GpuThrottled]]] = {}
        self._reads: Final = Reads()
        self._columns: Final = Columns(nodes, count, GPU_CHANNELS, GPU_STATE_CHANNELS)
        most = noise.pcie_replays_at_start_max + 1
        self._columns.of("pcie_replay_count")[:] = replays * most >> LANE_BITS
        for name, level in (
            ("pcie_width", PCIE_WIDTH),
            ("pcie_generation", family.pcie_gen),
            ("power_limit_mw", family.power_limit_w * 1_000),
            ("memory_clock_mhz", family.memory_clock_mhz),
            ("remap_histogram_max_count", family.banks),
            ("nvlink_up_count", family.nvlink_links),
        ):
            self._columns.of(name)[:] = level
        self._chance_denominator: Final = noise.ce_days * DAY_NS

    def follow(self, rows: Rows, elapsed_ns: Ints, loads: Ints, at_ns: Ints) -> None:
        """Let time pass on these nodes, so much on each, up to its time, under its load."""
        thermal_ns = self._noise.thermal_s * 1_000_000_000
        share = np.minimum(elapsed_ns, thermal_ns)[:, None]
        warm = self._warm_mc[loads, rows]
        for at, row in enumerate(rows.tolist()) if self._throttled else ():
            for index, each in self._throttled.get(row, {}).items():
                if each.temp_mc:
                    warm[at, index] = each.temp_mc
                self._count_throttled(row, index, each.reasons, int(elapsed_ns[at]) // 1_000)
        for temp, target in (
            (self._temp_mc, warm),
            (self._memory_temp_mc, self._memory_mc[loads, rows]),
        ):
            old = temp[rows]
            temp[rows] = old + (target - old) * share // thermal_ns
        # a corrected bit flip now and then is no sign of anything
        words = at_time(self._keys[rows] ^ np.uint64(1), at_ns) >> np.uint64(2)
        limit = elapsed_ns * ((1 << 62) // self._chance_denominator)
        for at, index in np.argwhere(words.astype(np.int64) < limit[:, None]).tolist():
            self._rise(int(rows[at]), index, "dram_ce_count", 1)
            self._touched[rows[at]] = True

    def suffer(self, row: int, effect: GpuEffect) -> None:
        """A fault reaches a GPU."""
        match effect:
            case GpuLost():
                self._lost[row, effect.index] = True
            case GpuCounted():
                for name, by in effect.rises:
                    self._rise(row, effect.index, name, by)
            case GpuReads():
                self._reads.hold(row, effect.index, effect.readings)
            case GpuThrottled(clock_per_mille=1_000, temp_mc=0):
                self._throttled.get(row, {}).pop(effect.index, None)
            case GpuThrottled():
                self._throttled.setdefault(row, {})[effect.index] = effect
                if effect.temp_mc:
                    self._temp_mc[row, effect.index] = effect.temp_mc
            case _:
                assert_never(effect)

    def boot(self, row: int) -> None:
        """What is counted since the driver was loaded starts anew; what a fault held is free."""
        self._lost[row] = False
        for name in _VOLATILE:
            self._columns.of(name)[row] = 0
        self._throttled.pop(row, None)
        self._reads.release(row)

    def block(self, rows: Rows, loads: Ints, at_ns: Ints) -> Ints:
        """[row, GPU, channel] of a sample; a lost GPU answers nothing."""
        block = self._columns.sample[rows]
        column = self._columns.sample_at
        noise, clock, busy, _ = lanes(at_time(self._keys[rows], at_ns))
        idle = (loads == IDLE)[:, None]
        power = self._power_mw[loads, rows]
        power += either_way(noise, power * self._noise.power_ppm // 1_000_000)
        steps = clock * self._noise.sm_clock_steps >> LANE_BITS
        clocks = self._family.sm_clock_mhz - CLOCK_STEP_MHZ * steps
        least = self._noise.utilization_training_ppm
        percents = (1_000_000 - least) // PERCENT_PPM + 1  # NVML tells whole ones
        used = least + (busy * percents >> LANE_BITS) * PERCENT_PPM
        block[:, :, column["temp_c"]] = self._temp_mc[rows] // 1_000
        block[:, :, column["memory_temp_c"]] = self._memory_temp_mc[rows] // 1_000
        block[:, :, column["power_mw"]] = power
        block[:, :, column["sm_clock_mhz"]] = np.where(idle, self._family.sm_clock_idle_mhz, clocks)
        block[:, :, column["clock_event_reasons"]] = np.where(idle, REASON_IDLE, 0)
        trains = (loads == TRAINING)[:, None]
        spins = np.where(idle, 0, 1_000_000)  # who waits in a collective spins in its kernel
        block[:, :, column["utilization_ppm"]] = np.where(trains, used, spins)
        for at, row in enumerate(rows.tolist()) if self._throttled else ():
            if loads[at] != IDLE:
                self._throttle(block[at], self._throttled.get(row, {}))
        self._reads.apply(block, rows, column)
        block[self._lost[rows]] = ABSENT
        return block

    def state(self, rows: Rows, loads: Ints) -> Ints:
        """[row, GPU, channel] of a device state."""
        block = self._columns.state[rows]
        used = np.where(loads == IDLE, 0, self._family.memory_mib * 9 // 10)
        block[:, :, self._columns.state_at["memory_used_mib"]] = used[:, None]
        self._reads.apply(block, rows, self._columns.state_at)
        block[self._lost[rows]] = ABSENT
        return block

    def _rise(self, row: int, index: int, name: str, by: int) -> None:
        also = [(other, each * by) for other, each in _FOLLOWS.get(name, ())]
        self._columns.rise(row, index, [(name, by), *also])

    def _count_throttled(self, row: int, index: int, reasons: int, elapsed_us: int) -> None:
        names = [
            name
            for name, bits in (
                ("sw_power_cap_us", 0x4),
                ("sw_thermal_us", 0x20),
                ("hw_thermal_us", 0x40),
                ("hw_power_brake_us", 0x80),
            )
            if reasons & bits
        ]
        self._columns.rise(row, index, [(name, elapsed_us) for name in names])

    def _throttle(self, block: Ints, throttled: Mapping[int, GpuThrottled]) -> None:
        """It lowers its clock and says why; its power goes down with the clock."""
        column = self._columns.sample_at
        for index, each in throttled.items():
            clock = int(block[index, column["sm_clock_mhz"]])
            lower = min(clock, self._family.sm_clock_mhz * each.clock_per_mille // 1_000)
            power = int(block[index, column["power_mw"]])
            block[index, column["power_mw"]] = power * lower // max(1, clock)
            block[index, column["sm_clock_mhz"]] = lower
            block[index, column["clock_event_reasons"]] = each.reasons


def _by_load(family: GpuParams, what: str, unit: str, lane: Ints) -> Ints:
    """[load, node, GPU]: what each reads at its place, in thousandths."""
    tables = [getattr(family, f"{what}_{load}_{unit}") for load in LOADS]
    return np.stack([placed(table, lane, unit=1_000) for table in tables])
