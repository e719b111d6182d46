"""When each node of the cluster is polled; all that are due are read at once.

Why: producers of thousands of nodes do not poll in the same millisecond, and a simulation that
visits every node at every look cannot be fast. How: each node has a place of its own in the period.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nemesis.producers.device_state import GPU_NEWS, NIC_NEWS, STATE_POLLS
from nemesis.schemas.channels import ABSENT
from nemesis.sim.telemetry.columns import Rows
from nemesis.sim.telemetry.draws import Ints
from nemesis.sim.telemetry.loads import LOAD_INDEX
from nemesis.sim.telemetry.staggered import staggered_ns
from nemesis.sim.telemetry.witness import Witness
from nemesis.sim.telemetry.world import World


class Poller:
    """Reads the devices of all nodes, each once a period."""

    def __init__(
        self, world: World, nodes: Sequence[str], *, period_ns: int, start_ns: int
    ) -> None:
        self._world: Final = world
        self._nodes: Final = nodes
        self._period_ns: Final = period_ns
        self._due_ns: Final = start_ns + staggered_ns(len(nodes), period_ns)
        self._polls_count: Final = np.zeros(len(nodes), np.int64)
        empty = np.zeros((0, 0, 0), np.int64)
        self._gpu_told: Ints = empty
        self._nic_told: Ints = empty

    def poll(self, now_ns: int, witness_of: Callable[[str], Witness | None]) -> list[str]:
        """Read the nodes that are due and let their witnesses tell of it; their names."""
        rows = np.flatnonzero(self._due_ns <= now_ns)
        if not rows.size:
            return []
        missed = (now_ns - self._due_ns[rows]) // self._period_ns
        self._due_ns[rows] += (1 + missed) * self._period_ns
        names = [self._nodes[row] for row in rows.tolist()]
        seeing = [(row, witness_of(name)) for row, name in zip(rows.tolist(), names, strict=True)]
        witnesses = [(row, witness) for row, witness in seeing if witness is not None]
        rows = np.array([row for row, _ in witnesses], np.int64)
        loads = np.array([LOAD_INDEX[each.load(now_ns)] for _, each in witnesses], np.int64)
        polled = self._world.poll(rows, loads)
        for at, (_, witness) in enumerate(witnesses):
            witness.polled(now_ns, polled.gpu[at], polled.nic[at], polled.host[at])
        self._state(now_ns, rows, loads, [witness for _, witness in witnesses])
        return [self._nodes[row] for row in rows.tolist()]

    def _state(self, now_ns: int, rows: Rows, loads: Ints, witnesses: Sequence[Witness]) -> None:
        """Tell what samples leave out, where it is time to or where it is news."""
        gpu, nic = self._world.states(rows, loads)
        if not self._gpu_told.size:
            count = len(self._nodes)
            self._gpu_told = np.full((count, gpu.shape[1], GPU_NEWS.size), ABSENT, np.int64)
            self._nic_told = np.full((count, nic.shape[1], NIC_NEWS.size), ABSENT, np.int64)
        gpu_news, nic_news = gpu[:, :, GPU_NEWS], nic[:, :, NIC_NEWS]
        is_news = (gpu_news != self._gpu_told[rows]).any((1, 2))
        is_news |= (nic_news != self._nic_told[rows]).any((1, 2))
        # the first polls of neighbours are not twelve apart: each has its own turn
        turn = (self._polls_count[rows] + rows) % STATE_POLLS == 0
        self._polls_count[rows] += 1
        self._gpu_told[rows], self._nic_told[rows] = gpu_news, nic_news
        for at in np.flatnonzero(is_news | turn).tolist():
            witnesses[at].stated(now_ns, gpu[at], nic[at])
