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
        polled = self._poll(rows, np.full(len(rows), now_ns), now_ns, witness_of)
        return [name for _, name in polled]

    def poll_ahead(
        self,
        now_ns: int,
        until_ns: int,
        quantum_ns: int,
        witness_of: Callable[[str], Witness | None],
    ) -> list[tuple[int, str]]:
        """Read all that become due until then, no later than a period from now; in order.

        Each is read when somebody who polls every `quantum_ns` would, and sees what he would: while
        nothing strikes, that does not depend on who else is read.
        """
        rows = np.flatnonzero(self._due_ns <= until_ns)
        at_ns = now_ns - (now_ns - self._due_ns[rows]) // quantum_ns * quantum_ns
        order = np.lexsort((rows, at_ns))
        return self._poll(rows[order], at_ns[order], now_ns, witness_of)

    def _poll(
        self,
        rows: Rows,
        at_ns: Ints,
        now_ns: int,
        witness_of: Callable[[str], Witness | None],
    ) -> list[tuple[int, str]]:
        if not rows.size:
            return []
        missed = (at_ns - self._due_ns[rows]) // self._period_ns
        self._due_ns[rows] += (1 + missed) * self._period_ns
        due = [self._nodes[row] for row in map(int, rows)]
        seeing = [(name, witness) for name in due if (witness := witness_of(name)) is not None]
        names, witnesses = [name for name, _ in seeing], [witness for _, witness in seeing]
        if len(names) < len(due):
            there = np.isin(due, names)
            rows, at_ns = rows[there], at_ns[there]
        loads, steps = _ranks(witnesses, names, at_ns)
        since_ns: Ints = at_ns - now_ns
        times_ns: list[int] = at_ns.tolist()
        polled = self._world.poll(rows, loads, since_ns)
        for witness, time_ns, gpu, nic, host, own in zip(
            witnesses, times_ns, polled.gpu, polled.nic, polled.host, steps, strict=True
        ):
            witness.polled(time_ns, gpu, nic, host, own)
        self._state(rows, times_ns, since_ns, loads, witnesses)
        return list(zip(times_ns, names, strict=True))

    def _state(
        self,
        rows: Rows,
        times_ns: Sequence[int],
        since_ns: Ints,
        loads: Ints,
        witnesses: Sequence[Witness],
    ) -> None:
        """Tell what samples leave out, where it is time to or where it is news."""
        turn = (self._polls_count[rows] + rows) % STATE_POLLS == 0
        self._polls_count[rows] += 1
        some = np.flatnonzero(turn | self._world.touched[rows])
        if not some.size:
            return
        rows, turn = rows[some], turn[some]
        self._world.touched[rows] = False
        gpu, nic = self._world.states(rows, loads[some], since_ns[some])
        gpu_news, nic_news = gpu[:, :, GPU_NEWS], nic[:, :, NIC_NEWS]
        is_news = (gpu_news != self._gpu_told[rows]).any((1, 2))
        is_news |= (nic_news != self._nic_told[rows]).any((1, 2))
        self._gpu_told[rows], self._nic_told[rows] = gpu_news, nic_news
        for at in np.flatnonzero(is_news | turn).tolist():
            witnesses[some[at]].stated(times_ns[some[at]], gpu[at], nic[at])


def _ranks(
    witnesses: Sequence[Witness], nodes: Sequence[str], at_ns: Ints
) -> tuple[Ints, list[Block]]:
    """Loads and step rows of these nodes, each by the job whose ranks it runs."""
    loads = np.zeros(len(nodes), np.int64)
    steps: list[Block] = [np.zeros((0, 0), np.int64)] * len(nodes)
    places: dict[str, list[int]] = {}
    for at, witness in enumerate(witnesses):
        places.setdefault(witness.job.name, []).append(at)
    for own in places.values():
        job, names = witnesses[own[0]].job, [nodes[at] for at in own]
        loads[own], blocks = seen(job, names, at_ns[own])
        for at, rows in zip(own, blocks, strict=True):
            steps[at] = rows
    return loads, steps
