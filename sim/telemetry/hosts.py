"""All hosts of a cluster: pressure, memory, disks, clocks, as the kernel tells of them."""

from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np

from nemesis.schemas.channels import HOST_CHANNELS
from nemesis.sim.faults.symptoms import HostCounted, HostEffect, HostLoaded, HostReads, Readings
from nemesis.sim.params import Params
from nemesis.sim.telemetry.columns import Rows
from nemesis.sim.telemetry.draws import Ints, at_time, either_way, keys, lanes, placed
from nemesis.sim.telemetry.loads import TRAINING

PPM: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
JITTER_PPM: Final = 100_000  # of what a fault makes a host read, either way
_COLUMN: Final = {name: at for at, name in enumerate(HOST_CHANNELS)}


class Hosts:
    """Every host, [node]."""

    def __init__(self, nodes: int, params: Params, seed: int) -> None:
        given = params.host
        self._given: Final = given
        self._keys: Final = keys(seed, 3, (nodes, 3))
        self._counts: Final = np.zeros((nodes, len(HOST_CHANNELS)), np.int64)
        self._loaded: Final[dict[int, HostLoaded]] = {}
        self._reads: Final[dict[int, Readings]] = {}
        self._gauges: Final[tuple[tuple[str, Sequence[float]], ...]] = (
            ("run_queue_wait_ppm", given.run_queue_wait_ppm),
            ("memory_pressure_ppm", given.memory_pressure_ppm),
            ("io_pressure_ppm", given.io_pressure_ppm),
            ("numa_remote_ppm", given.numa_remote_ppm),
            ("disk_wait_ppm", given.disk_wait_ppm),
            ("disk_latency_us", given.disk_latency_us),
            ("clock_offset_ns", given.clock_offset_ns),
        )
        self._per_s: Final = (
            ("major_fault_count", given.major_faults_per_s),
            ("thp_fault_fallback_count", given.thp_fallback_per_s),
        )

    def follow(self, rows: Rows, elapsed_ns: Ints) -> None:
        """Let time pass on these nodes, so much on each."""
        for name, per_s in self._per_s:
            self._counts[rows, _COLUMN[name]] += per_s * elapsed_ns // SECOND_NS

    def suffer(self, row: int, effect: HostEffect) -> None:
        """A fault reaches a host."""
        match effect:
            case HostLoaded():
                self._loaded[row] = effect
            case HostReads():
                self._reads[row] = effect.readings
            case HostCounted():
                for name, rise in effect.rises:
                    self._counts[row, _COLUMN[name]] += rise
            case _:
                assert_never(effect)

    def boot(self, row: int) -> None:
        """The kernel counts from 0, and nothing else wants the host."""
        self._counts[row] = 0
        self._loaded.pop(row, None)
        self._reads.pop(row, None)

    def block(self, rows: Rows, loads: Ints, at_ns: Ints) -> Ints:
        """[row, 1, channel] of a sample."""
        block = self._counts[rows]
        given = self._given
        words = at_time(self._keys[rows], at_ns)
        drawn = [lane for at in range(3) for lane in lanes(words[:, at])]
        for (name, table), lane in zip(self._gauges, drawn, strict=False):
            block[:, _COLUMN[name]] += placed(table, lane)
        pressure, memory, jitter = drawn[-3:]
        trains = loads == TRAINING
        block[:, _COLUMN["cpu_pressure_ppm"]] = np.where(
            trains,
            placed(given.cpu_pressure_training_ppm, pressure),
            placed(given.cpu_pressure_idle_ppm, pressure),
        )
        used_ppm = np.where(
            trains,
            placed(given.memory_used_training_ppm, memory),
            placed(given.memory_used_idle_ppm, memory),
        )
        free = given.memory_mib * (PPM - used_ppm) // PPM
        block[:, _COLUMN["memory_available_mib"]] = free
        if self._loaded or self._reads:
            self._burden(block, rows, (PPM + either_way(jitter, JITTER_PPM)).tolist())
        return block[:, None, :]

    def _burden(self, block: Ints, rows: Rows, jitters: list[int]) -> None:
        for at, (row, jitter) in enumerate(zip(rows.tolist(), jitters, strict=True)):
            loaded = self._loaded.get(row)
            if loaded is not None:
                for name, ppm in (
                    ("cpu_pressure_ppm", loaded.pressure_ppm),
                    ("run_queue_wait_ppm", loaded.run_queue_wait_ppm),
                    ("cpu_steal_ppm", loaded.steal_ppm),
                ):
                    block[at, _COLUMN[name]] += ppm * jitter // PPM
            for name, value in self._reads.get(row, ()):
                block[at, _COLUMN[name]] = value * jitter // PPM
