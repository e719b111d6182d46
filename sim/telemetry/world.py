"""The devices of all simulated nodes, as arrays; one poll of a node is a row of them.

Pure: time and load come in, blocks of integers go out; equal calls give equal blocks. A node is
brought up to date when it is looked at or when something reaches it, and not before: time costs
nothing where nobody looks. Synthetic data: ranges follow public measurements (sim/params.toml).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from nemesis.producers.sample import Block
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuEffect,
    GpuLost,
    GpuReads,
    GpuThrottled,
    HostCounted,
    HostEffect,
    HostLoaded,
    HostReads,
    NicEffect,
)
from nemesis.sim.params import Params, load_params
from nemesis.sim.telemetry.columns import Rows
from nemesis.sim.telemetry.draws import Ints
from nemesis.sim.telemetry.gpus import Gpus
from nemesis.sim.telemetry.hosts import Hosts
from nemesis.sim.telemetry.loads import LOAD_INDEX, Load
from nemesis.sim.telemetry.nics import Nics
from nemesis.sim.topology.cluster import Cluster


class Polled(msgspec.Struct, frozen=True, gc=False):
    """One poll of several nodes: blocks [row, device, channel]."""

    gpu: Block
    nic: Block
    host: Block


class World:
    """All nodes of the cluster."""

    def __init__(self, cluster: Cluster, seed: int, params: Params | None = None) -> None:
        params = params or load_params()
        count, node = cluster.cluster.nodes, cluster.node
        self._index: Final = cluster.node_index
        self.counts: Final = (len(node.gpus), len(node.nics))
        """GPUs and NICs of a node."""
        self.touched: Final = np.ones(count, bool)
        """Nodes whose device states may have changed in what is news; of no other have they."""
        self._gpus: Final = Gpus(self.touched, self.counts[0], node.gpu_model, params, seed)
        self._nics: Final = Nics(self.touched, self.counts[1], node.nic_rate_mbps, params, seed)
        self._hosts: Final = Hosts(count, params, seed)
        self._loads: Final = np.zeros(count, np.int64)
        self._seen_ns: Final = np.zeros(count, np.int64)
        self._now_ns = 0
        """Since the start."""

    def __getitem__(self, node: str) -> "NodeDevices":
        return NodeDevices(self, self._index[node])

    def advance(self, elapsed_ns: int, load: Mapping[str, Load] | None = None) -> None:
        """Let time pass; nodes that `load` names have passed it so, others as they did before."""
        for node, each in (load or {}).items():
            self.take_load(self._index[node], LOAD_INDEX[each])
        self._now_ns += elapsed_ns

    def take_load(self, row: int, load: int) -> None:
        """From now on a node does something else."""
        if self._loads[row] != load:
            self._catch_up(row)
            self._loads[row] = load

    def poll(self, rows: Rows, loads: Ints, since_ns: Ints | None = None) -> Polled:
        """Read these nodes, which are doing this now, or so long after the last `advance`."""
        at_ns = self._times(rows, since_ns)
        self._follow(rows, at_ns)
        self._loads[rows] = loads
        return Polled(
            gpu=self._gpus.block(rows, loads, at_ns),
            nic=self._nics.block(rows),
            host=self._hosts.block(rows, loads, at_ns),
        )

    def states(self, rows: Rows, loads: Ints, since_ns: Ints | None = None) -> tuple[Block, Block]:
        """What a device state says of these nodes' GPUs and NICs."""
        self._follow(rows, self._times(rows, since_ns))
        return self._gpus.state(rows, loads), self._nics.state(rows)

    def suffer(self, row: int, effect: GpuEffect | NicEffect | HostEffect) -> None:
        """A fault reaches a device."""
        self._catch_up(row)
        self.touched[row] = True
        if isinstance(effect, GpuLost | GpuCounted | GpuReads | GpuThrottled):
            self._gpus.suffer(row, effect)
        elif isinstance(effect, HostLoaded | HostReads | HostCounted):
            self._hosts.suffer(row, effect)
        else:
            self._nics.suffer(row, effect)

    def turn_link(self, row: int, nic: int, *, up: bool) -> None:
        """A NIC's link goes down or up."""
        self._catch_up(row)
        self.touched[row] = True
        self._nics.turn(row, nic, up=up)

    def boot(self, row: int) -> None:
        """A node starts anew: volatile counters begin at 0, nothing of a fault is left."""
        self._catch_up(row)
        self.touched[row] = True
        self._gpus.boot(row)
        self._nics.boot(row)
        self._hosts.boot(row)

    def _catch_up(self, row: int) -> None:
        rows = np.array([row])
        self._follow(rows, self._times(rows))

    def _times(self, rows: Rows, since_ns: Ints | None = None) -> Ints:
        return np.full(len(rows), self._now_ns) if since_ns is None else self._now_ns + since_ns

    def _follow(self, rows: Rows, at_ns: Ints) -> None:
        """Let these nodes catch up with their times."""
        elapsed_ns = at_ns - self._seen_ns[rows]
        if not elapsed_ns.any():
            return
        self._seen_ns[rows] = at_ns
        loads = self._loads[rows]
        self._gpus.follow(rows, elapsed_ns, loads, at_ns)
        self._nics.follow(rows, elapsed_ns, loads, at_ns)
        self._hosts.follow(rows, elapsed_ns)


class NodeDevices:
    """One node's GPUs, NICs and host."""

    def __init__(self, world: World, row: int) -> None:
        self._world: Final = world
        self._row: Final = row
        self._rows: Final = np.array([row])

    def suffer(self, effect: GpuEffect | NicEffect | HostEffect) -> None:
        """A fault reaches a device."""
        self._world.suffer(self._row, effect)

    def turn_link(self, nic: int, *, up: bool) -> None:
        """A NIC's link goes down or up."""
        self._world.turn_link(self._row, nic, up=up)

    def boot(self) -> None:
        """The node starts anew."""
        self._world.boot(self._row)

    def poll(self, load: Load) -> Polled:
        """Read all of it; one row."""
        return self._world.poll(self._rows, np.array([LOAD_INDEX[load]]))

    def states(self, load: Load) -> tuple[Block, Block]:
        """What a device state says of its GPUs and NICs; one row each."""
        gpu, nic = self._world.states(self._rows, np.array([LOAD_INDEX[load]]))
        return gpu[0], nic[0]

    def gpu_block(self, load: Load) -> Block:
        """One row a GPU; a lost one answers nothing."""
        block: Block = self.poll(load).gpu[0]
        return block

    def nic_block(self) -> Block:
        """One row a NIC."""
        world, rows = self._world, self._rows
        block: Block = world.poll(rows, world._loads[rows]).nic[0]
        return block

    def host_block(self, load: Load) -> Block:
        """The host's one row."""
        block: Block = self.poll(load).host[0]
        return block
