"""The simulation in real time: its clock runs, its agents are on the wire, its ledger is written.

The only part of the simulator that waits. It speaks to NEMESIS as a real cluster does, through
node credentials and nothing else; only the ledger is written with the credential of the simulator.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from nemesis.actors.node_link import Link
from nemesis.sim.clock import SimClock
from nemesis.sim.collector_link import CollectorLink
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import (
    TRUTH_STREAM,
    Truth,
    decode_truth,
    encode_truth,
    truth_subject,
)
from nemesis.streams.connection import Connection, login_of
from nemesis.streams.credentials import seed_path
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log

QUANTUM_NS: Final = 50_000_000  # simulated; a twentieth of a step
QUANTUM_MIN_S: Final = 0.01
RETRY_S: Final = 0.1
BEHIND_NS: Final = 1_000_000_000
"""Simulated: a step of the job. What comes so late tells of the machine, not of NEMESIS."""


def wire_roles(cluster: Cluster) -> list[str]:
    """The roles of everything that a simulated cluster has on the wire."""
    nodes = [f"node/{node}" for node in cluster.node_names]
    return nodes + [f"collector/{switch}" for switch in cluster.switches]


class Stage:
    """Runs a simulation against a log."""

    def __init__(
        self,
        simulation: Simulation,
        clock: SimClock,
        *,
        url: str,
        credentials_folder: Path,
        ledger: Connection,
        on_truth: Callable[[Truth], None],
        on_behind: Callable[[], None],
    ) -> None:
        """`on_truth` gets each entry of the ledger; `on_behind` is called when time jumps, once."""
        self.simulation: Final = simulation
        self._clock: Final = clock
        self._ledger: Final = ledger
        self._on_truth: Final = on_truth
        self._on_behind: Final = on_behind
        self._entries: Final[asyncio.Queue[Truth]] = asyncio.Queue()
        self._run: Final = str(clock.start_ns)
        self._links: Final = {
            node: Link(
                partial(simulation.agents.__getitem__, node),
                url=url,
                login=login_of(credentials_folder, f"node/{node}"),
                spool_path=simulation.folder / node / "spool",
                now_ns=clock.now_ns,
            )
            for node in simulation.cluster.node_names
        }
        self._collector_links: Final = {
            switch: CollectorLink(
                collector,
                url=url,
                seed_path=seed_path(credentials_folder, f"collector/{switch}"),
                spool_path=simulation.folder / switch / "spool",
                now_ns=clock.now_ns,
            )
            for switch, collector in simulation.collectors.items()
        }
        self._carrying: Final[dict[str, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Let simulated time pass until cancelled; the agents leave with it."""
        self._carry()
        writing = asyncio.create_task(self._write_ledger(), name="ledger")
        pause_s = max(QUANTUM_MIN_S, self._clock.wall_s(QUANTUM_NS))
        due_ns = self._clock.now_ns()
        is_behind = False
        try:
            while True:
                now_ns = self._clock.now_ns()
                if not is_behind and now_ns - due_ns > BEHIND_NS:
                    is_behind = True
                    self._on_behind()
                due_ns = now_ns + round(pause_s * self._clock.speed * 1e9)
                truths = self.simulation.advance(now_ns, self._connected)
                await self._cut_lost_nodes()
                self._carry_returned_nodes()
                self._wake_links()
                for truth in truths:
                    self._entries.put_nowait(truth)
                for task in (writing, *self._carrying.values()):
                    if task.done():
                        task.result()
                await asyncio.sleep(pause_s)
        finally:
            for task in (writing, *self._carrying.values()):
                task.cancel()
            await asyncio.gather(writing, *self._carrying.values(), return_exceptions=True)

    def _carry(self) -> None:
        for node, link in self._links.items():
            self._carrying[node] = asyncio.create_task(link.run(), name=f"link of {node}")
        for switch, collector in self._collector_links.items():
            self._carrying[switch] = asyncio.create_task(collector.run(), name=f"link of {switch}")

    def _wake_links(self) -> None:
        for link in self._links.values():
            link.wake()
        for collector in self._collector_links.values():
            collector.wake()

    @property
    def connected_count(self) -> int:
        """Nodes whose agents reach the log now."""
        return sum(link.connected for link in self._links.values())

    async def end(self) -> None:
        """Enter how each job stands, and wait until the ledger holds every entry."""
        for standing in self.simulation.standing():
            self._entries.put_nowait(standing)
        await self._entries.join()

    async def _write_ledger(self) -> None:
        for number in count(1):
            truth = await self._entries.get()
            subject = truth_subject(self._run, f"{number:04d}")
            self._on_truth(truth)
            while True:
                try:
                    await self._ledger.request(subject, encode_truth(truth))
                    break
                except LogUnavailableError:
                    await asyncio.sleep(RETRY_S)
            self._entries.task_done()

    def _connected(self, node: str) -> bool:
        return self._links[node].connected

    def _carry_returned_nodes(self) -> None:
        for node, link in self._links.items():
            if node not in self._carrying and node not in self.simulation.lost_nodes:
                self._carrying[node] = asyncio.create_task(link.run(), name=f"link of {node}")

    async def _cut_lost_nodes(self) -> None:
        for node in self.simulation.lost_nodes & self._carrying.keys():
            task = self._carrying.pop(node)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def read_ledger(connection: Connection) -> list[Truth]:
    """The whole ledger, oldest entry first."""
    records = Log(connection, stream=TRUTH_STREAM).read_range(1, 2**62)
    return [decode_truth(record.payload) async for record in records]
