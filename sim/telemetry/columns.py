"""Counters and levels of devices as arrays, found by the names of their channels."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from nemesis.sim.faults.symptoms import Readings
from nemesis.sim.telemetry.draws import Ints

Rows = Ints
"""Indices of nodes."""


class Columns:
    """[node, device, channel] of what a sample has, and of what only a device state has."""

    def __init__(
        self, nodes: int, devices: int, sample: Sequence[str], state: Sequence[str] = ()
    ) -> None:
        self.sample: Final[Ints] = np.zeros((nodes, devices, len(sample)), np.int64)
        self.state: Final[Ints] = np.zeros((nodes, devices, len(state)), np.int64)
        self.sample_at: Final = {name: at for at, name in enumerate(sample)}
        self.state_at: Final = {name: at for at, name in enumerate(state)}

    def of(self, name: str) -> Ints:
        """[node, device] of a channel, to read and to change.

        Raises:
            KeyError: no such channel.
        """
        if name in self.sample_at:
            return self.sample[:, :, self.sample_at[name]]
        return self.state[:, :, self.state_at[name]]

    def rise(self, row: int, device: int, rises: Iterable[tuple[str, int]]) -> None:
        """Counters of a device rise by so much."""
        for name, by in rises:
            self.of(name)[row, device] += by


class Reads:
    """Levels at which faults hold gauges, by node and device; few have any."""

    def __init__(self) -> None:
        self._held: Final[dict[int, dict[int, Readings]]] = {}

    def hold(self, row: int, device: int, readings: Readings) -> None:
        """From here on; no readings: as ever."""
        self._held.setdefault(row, {}).pop(device, None)
        if readings:
            self._held[row][device] = readings
        if not self._held[row]:
            del self._held[row]

    def release(self, row: int) -> None:
        """Everything of a node is as ever."""
        self._held.pop(row, None)

    def apply(self, block: Ints, rows: Rows, columns: dict[str, int]) -> None:
        """Let a block [row, device, channel] of these nodes say so."""
        for at, row in enumerate(rows.tolist()) if self._held else ():
            for device, readings in self._held.get(row, {}).items():
                for name, value in readings:
                    if name in columns:
                        block[at, device, columns[name]] = value
