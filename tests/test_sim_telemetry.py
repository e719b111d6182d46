"""Promises of the telemetry of a whole cluster: rows of arrays, each node in its own time."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from nemesis.producers.device_state import GPU_NEWS, STATE_POLLS
from nemesis.schemas.channels import (
    GPU_CHANNELS,
    GPU_STATE_CHANNELS,
    NIC_CHANNELS,
    NIC_STATE_CHANNELS,
)
from nemesis.schemas.facts import encode_observation
from nemesis.schemas.observed import DeviceStateRead, SampleTaken
from nemesis.sim.faults.symptoms import (
    GpuCounted,
    GpuReads,
    GpuThrottled,
    NicCounted,
    NicRises,
    SamplesLost,
)
from nemesis.sim.simulation import Simulation
from nemesis.sim.telemetry.loads import LOADS, TRAINING
from nemesis.sim.telemetry.staggered import staggered_ns
from nemesis.sim.telemetry.world import World
from nemesis.sim.told import told
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.node import node_kinds
from tests.test_sim_evidence import fault

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
CLUSTER = load_cluster()
NODE = "n003"


def states(world: World, node: str = NODE) -> tuple[dict[str, int], dict[str, int]]:
    """GPU 0 and NIC 0 of a node, by channel."""
    gpu, nic = world[node].states("training")
    return (
        dict(zip(GPU_STATE_CHANNELS, gpu[0].tolist(), strict=True)),
        dict(zip(NIC_STATE_CHANNELS, nic[0].tolist(), strict=True)),
    )


def test_a_poll_says_the_same_in_whatever_company_it_is_made() -> None:
    together, alone = World(CLUSTER, 7), World(CLUSTER, 7)
    rows = np.arange(16)
    for _ in range(3):
        together.advance(SECOND)
        alone.advance(SECOND)
        polled = together.poll(rows, np.full(16, TRAINING))
        for row in reversed(range(16)):
            one = alone.poll(np.array([row]), np.array([TRAINING]))
            assert (one.gpu[0] == polled.gpu[row]).all()
            assert (one.nic[0] == polled.nic[row]).all()
            assert (one.host[0] == polled.host[row]).all()


def test_polls_are_spread_over_the_period() -> None:
    places = np.sort(staggered_ns(1_000, 5 * SECOND))
    assert 0 <= places[0] < places[-1] < 5 * SECOND
    assert np.diff(places).max() < 5 * SECOND / 1_000 * 3


def test_a_queue_counter_wraps_at_32_bits() -> None:
    world = World(CLUSTER, 1)
    world[NODE].suffer(NicCounted(0, (("packet_seq_err_count", 2**32 - 5),)))
    assert world[NODE].nic_block()[0, NIC_CHANNELS.index("packet_seq_err_count")] == 2**32 - 5
    world[NODE].suffer(NicCounted(0, (("packet_seq_err_count", 8),)))
    assert world[NODE].nic_block()[0, NIC_CHANNELS.index("packet_seq_err_count")] == 3


def test_a_port_counter_stops_at_its_width() -> None:
    world = World(CLUSTER, 1)
    world[NODE].suffer(NicCounted(0, (("symbol_error_count", 1_000_000),)))
    assert world[NODE].nic_block()[0, NIC_CHANNELS.index("symbol_error_count")] == 0xFFFF


def test_a_reboot_starts_volatile_counters_anew_and_keeps_what_is_for_life() -> None:
    world = World(CLUSTER, 1)
    world[NODE].suffer(GpuCounted(0, (("dram_ue_count", 3), ("remapped_rows_count", 1))))
    world[NODE].boot()
    gpu = world[NODE].gpu_block("training")[0]
    assert gpu[GPU_CHANNELS.index("dram_ue_count")] == 0
    assert gpu[GPU_CHANNELS.index("remapped_rows_count")] == 1
    state, _ = states(world)
    assert state["dram_ue_aggregate_count"] == 3
    assert (state["remap_histogram_max_count"], state["remap_histogram_high_count"]) == (2559, 1)


def test_time_with_lowered_clocks_is_counted_under_its_reason() -> None:
    world = World(CLUSTER, 1)
    world[NODE].suffer(GpuThrottled(0, 606, 0x40, 88_000))
    world.advance(3 * SECOND)
    state, _ = states(world)
    assert (state["hw_thermal_us"], state["sw_power_cap_us"]) == (3_000_000, 0)


@pytest.mark.parametrize("kind", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_a_slow_gpu_of_any_family_reads_below_its_neighbours(kind: str) -> None:
    world = World(replace(CLUSTER, node=node_kinds()[kind]), 1)
    world["n003"].suffer(GpuThrottled(0, 740, 0x4))
    clocks = world["n003"].gpu_block("training")[:, GPU_CHANNELS.index("sm_clock_mhz")]
    assert clocks[0] < clocks[1:].min() * 8 // 10


def test_a_counter_that_rises_by_itself_does_so_at_its_rate() -> None:
    world = World(CLUSTER, 1)
    world[NODE].suffer(NicRises(0, (("discard_count", 7),)))
    for _ in range(40):
        world.advance(SECOND // 4)
        world[NODE].nic_block()
    assert states(world)[1]["discard_count"] == 70


@pytest.mark.parametrize("load", LOADS)
def test_every_load_has_readings_of_its_own(load: str) -> None:
    world = World(CLUSTER, 1)
    block = world[NODE].gpu_block(load)  # type: ignore[arg-type]
    watts = block[:, GPU_CHANNELS.index("power_mw")] // 1_000
    low, high = {"idle": (60, 76), "stalled": (160, 266), "training": (565, 655)}[load]
    assert ((low <= watts) & (watts <= high)).all()


def facts(folder: Path, *, seconds: int) -> list[DeviceStateRead | SampleTaken]:
    """What NODE tells of its devices while a GPU's PCIe link gets narrower after 20 s."""
    narrow = (20.0, GpuReads(2, (("pcie_width", 8),)))
    simulation = Simulation(CLUSTER, [fault(narrow)], seed=7, folder=folder, start_ns=START)
    seen: list[DeviceStateRead | SampleTaken] = []
    for at in range(1, seconds * 4 + 1):
        now_ns = START + at * SECOND // 4
        simulation.advance(now_ns, lambda node: True)
        told = simulation.agents[NODE].witness.carried(now_ns)
        seen += [each for each in told if isinstance(each, DeviceStateRead | SampleTaken)]
    return seen


def test_what_samples_leave_out_is_told_once_in_a_while_and_at_once_when_it_is_news(
    tmp_path: Path,
) -> None:
    seen = facts(tmp_path, seconds=45)
    told = [each for each in seen if isinstance(each, DeviceStateRead)]
    seconds = [(each.at_ns - START) // SECOND for each in told]
    assert len(told) <= 45 // STATE_POLLS + 3
    assert seconds[0] == 0
    assert 20 in seconds
    width = GPU_STATE_CHANNELS.index("pcie_width")
    assert width in GPU_NEWS
    widths = [np.frombuffer(each.gpu, "<i8").reshape(each.gpu_count, -1)[2, width] for each in told]
    assert widths == [16 if second < 20 else 8 for second in seconds]


def test_every_node_is_polled_once_a_period_whatever_the_quantum(tmp_path: Path) -> None:
    samples = [each for each in facts(tmp_path, seconds=30) if isinstance(each, SampleTaken)]
    times = np.array([each.at_ns for each in samples])
    assert len(samples) in (29, 30, 31)
    assert set(np.diff(times).tolist()) <= {SECOND * 3 // 4, SECOND, SECOND * 5 // 4}


def digest_of(folder: Path, seed: int) -> bytes:
    """Everything that nodes and switches tell in ten seconds, while a few things go wrong."""
    broken = fault((2.0, GpuReads(2, (("pcie_width", 8),))), (3.0, SamplesLost(300)))
    simulation = Simulation(CLUSTER, [broken], seed=seed, folder=folder, start_ns=START)
    digest = sha256()
    for at in range(1, 101):
        now_ns = START + at * SECOND // 10
        simulation.advance(now_ns, lambda node: True)
        for fact in told(simulation, now_ns):
            digest.update(encode_observation(fact))
    return digest.digest()


def test_one_seed_makes_the_same_bytes_every_time(tmp_path: Path) -> None:
    seen = digest_of(tmp_path / "a", 7)
    assert digest_of(tmp_path / "b", 7) == seen
    assert digest_of(tmp_path / "c", 8) != seen
