"""P2: what placement is worth, predicted by our own MFU model on clusters that are in use.

Nothing was measured on GPUs. A job is placed twice on the same cluster, by us and by another; the
figure is the other's predicted step over ours. What Kubernetes is compared on, Kubernetes' earlier
jobs hold in part; what the others are, Kueue's do (`tests.occupancy`). Regimes are not averaged.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import numpy as np
from msgspec.structs import replace

from nemesis.actors.solver.highs import solve
from nemesis.processors.mfu.planned import gpu_of, job_of
from nemesis.processors.mfu.step import Job, predict
from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.model import published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.placement.baselines.arnold import arnold_placements, arnold_program
from nemesis.processors.placement.baselines.kubernetes import kubernetes
from nemesis.processors.placement.ground import Gang, ground_of
from nemesis.processors.placement.plan import RULES, Plan, plan_of
from nemesis.processors.placement.ranks import request_of
from nemesis.processors.placement.reach import spans_of
from nemesis.processors.topology.pool import Pool
from nemesis.sim.prediction.figures import RESAMPLES, Value, value_of
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.pool import pool_of
from tests.bench.row import AtLeast, AtMost, Row, median, percentile
from tests.occupancy import host, left_by_kubernetes, left_by_kueue, pod
from tests.pools import nvl72, pool

SEEDS = 12
SHARE = (0.2, 0.5)
"""Of the cluster that other jobs hold, drawn evenly."""
OTHERS = ("kueue", "kueue balanced", "volcano", "kai", "slurm tree", "slurm block")
FLAGSHIP_GOAL, CONTROL_GOAL = 1.4, 1.03
ARNOLD_S = 1.0


class Asked(msgspec.Struct, frozen=True):
    """A job: its description, GPUs and model."""

    text: str
    gpus: int
    model: str

    def case(self, where: Pool) -> Case:
        """The job on a cluster where it may start at once."""
        model = published_models()[self.model]
        case = Case(spec=parse(self.text), pool=where, gpu_count=self.gpus, model=model)
        assert check(case).outcome == "accepted", self.text
        return case


TRAYS = (
    Asked("TP8_NVL18+PP8+DP16;sp,gbs=256", 1024, "llama3-405b"),
    Asked("TP8_NVL18+DP8+PP8;sp,gbs=1536", 512, "gpt3-175b"),
    Asked("TP8_NVL18+PP4+DP8;sp,gbs=256", 256, "llama3-70b"),
    Asked("TP4_NVL18+CP2_NVL18+PP8v8+DP8;sp,gbs=256", 512, "llama3-405b"),
)
"""The last with published degrees (dgxc-benchmarking 25.05): a tray holds its tensor groups."""
SERVERS = (
    Asked("TP8_NVL18+PP16+DP8;sp,gbs=256", 1024, "llama3-405b"),
    Asked("TP8_NVL18+DP8+PP8;sp,gbs=1536", 512, "gpt3-175b"),
    Asked("TP8_NVL18+PP4+DP8;sp,gbs=256", 256, "llama3-70b"),
)


class Regime(msgspec.Struct, frozen=True):
    """A cluster, the jobs that it gets, and how Kubernetes cuts them into pods."""

    name: str
    """As the row has it."""
    cluster: Pool
    jobs: tuple[Asked, ...]
    pod_gpus: int
    goal: AtLeast | AtMost | None


NVL72 = replace(nvl72(33), tapers=(1.0, 3.0))
"""33 racks of 18 trays of 4 GPUs (kubernetes-sigs/kueue#10406), 1:3 above the racks."""
HGX = pool((32,) * 8)
"""256 servers of 8 H100 below eight leaves, non-blocking."""
REGIMES = (
    Regime("k8s default, NVL72 at 1:3", NVL72, TRAYS, 4, AtLeast(FLAGSHIP_GOAL)),
    Regime("  the same, non-blocking", nvl72(33), TRAYS, 4, None),
    Regime("k8s default, HGX, pods of a GPU", HGX, SERVERS, 1, AtLeast(FLAGSHIP_GOAL)),
    Regime("  control: HGX, whole nodes", HGX, SERVERS, 8, AtMost(CONTROL_GOAL)),
)


async def measure() -> list[Row]:
    """All rows of P2 that are predictions."""
    return await asyncio.to_thread(lambda: [*_against_kubernetes(), *_against_others()])


def _against_kubernetes() -> Iterator[Row]:
    for regime in REGIMES:
        ratios = [_kubernetes_over_ours(regime, Random(seed)) for seed in range(SEEDS)]
        told = _mean_of(ratios)
        each = ", ".join(
            f"{asked.model} {asked.gpus}: {median(own):.2f}"
            for asked, own in zip(regime.jobs, zip(*ratios, strict=True), strict=True)
        )
        how = f"predicted, not measured: step by k8s over ours, mean {_interval(told)}; {each}"
        yield Row("P2", regime.name, told.value, "× step", how, regime.goal)


def _kubernetes_over_ours(regime: Regime, dice: Random) -> list[float]:
    """By job, its predicted step over ours, each on the same cluster in use."""
    where = left_by_kubernetes(regime.cluster, dice.uniform(*SHARE), dice)
    hosts = [host(free) for free in where.free_counts]
    found: list[float] = []
    for asked in regime.jobs:
        case = asked.case(where)
        job = job_of(case, *gpu_of(where))
        pods = [pod(where, regime.pod_gpus)] * (asked.gpus // regime.pod_gpus)
        bound = kubernetes(hosts, pods, dice.randrange, start=dice.randrange(len(hosts)))
        assert min(bound.nodes) >= 0, "there is room for the job"
        home = [node for node in bound.nodes for _ in range(regime.pod_gpus)]
        theirs = predict(replace(job, spans=spans_of(case.layout, where, home))).step_ns
        found.append(theirs / _planned(case, job).step_ns)
    return found


def _planned(case: Case, job: Job) -> Plan:
    plan = plan_of(case, job)
    assert plan.seats, "there is room for the job"
    return plan


class Pair(msgspec.Struct, frozen=True):
    """One job on one cluster: predicted steps over ours."""

    best: float
    """Of the best of the others."""
    same_order: float
    """The same with ranks laid in the order that is best for each."""
    arnold: float
    """0: its program knows no segments of several nodes."""


def _against_others() -> Iterator[Row]:
    minipods = pool_of(load_cluster(Path("arnold-iii")))
    for name, cluster, jobs in (
        ("NVL72 at 1:3", NVL72, TRAYS),
        ("11 minipods at 1:3", minipods, SERVERS),
    ):
        pairs = [_others_over_ours(cluster, jobs, Random(seed)) for seed in range(SEEDS)]
        yield from _rows_of_pairs(name, pairs)


def _rows_of_pairs(name: str, pairs: Sequence[Sequence[Pair]]) -> Iterator[Row]:
    every = [pair for row in pairs for pair in row]
    told = _mean_of([[pair.best for pair in row] for row in pairs])
    best = sorted(pair.best for pair in every)
    better = [each for each in best if each > 1]
    how = (
        f"predicted, not measured: step by the best of {len(OTHERS)} over ours, mean of "
        f"{len(every)} pairs, {_interval(told)}; "
        f"tenth {percentile(best, 10):.3f}, most {best[-1]:.3f}"
    )
    yield Row("P2", f"best other, {name}", told.value, "× step", how)
    how = "predicted; by construction, the others' places are among our candidates"
    yield Row("P2", "  the worst pair", best[0], "× step", how, AtLeast(1.0))
    gain = f"predicted; these by a median of {100 * (median(better or [1]) - 1):.1f} %"
    yield Row("P2", "  ours is shorter", 100 * len(better) / len(every), "% of pairs", gain)
    same = [pair.same_order for pair in every]
    how = f"predicted; ranks laid as is best for each: median; most {max(same):.3f}"
    yield Row("P2", "  by nodes alone", median(same), "× step", how, AtLeast(1.0))
    arnold = [pair.arnold for pair in every if pair.arnold]
    if arnold:
        how = f"predicted; no candidate of ours: median; {min(arnold):.3f} to {max(arnold):.3f}"
        yield Row("P2", "  Arnold's program", median(arnold), "× step", how)


def _others_over_ours(cluster: Pool, jobs: Sequence[Asked], dice: Random) -> list[Pair]:
    where = left_by_kueue(cluster, dice.uniform(*SHARE), dice)
    return [_pair(asked.case(where), where) for asked in jobs]


def _pair(case: Case, where: Pool) -> Pair:
    job = job_of(case, *gpu_of(where))
    plan = _planned(case, job)
    steps = {each.rule: each.step_ns for each in plan.candidates if each.step_ns}
    ground, _ = ground_of(where)
    gang = request_of(case, ground).gang
    by_role = [
        plan_of(case, job, (name, rule(ground, gang))).step_ns
        for name, rule in RULES
        if name in OTHERS and name in steps
    ]
    return Pair(
        min(steps[name] for name in OTHERS if name in steps) / plan.step_ns,
        min(by_role) / plan.step_ns,
        _arnold(case, job, where, gang) / plan.step_ns if gang.segment == 1 else 0.0,
    )


def _arnold(case: Case, job: Job, where: Pool, gang: Gang) -> int:
    """The predicted step by Arnold's program: groups are those of the outermost dim."""
    ground, _ = ground_of(where)
    outermost = case.layout.dense[-1][1]
    groups = [Gang(gang.nodes // outermost)] * outermost
    answer = solve(arnold_program(ground, groups), seconds=ARNOLD_S)
    parts = arnold_placements(ground, groups, answer)
    proposed = ("arnold", tuple(part for own in parts for part in own))
    return plan_of(case, job, proposed).candidates[0].step_ns


def _mean_of(by_seed: Sequence[Sequence[float]]) -> Value:
    """The geometric mean over all jobs, with the middle 95 % of resamples of seeds."""
    logs = np.log(np.array(by_seed))
    drawn = np.random.default_rng(1).integers(0, len(logs), (RESAMPLES, len(logs)))
    return value_of(np.exp([logs.mean(), *(logs[rows].mean() for rows in drawn)]))


def _interval(told: Value) -> str:
    return f"{told.low:.3f} to {told.high:.3f}"
