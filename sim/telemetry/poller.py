"""When each node of the cluster is polled; all that are due are read at once.

Why: producers of thousands of nodes do not poll in the same millisecond, and a simulation that
visits every node at every look cannot be fast. How: each node has a place of its own in the period.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nemesis.producers.device_state import GPU_NEWS, NIC_NEWS, STATE_POLLS
from nemesis.producers.sample import Block
from nemesis.schemas.channels import ABSENT
from nemesis.sim.telemetry.columns import Rows
from nemesis.sim.telemetry.draws import Ints
from nemesis.sim.telemetry.ranks_seen import seen
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
        gpus, nics = world.counts
        self._gpu_told: Final = np.full((len(nodes), gpus, GPU_NEWS.size), ABSENT, np.int64)
        self._nic_told: Final = np.full((len(nodes), nics, NIC_NEWS.size), ABSENT, np.int64)

    def poll(self, now_ns: int, witness_of: Callable[[str], Witness | None]) -> list[str]:
        """Read the nodes that are due and let their witnesses tell of it; their names."""
        rows = np.flatnonzero(self._due_ns <= now_ns)
        if not rows.size:
            return []
        missed = (now_ns - self._due_ns[rows]) // self._period_ns
        self._due_ns[rows] += (1 + missed) * self._period_ns
        due = [(row, witness_of(self._nodes[row])) for row in rows.tolist()]
        seeing = [(row, witness) for row, witness in due if witness is not None]
        rows = np.array([row for row, _ in seeing], np.int64)
        witnesses = [witness for _, witness in seeing]
        names: list[str] = [self._nodes[row] for row, _ in seeing]
        loads, steps = _ranks(witnesses, names, now_ns)
        polled = self._world.poll(rows, loads)
        for witness, gpu, nic, host, own in zip(
            witnesses, polled.gpu, polled.nic, polled.host, steps, strict=True
        ):
            witness.polled(now_ns, gpu, nic, host, own)
        self._state(now_ns, rows, loads, witnesses)
        return names

    def _state(self, now_ns: int, rows: Rows, loads: Ints, witnesses: Sequence[Witness]) -> None:
        """Tell what samples leave out, where it is time to or where it is news."""
        turn = (self._polls_count[rows] + rows) % STATE_POLLS == 0
        self._polls_count[rows] += 1
        some = np.flatnonzero(turn | self._world.touched[rows])
        if not some.size:
            return
        rows, turn = rows[some], turn[some]
        self._world.touched[rows] = False
        gpu, nic = self._world.states(rows, loads[some])
        gpu_news, nic_news = gpu[:, :, GPU_NEWS], nic[:, :, NIC_NEWS]
        is_news = (gpu_news != self._gpu_told[rows]).any((1, 2))
        is_news |= (nic_news != self._nic_told[rows]).any((1, 2))
        self._gpu_told[rows], self._nic_told[rows] = gpu_news, nic_news
        for at in np.flatnonzero(is_news | turn).tolist():
            witnesses[some[at]].stated(now_ns, gpu[at], nic[at])


def _ranks(
    witnesses: Sequence[Witness], nodes: Sequence[str], now_ns: int
) -> tuple[Ints, list[Block]]:
    """Loads and step rows of these nodes, each by the job whose ranks it runs."""
    loads = np.zeros(len(nodes), np.int64)
    steps: list[Block] = [np.zeros((0, 0), np.int64)] * len(nodes)
    places: dict[str, list[int]] = {}
    for at, witness in enumerate(witnesses):
        places.setdefault(witness.job.name, []).append(at)
    for own in places.values():
        job, names = witnesses[own[0]].job, [nodes[at] for at in own]
        loads[own], blocks = seen(job, names, now_ns)
        for at, rows in zip(own, blocks, strict=True):
            steps[at] = rows
    return loads, steps
