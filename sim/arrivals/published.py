"""Jobs as published traces have them, where the traces themselves cannot be had: drawn.

How: sizes are powers of two up to the largest job. Half of the jobs have one GPU, which is the
least that a median of one allows; of the others each size is rarer than the one below by the factor
that gives the published mean. Times are log-normal with the published median and mean, cut at the
longest job. Jobs arrive as by dice, at the rate that asks for `load` times what the cluster has.
Not here: that large jobs run longer, days and nights, and jobs that are submitted again; of these
nothing is in the source.

Source: data/cluster_summary.csv of InternLM/AcmeTrace at 6d6ac9cd (CC BY 4.0; its paper:
Characterization of Large Language Model Development in the Datacenter, NSDI '24), a row each,
columns avg_gpu_num, max_gpu, med_run_time_gpu, avg_run_time_gpu and max_run_time_gpu; med_gpu_num
is 1 in all four.
"""

from collections.abc import Sequence
from math import log, sqrt
from operator import mul
from random import Random
from typing import Final

import msgspec

from nemesis.sim.arrivals.arrival import Arrival, BadTraceError, Trace

SINGLE_SHARE: Final = 0.5
HALVINGS: Final = 100
BEGINS_S: Final = 1_677_628_800
"""The first of March 2023, when Acme's traces begin: any moment does."""


class Marginals(msgspec.Struct, frozen=True, kw_only=True):
    """What is published of a cluster's GPU jobs."""

    gpus_mean: float
    gpus_most: int
    run_s_median: float
    run_s_mean: float
    run_s_most: int


PUBLISHED: Final = {
    "seren": Marginals(
        gpus_mean=5.68,
        gpus_most=1024,
        run_s_median=122,
        run_s_mean=1414.335,
        run_s_most=1_209_604,
    ),
    "kalos": Marginals(
        gpus_mean=26.77,
        gpus_most=1024,
        run_s_median=124,
        run_s_mean=1259.689,
        run_s_most=625_740,
    ),
    "helios": Marginals(
        gpus_mean=3.716,
        gpus_most=2048,
        run_s_median=206,
        run_s_mean=6651.681,
        run_s_most=4_320_009,
    ),
    "philly": Marginals(
        gpus_mean=1.928,
        gpus_most=128,
        run_s_median=874,
        run_s_mean=18_006.055,
        run_s_most=4_240_676,
    ),
}


def drawn(name: str, *, jobs: int, gpus: int, least: int, load: float, seed: int) -> Trace:
    """So many jobs of `least` to `gpus` GPUs that ask for `load` times a cluster of `gpus`.

    How many smaller ones come meanwhile, and what they take, is the mean: they are not drawn.

    Raises:
        BadTraceError: no job has so many GPUs.
    """
    said = PUBLISHED[name]
    sizes, weights = sizes_of(said)
    kept = [at for at, size in enumerate(sizes) if least <= size <= gpus]
    if not kept:
        raise BadTraceError(
            f"{name} has no jobs of {least} to {gpus} GPUs: they have 1, 2, 4, ... {sizes[-1]}",
            hint="a larger cluster, or a lower --least",
        )
    dice = Random(f"{name} {seed}")
    wanted = dice.choices([sizes[at] for at in kept], [weights[at] for at in kept], k=jobs)
    runs_s = [run_s_of(said, dice) for _ in wanted]
    asked_s = sum(size * run_s for size, run_s in zip(wanted, runs_s, strict=True))
    rate = gpus * load * jobs / asked_s
    at_s = float(BEGINS_S)
    arrivals: list[Arrival] = []
    for number, (size, run_s) in enumerate(zip(wanted, runs_s, strict=True), 1):
        at_s += dice.expovariate(rate)
        arrivals.append(Arrival(f"{name}-{number:04}", name, size, round(at_s), run_s))
    small = sum(weights[: kept[0]])
    small_gpus = sum(map(mul, sizes[: kept[0]], weights))
    return Trace(
        source=f"drawn after {name}, seed {seed}, load {load:g}",
        arrivals=tuple(arrivals),
        small_count=round(jobs * small / sum(weights[at] for at in kept)),
        small_share=small_gpus / (small_gpus + sum(sizes[at] * weights[at] for at in kept)),
    )


def sizes_of(said: Marginals) -> tuple[Sequence[int], Sequence[float]]:
    """GPUs that jobs have, and how often, with the published mean."""
    sizes = [1 << power for power in range(said.gpus_most.bit_length())]
    mean_of_rest = (said.gpus_mean - SINGLE_SHARE) / (1 - SINGLE_SHARE)

    def mean(factor: float) -> float:
        weights = [factor**at for at in range(len(sizes) - 1)]
        gpus: float = sum(map(mul, sizes[1:], weights))
        return gpus / sum(weights)

    low, high = 1e-6, 1e6
    for _ in range(HALVINGS):  # the mean rises with the factor
        factor = sqrt(low * high)
        low, high = (factor, high) if mean(factor) < mean_of_rest else (low, factor)
    weights = [low**at for at in range(len(sizes) - 1)]
    rest = [weight / sum(weights) * (1 - SINGLE_SHARE) for weight in weights]
    return sizes, (SINGLE_SHARE, *rest)


def run_s_of(said: Marginals, dice: Random) -> int:
    """How long one job runs."""
    spread = sqrt(2 * log(said.run_s_mean / said.run_s_median))
    run_s = dice.lognormvariate(log(said.run_s_median), spread)
    return max(1, min(said.run_s_most, round(run_s)))
