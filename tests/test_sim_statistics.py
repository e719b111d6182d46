"""Promises of what is drawn: it lies where public measurements lie, within bounds said here."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from nemesis.schemas.channels import GPU_CHANNELS, GPU_STATE_CHANNELS
from nemesis.sim.jobs.compute import JITTER_PER_MILLE
from nemesis.sim.jobs.job import Job
from nemesis.sim.params import load_params
from nemesis.sim.telemetry.loads import IDLE, TRAINING
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.node import node_kinds

SECOND = 1_000_000_000
NODES_COUNT = 400
CLUSTER = load_cluster()
POWER_BOUND_PPM = 30_000
TEMP_BOUND_C = 2
# idle: what of the published GPUs draws least; training: what draws most (sim/params.toml)
PARTS = {IDLE: (1, 25), TRAINING: (75, 99)}
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def cluster_of(kind: str) -> Cluster:
    """Many nodes of a kind."""
    size = replace(CLUSTER.cluster, nodes=NODES_COUNT)
    return replace(CLUSTER, cluster=size, node=node_kinds()[kind])


def drawn(kind: str, load: int, channel: str) -> NDArray[np.int64]:
    """A reading of every GPU after minutes of one load."""
    world = World(cluster_of(kind), 7)
    rows, loads = np.arange(NODES_COUNT), np.full(NODES_COUNT, load)
    for _ in range(20):
        world.poll(rows, loads)
        world.advance(20 * SECOND)
    return world.poll(rows, loads).gpu[:, :, GPU_CHANNELS.index(channel)].ravel()


def published(path: Path, value: int, percent: int) -> tuple[list[float], list[float]]:
    """A cumulative distribution: values and percents, ascending."""
    with path.open() as file:
        rows = list(csv.reader(file))[1:]
    pairs = sorted((float(row[percent]), float(row[value])) for row in rows)
    return [at for _, at in pairs], [percent for percent, _ in pairs]


def part_of(values: list[float], percents: list[float], load: int) -> NDArray[np.float64]:
    """QUANTILES of the part of a distribution that a load stands for."""
    low, high = PARTS[load]
    return np.interp([low + each * (high - low) for each in QUANTILES], percents, values)


@pytest.mark.parametrize("load", [IDLE, TRAINING])
def test_power_of_an_a100_has_the_quantiles_of_a_cluster_of_them(shared: Path, load: int) -> None:
    power = published(shared / "data/acme_util/csv/gpu_power_kalos.csv", 0, 1)
    ours = np.quantile(drawn("dgx-a100", load, "power_mw") / 1_000, QUANTILES)
    theirs = part_of(*power, load)
    assert (abs(ours - theirs) <= theirs * POWER_BOUND_PPM / 1_000_000).all(), (ours, theirs)


@pytest.mark.parametrize("load", [IDLE, TRAINING])
@pytest.mark.parametrize(("channel", "column"), [("temp_c", 0), ("memory_temp_c", 2)])
def test_heat_of_an_a100_has_the_quantiles_of_a_cluster_of_them(
    shared: Path, load: int, channel: str, column: int
) -> None:
    heat = published(shared / "data/acme_util/csv/gpu_temp_kalos.csv", column, column + 1)
    ours = np.quantile(drawn("dgx-a100", load, channel), QUANTILES)
    theirs = part_of(*heat, load)
    assert (abs(ours - theirs) <= TEMP_BOUND_C).all(), (ours, theirs)


CAPTURES = {"idle": IDLE, "load": TRAINING}
MEASURED = {
    "power_draw_average_watts": ("power_mw", 1_000),
    "clocks_current_sm_clock_hz": ("sm_clock_mhz", 1e-6),
    "clocks_event_reasons_active": ("clock_event_reasons", 1),
    "utilization_gpu_ratio": ("utilization_ppm", 1_000_000),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_an_h100_reads_what_a_real_one_was_seen_to_read(shared: Path, name: str) -> None:
    folder = shared / "data/nvidia_smi_captures"
    text = (folder / f"linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__{name}.metrics").read_text()
    for metric, (channel, unit) in MEASURED.items():
        (said,) = re.findall(rf"^nvidia_smi_{metric}{{.*}} (.*)$", text, re.MULTILINE)
        ours = drawn("dgx-h100", CAPTURES[name], channel)
        assert ours.min() <= float(said) * unit <= ours.max(), metric


def test_levels_of_an_h100_are_those_of_a_real_one(shared: Path) -> None:
    folder = shared / "data/nvidia_smi_captures"
    text = (folder / "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.metrics").read_text()
    world = World(cluster_of("dgx-h100"), 7)
    gpu, _ = world.states(np.arange(1), np.array([TRAINING]))
    for metric, channel, unit in (
        ("pcie_link_width_current", "pcie_width", 1),
        ("pcie_link_gen_current", "pcie_generation", 1),
        ("enforced_power_limit_watts", "power_limit_mw", 1_000),
        ("clocks_current_memory_clock_hz", "memory_clock_mhz", 1e-6),
        ("remapped_rows_histogram_max", "remap_histogram_max_count", 1),
    ):
        (said,) = re.findall(rf"^nvidia_smi_{metric}{{.*}} (.*)$", text, re.MULTILINE)
        assert set(gpu[0, :, GPU_STATE_CHANNELS.index(channel)]) == {round(float(said) * unit)}


def own_scatters(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each worker's own coefficient of variation, [step, worker]."""
    scatters: NDArray[np.float64] = rows.std(axis=0) / rows.mean(axis=0)
    return scatters


def test_steps_of_a_healthy_rank_scatter_as_those_of_steady_workers_do(shared: Path) -> None:
    with (shared / "data/alibaba_pai_minibatch/job_2_norm.csv").open() as file:
        read = [(int(r["worker"]), float(r["batch_time_norm"])) for r in csv.DictReader(file)]
    workers = [[took for worker, took in read if worker == each] for each in range(10)]
    count = min(len(each) for each in workers)
    theirs = own_scatters(np.array([each[:count] for each in workers]).T)
    job = Job(CLUSTER.job, CLUSTER.job_nodes, 8, 7, start_ns=0)
    ours = own_scatters(np.array([own for own in _own_ns(job, count)]))
    assert theirs.min() * 0.9 <= np.median(ours) <= theirs.max()
    assert load_params().steps.jitter_per_mille == JITTER_PER_MILLE


def _own_ns(job: Job, count: int) -> list[NDArray[np.float64]]:
    own = []
    for _ in range(count):
        done = len(job.history)
        now_ns = int(job.table.ready_ns.max()) + SECOND
        while len(job.history) == done:
            job.advance(now_ns)
            now_ns += SECOND
        own.append(job.table.own_ns.astype(np.float64))
    return own
