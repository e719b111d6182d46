"""Days on which nothing breaks, drawn by a seed: clusters of 64 nodes, their jobs, and decoys.

A day is one cluster and one log; its jobs change a few times, and nodes are booted in between. What
looks like trouble comes at the rates below. Nobody publishes how often it does: they are assumed,
and high, so that a day shows what an operator sees in weeks.
"""

from random import Random
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nemesis.sim.faults.plan import SPARE
from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.params import Params, changed, load_params
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import cluster_of, load_cluster
from nemesis.sim.topology.node import node_kinds
from nemesis.sim.truth.defects import draw_defects, scaled
from nemesis.sim.truth.drawn import draw_parameters, fault_of
from nemesis.sim.truth.suites import Layout

NODES: Final = 64
PERIOD_MS: Final = 5_000
LEAF_PORTS: Final = 128
DAY_S: Final = 86_400.0

ANY: Final = "n*"
PER_NODE_DAY: Final[tuple[tuple[str, str, float], ...]] = (
    ("kernel-noise", ANY, 2.0),  # up to 20 lines each
    ("nic-noise", ANY, 1.0),  # at polls of a register that is not there
    ("slow-step", ANY, 4.0),  # a collection of garbage, a page fault
    ("lone-work", ANY, 0.5),  # a save, an evaluation, a compilation on one rank
    ("corrected-errors", ANY, 0.5),  # beside those of single bits (sim/params.toml, ce_days)
    ("user-xid", SPARE, 0.5),
    ("user-xid", ANY, 0.2),
    ("teardown-xids", SPARE, 0.5),  # somebody presses Ctrl-C
    ("noisy-neighbour", SPARE, 0.5),
    ("maintenance-reboot", SPARE, 0.2),
    ("evidence-late", ANY, 0.1),  # six leaves a day are cut off from the log
    ("evidence-lost", ANY, 0.02),  # from then on until the node boots, as the following
    ("evidence-doubled", ANY, 0.02),
    ("polls-missed", ANY, 0.02),
    ("evidence-clock-off", ANY, 0.01),
    ("single-snapshot", ANY, 0.01),
    ("kernel-log-missing", ANY, 0.01),
    ("dump-missing", ANY, 0.01),
)
"""Kind, which nodes, and how often a day on each node of the cluster."""
SPREADS: Final = 3
"""Each kind comes with parameters of so many draws."""
FACTOR: Final = (1.0, 2.0)
"""By which a parameter lies above or below its default."""
DEFECTS: Final = 0.1
"""Of the rates at which evidence is missing from reports (sim/params.toml): of what nobody sees
nothing can be said, and here much is to be seen."""
BEGIN_S: Final = 15.0
"""Without decoys at the start of a job: processors have seen some steps."""

FABRICS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "leaf", "nodes_per_leaf": 8},
    {"kind": "rail-optimised", "transport": "roce", "nodes_per_leaf": 32, "spines": 4},
    {"kind": "rail-optimised", "nodes_per_leaf": 16, "spines": 4, "oversubscription": 2.0},
    {
        "kind": "fat-tree",
        "transport": "roce",
        "nodes_per_leaf": 4,
        "groups_per_pod": 8,
        "spines": 4,
        "cores": 4,
    },
    {"kind": "fat-tree", "nodes_per_leaf": 6, "spines": 3, "oversubscription": 3.0},
)
LAYOUTS: Final = (
    Layout(),
    Layout(),
    Layout(tp=8),
    Layout(tp=4, pp=2),
    Layout(tp=4, cp=2),
    Layout(tp=2, pp=4),
    Layout(tp=4, ep=2),
)
UNSTEADY: Final[dict[str, Any]] = {
    "gpu_noise": {"power_ppm": 45_000, "sm_clock_steps": 6, "ce_days": 9},
    "nic": {
        "load_noise_ppm": 40_000,
        "share_with_history_ppm": 300_000,
        "out_of_sequence_per_s": 80,
        "fec_corrected_bits_per_s": 2_000,
    },
    "port": {"fec_corrected_per_s": 8, "ecn_marked_per_s": 120},
    "host": {
        "cpu_pressure_training_ppm": [2_000, 8_000, 15_000, 30_000, 60_000],
        "io_pressure_ppm": [0, 1_000, 4_000, 10_000, 40_000],
    },
}
"""Of every third day: loads, links and hosts that scatter more (sim/params.toml has the usual)."""


class Shift(NamedTuple):
    """From one boot of the cluster to the next: its jobs, and what happens meanwhile."""

    cluster: Cluster
    planned: tuple[FaultPlanned, ...]
    defects: tuple[Symptom, ...]
    params: Params
    seed: int
    lasts_s: float


class Day(NamedTuple):
    """One cluster for a day, or for some hours of it."""

    number: int
    shifts: tuple[Shift, ...]

    @property
    def about(self) -> str:
        """In a few words."""
        cluster = self.shifts[0].cluster
        jobs = sum(len(each.cluster.jobs) for each in self.shifts)
        return f"{cluster.cluster.name}, {len(self.shifts)} boots, {jobs} jobs"


def draw_day(seed: int, number: int, hours: float = 24.0) -> Day:
    """The day of that number; `hours`: so much shorter, with as many boots and jobs."""
    random = Random(f"{seed}/quiet-day/{number}")
    kinds = sorted(node_kinds())
    kind, fabric = kinds[number % len(kinds)], random.choice(FABRICS)
    params = changed(load_params(), UNSTEADY if number % 3 == 2 else {}, where="tests.quiet_days")
    name = f"{kind}-{fabric['kind']}{'-unsteady' if number % 3 == 2 else ''}"
    shares = [random.uniform(0.5, 1.0) for _ in range(random.randint(2, 4))]
    clusters = [_cluster(random, kind, fabric, name, at) for at in range(len(shares))]
    shifts = [
        _shift(random, cluster, params, hours * 3_600 * share / sum(shares))
        for cluster, share in zip(clusters, shares, strict=True)
    ]
    return Day(number, tuple(shifts))


def _cluster(random: Random, kind: str, fabric: dict[str, Any], name: str, shift: int) -> Cluster:
    jobs = _jobs(random, len(node_kinds()[kind].gpus), shift)
    return cluster_of(
        {
            "cluster": {"name": name, "nodes": NODES, "sample_period_ms": PERIOD_MS},
            "node": {"kind": kind},
            "fabric": {"leaf_ports": LEAF_PORTS, **fabric},
            "job": [msgspec.to_builtins(job) for job in jobs],
        }
    )


def _shift(random: Random, cluster: Cluster, params: Params, lasts_s: float) -> Shift:
    seed = random.randrange(1 << 31)
    rates = scaled(params.defects, DEFECTS)
    return Shift(
        cluster=cluster,
        planned=tuple(_decoys(random)),
        defects=draw_defects(cluster, rates, seed=seed, strikes_s=lasts_s / 2),
        params=params,
        seed=seed,
        lasts_s=lasts_s,
    )


def _jobs(random: Random, gpus: int, shift: int) -> list[JobModel]:
    """One to three jobs, and at least two spares."""
    left = NODES - random.choice((2, 4, 8))
    jobs: list[JobModel] = []
    count = random.choice((1, 2, 3))
    for number in range(count):
        nodes = (
            left if number == count - 1 else random.randrange(8, left - 8 * (count - number - 1))
        )
        left -= nodes
        step_ms = round(1_000 * 20 ** random.random())
        layout = random.choice([each for each in LAYOUTS if each.fits(nodes * gpus)])
        stall_steps = random.choice((3, 5))
        saves = random.random() < 0.5
        job = replace(
            load_cluster().job,
            name=f"train-{shift}-{number}",
            nodes=nodes,
            world_min=1,
            step_ms=step_ms,
            allreduce_ms=max(20, step_ms // 9),
            checkpoint_steps=max(2, round(random.uniform(300, 1_800) * 1_000 / step_ms)),
            stall_steps=stall_steps,
            save_ms=round(random.uniform(0.1, 0.5) * (stall_steps - 1) * step_ms) if saves else 0,
            tp=layout.tp,
            cp=layout.cp,
            pp=layout.pp,
            ep=layout.ep,
        )
        jobs.append(job)
    return jobs


def _decoys(random: Random) -> list[FaultPlanned]:
    planned: list[FaultPlanned] = []
    for kind, node, rate in PER_NODE_DAY:
        for _ in range(SPREADS):
            decoy = fault_of(kind)
            decoy = replace(decoy, **draw_parameters(decoy, FACTOR, random))
            planned.append(replace(decoy, node=node, after_s=BEGIN_S, per_node_day=rate / SPREADS))
    return planned
