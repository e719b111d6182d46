"""The devices of the simulated cluster: readings that a seed and the load decide, nothing else.

Pure: time and load come in, blocks of integers go out; equal calls give equal blocks. Counters
only rise. Synthetic data: ranges follow public measurements, healthy and under load.

Power, clocks, temperature: H100 80GB HBM3 under gpu_burn 626-632 W, 1980 MHz, 59 C, memory 54 C,
utilisation 1.0 (utkuozdemir/nvidia_gpu_exporter e656cd81, internal/integration/testdata, MIT);
idle 61-66 W and 25-30 C, memory 40-51 C (InternLM/AcmeTrace 6d6ac9cd, data/utilization,
CC BY 4.0: gpu_power_kalos, gpu_temp_kalos, 5th to 50th percentile).
"""

from collections.abc import Mapping
from typing import Final, Literal, assert_never

import numpy as np

from nemesis.producers.sample import Block
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, HOST_CHANNELS, NIC_CHANNELS
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuEffect,
    GpuHeated,
    GpuLost,
    GpuReads,
    HostCounted,
    HostEffect,
    HostLoaded,
    HostReads,
    NicCounted,
    NicEffect,
    NicMute,
    NicReads,
    NicRises,
    Readings,
)
from nemesis.sim.topology.cluster import Cluster

Load = Literal["training", "stalled", "idle"]

SM_CLOCK_MHZ: Final = 1980
REASON_IDLE: Final = 0x1  # nvmlClocksEventReasonGpuIdle
# A rank that waits in a collective spins in its kernel: full utilisation, a third of the power.
_POWER_MW: Final[Mapping[Load, int]] = {"training": 610_000, "stalled": 210_000, "idle": 66_000}
_TEMP_MC: Final[Mapping[Load, int]] = {"training": 58_000, "stalled": 44_000, "idle": 29_000}
_UTILIZATION_PPM: Final[Mapping[Load, int]] = {
    "training": 990_000,
    "stalled": 1_000_000,
    "idle": 0,
}
THERMAL_NS: Final = 20_000_000_000  # a heat sink follows its load over some tens of seconds
# 8 NICs a node at 400 Gbit/s; a gradient all-reduce keeps them busy a small part of each step.
NIC_BYTES_PER_S: Final = 5_000_000_000
SECOND_NS: Final = 1_000_000_000
PCIE: Final = (16, 5)  # width, generation: "Current 16x", "Gen 5" of the H100 above
_VOLATILE: Final = ("dram_ce_count", "dram_ue_count", "sram_ce_count", "sram_ue_count")
PCIE_REPLAYS_AT_START: Final = 9  # "Replays Since Reset: 9" on the healthy H100 above
_GPU: Final = {name: at for at, name in enumerate(GPU_CHANNELS)}
_NIC: Final = {name: at for at, name in enumerate(NIC_CHANNELS)}
_HOST: Final = {name: at for at, name in enumerate(HOST_CHANNELS)}


class NodeDevices:
    """One node's GPUs, NICs and host."""

    def __init__(self, cluster: Cluster, node: str, seed: int) -> None:
        number = cluster.node_index[node]
        self._random = np.random.Generator(np.random.Philox(key=np.array([seed, number], "u8")))
        gpus, nics = len(cluster.node.gpus), len(cluster.node.nics)
        # each device sits a little differently in the air stream and on its voltage curve
        self._spread_mc = self._random.integers(-4_000, 4_001, gpus)
        self._spread_mw = self._random.integers(-15_000, 15_001, gpus)
        self._temp_mc = np.full(gpus, _TEMP_MC["idle"], np.int64) + self._spread_mc
        self._lost = np.zeros(gpus, bool)
        self._counters = np.zeros((gpus, len(GPU_CHANNELS)), np.int64)
        replays = self._random.integers(0, PCIE_REPLAYS_AT_START + 1, gpus)
        self._counters[:, _GPU["pcie_replay_count"]] = replays
        self._nic = np.zeros((nics, len(NIC_CHANNELS)), np.int64)
        self._nic[:, _NIC["port_up"]] = 1
        self._nic[:, _NIC["rate_mbps"]] = cluster.node.nic_rate_mbps
        self._mute = np.zeros(nics, bool)
        self._heated: dict[int, GpuHeated] = {}
        self._loaded = HostLoaded(0, 0, 0)
        self._gpu_reads: dict[int, Readings] = {}
        self._nic_reads: dict[int, Readings] = {}
        self._nic_per_s = np.zeros_like(self._nic)
        self._nic_due = np.zeros_like(self._nic)
        """What rose and is less than one, times a second in ns."""
        self._host_reads: Readings = ()
        self._host_counts = np.zeros(len(HOST_CHANNELS), np.int64)
        self._load: Load = "idle"
        self._due_ns = 0
        """Time that has passed under the load and shows in no device yet."""

    def advance(self, elapsed_ns: int, load: Load) -> None:
        """Let time pass under a load; devices follow when they are looked at."""
        if load != self._load:
            self._follow()
            self._load = load
        self._due_ns += elapsed_ns

    def _follow(self) -> None:
        elapsed_ns, load = self._due_ns, self._load
        self._due_ns = 0
        if not elapsed_ns:
            return
        target = _TEMP_MC[load] + self._spread_mc
        for index, heated in self._heated.items():
            target[index] = heated.temp_mc
        self._temp_mc += (target - self._temp_mc) * min(elapsed_ns, THERMAL_NS) // THERMAL_NS
        if load == "training":
            moved = NIC_BYTES_PER_S * elapsed_ns // 1_000_000_000
            jitter = self._random.integers(990, 1_011, self._nic.shape[0])
            carries = (self._nic[:, _NIC["port_up"]] == 1) & ~self._mute
            for channel in ("xmit_bytes", "rcv_bytes"):
                self._nic[:, _NIC[channel]] += moved * jitter // 1_000 * carries
        self._nic_due += self._nic_per_s * elapsed_ns
        self._nic += self._nic_due // SECOND_NS
        self._nic_due %= SECOND_NS
        # one corrected bit flip per GPU and some weeks: rare, and no sign of anything
        flips = self._random.random(self._lost.shape[0]) < elapsed_ns / 2e15
        self._counters[:, _GPU["dram_ce_count"]] += flips

    def boot(self) -> None:
        """What is counted since the driver was loaded starts anew; nothing of a fault is left."""
        self._lost[:] = False
        self._counters[:, [_GPU[name] for name in _VOLATILE]] = 0
        self._nic[:, 2:] = 0
        self._heated.clear()
        self._gpu_reads.clear()
        self._nic_reads.clear()
        self._nic_per_s[:] = 0
        self._loaded, self._host_reads = HostLoaded(0, 0, 0), ()
        self._host_counts[:] = 0

    def suffer(self, effect: GpuEffect | NicEffect | HostEffect) -> None:
        """A fault reaches a device."""
        self._follow()
        match effect:
            case GpuLost():
                self._lost[effect.index] = True
            case GpuCounted():
                for channel, rise in effect.rises:
                    self._counters[effect.index, _GPU[channel]] += rise
            case GpuReads():
                self._gpu_reads[effect.index] = effect.readings
            case GpuHeated(reasons=0, temp_mc=0):
                self._heated.pop(effect.index, None)
            case GpuHeated():
                self._heated[effect.index] = effect
                self._temp_mc[effect.index] = effect.temp_mc
            case NicCounted() | NicRises() | NicReads() | NicMute():
                self._suffer_nic(effect)
            case HostLoaded() | HostReads() | HostCounted():
                self._suffer_host(effect)
            case _:
                assert_never(effect)

    def _suffer_nic(self, effect: NicEffect) -> None:
        match effect:
            case NicCounted():
                for channel, rise in effect.rises:
                    self._nic[effect.nic, _NIC[channel]] += rise
            case NicRises():
                self._nic_per_s[effect.nic] = 0
                for channel, per_s in effect.per_s:
                    self._nic_per_s[effect.nic, _NIC[channel]] = per_s
            case NicReads():
                self._nic_reads[effect.nic] = effect.readings
            case NicMute():
                self._mute[effect.nic] = True
            case _:
                assert_never(effect)

    def _suffer_host(self, effect: HostEffect) -> None:
        match effect:
            case HostLoaded():
                self._loaded = effect
            case HostReads():
                self._host_reads = effect.readings
            case HostCounted():
                for channel, rise in effect.rises:
                    self._host_counts[_HOST[channel]] += rise
            case _:
                assert_never(effect)

    def turn_link(self, nic: int, *, up: bool) -> None:
        """A NIC's link goes down or up."""
        self._follow()
        if not up and self._nic[nic, _NIC["port_up"]]:
            self._nic[nic, _NIC["link_downed_count"]] += 1
        self._nic[nic, _NIC["port_up"]] = int(up)

    def gpu_block(self, load: Load) -> Block:
        """One row a GPU; a lost one answers nothing."""
        self._follow()
        block = self._counters.copy()
        count = block.shape[0]
        if load == "idle":
            clocks = np.full(count, 345, np.int64)  # H100 idle clock, NVIDIA/k8s-test-infra h100
            block[:, _GPU["clock_event_reasons"]] = REASON_IDLE
        else:
            clocks = SM_CLOCK_MHZ - 15 * self._random.integers(0, 3, count)
        noise_mw = self._random.integers(-12_000, 12_001, count)
        scale = 1_000 if load == "training" else 100
        block[:, _GPU["temp_c"]] = self._temp_mc // 1_000
        block[:, _GPU["memory_temp_c"]] = self._temp_mc // 1_000 - 5
        block[:, _GPU["power_mw"]] = _POWER_MW[load] + (self._spread_mw + noise_mw) * scale // 1_000
        block[:, _GPU["sm_clock_mhz"]] = clocks
        if load != "idle":
            self._throttle(block)
        jitter_ppm = self._random.integers(0, 10_001, count) if load == "training" else 0
        block[:, _GPU["utilization_ppm"]] = _UTILIZATION_PPM[load] + jitter_ppm
        block[:, _GPU["pcie_width"]], block[:, _GPU["pcie_generation"]] = PCIE
        for index, readings in self._gpu_reads.items():
            for channel, value in readings:
                block[index, _GPU[channel]] = value
        block[self._lost] = ABSENT
        return block

    def _throttle(self, block: Block) -> None:
        """A hot GPU lowers its clock and says why; its power goes down with the clock."""
        for index, heated in self._heated.items():
            clock = block[index, _GPU["sm_clock_mhz"]]
            lower = min(int(clock), heated.clock_mhz)
            power = block[index, _GPU["power_mw"]]
            block[index, _GPU["power_mw"]] = power * lower // max(1, int(clock))
            block[index, _GPU["sm_clock_mhz"]] = lower
            block[index, _GPU["clock_event_reasons"]] = heated.reasons

    def nic_block(self) -> Block:
        """One row a NIC."""
        self._follow()
        block = self._nic.copy()
        for index, readings in self._nic_reads.items():
            for channel, value in readings:
                block[index, _NIC[channel]] = value
        return block

    def host_block(self, load: Load) -> Block:
        """The host's one row."""
        row = np.zeros((1, len(HOST_CHANNELS)), np.int64)
        busy = 1 if load == "training" else 0
        loaded, jitter = self._loaded, int(self._random.integers(900, 1_101))
        row[0, _HOST["cpu_pressure_ppm"]] = (
            self._random.integers(500, 4_000) * (1 + 3 * busy)
            + loaded.pressure_ppm * jitter // 1_000
        )
        row[0, _HOST["run_queue_wait_ppm"]] = (
            self._random.integers(0, 2_000) + loaded.run_queue_wait_ppm * jitter // 1_000
        )
        row[0, _HOST["cpu_steal_ppm"]] = loaded.steal_ppm * jitter // 1_000
        row[0, _HOST["memory_available_mib"]] = 1_400_000 - 300_000 * busy
        row[0, _HOST["clock_offset_ns"]] = self._random.integers(-20_000, 20_001)
        row[0] += self._host_counts
        for channel, value in self._host_reads:
            row[0, _HOST[channel]] = value * jitter // 1_000
        return row


class World:
    """All nodes of the cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._nodes = {node: NodeDevices(cluster, node, seed) for node in cluster.node_names}

    def __getitem__(self, node: str) -> NodeDevices:
        return self._nodes[node]

    def advance(self, elapsed_ns: int, load: Mapping[str, Load]) -> None:
        """Let time pass on every node, idle where `load` does not say."""
        for name, devices in self._nodes.items():
            devices.advance(elapsed_ns, load.get(name, "idle"))
