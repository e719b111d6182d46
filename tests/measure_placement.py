"""How near we come to the best placement of a queue: `python -m tests.measure_placement`.

Synthetic: leaves of 32 nodes of 8 GPUs, eight leaves a pod; half of the leaves are partly taken;
gangs of very different sizes, some in segments of two, want 95 % of what is free. A leaf more costs
1, a pod more 4. The gap is to the best of prefix bound, prices' bound and solver's bound. The
solver's seconds are those of a clock, our own milliseconds those of one core: what the solver got
of a core stands beside.
"""

import argparse
import time
from collections.abc import Sequence
from math import ceil
from random import Random
from statistics import median

import msgspec

from nemesis.actors.solver.together import together
from nemesis.processors.placement.counts import Judged, greedy, judge
from nemesis.processors.placement.ground import Gang, Ground

WEIGHTS = (1, 4)
LEAF_NODES = 32
POD_LEAVES = 8
ATTEMPTS = 2000
"""Exchanges of two gangs."""
SIZES = (1, 2, 3, 4, 6, 8, 8, 12, 16, 16, 24, 32, 48, 64, 96, 128)


def queue(seed: int, leaves: int, jobs: int, load: float = 0.95) -> tuple[Ground, list[Gang]]:
    """A cluster that is partly taken, and the gangs that wait for it."""
    dice = Random(seed)
    free = [
        dice.randint(0, LEAF_NODES) if dice.random() < 0.5 else LEAF_NODES for _ in range(leaves)
    ]
    pods = tuple(leaf // POD_LEAVES for leaf in range(leaves))
    drawn = [dice.choice(SIZES) for _ in range(jobs)]
    scale = load * sum(free) / sum(drawn)
    gangs: list[Gang] = []
    for size in drawn:
        nodes = max(1, int(size * scale))
        gangs.append(Gang(nodes, 2 if nodes % 2 == 0 and dice.random() < 0.3 else 1))
    return Ground(tuple(free), (pods, (0,) * leaves)), gangs


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    first_ms: float
    """Of a core, until each gang has a place: best fit, one after the other."""
    own_ms: float
    """Of a core, with exchanges."""
    own: Judged
    best: Judged
    """The better of our own and a solver's."""
    solver_cpu_s: float
    """What it got of the time that it was given: less on a busy machine."""
    all_s: float
    """By the clock, from nothing to the best."""


def measured(seed: int, leaves: int, jobs: int, seconds: float) -> Measured:
    """A queue placed alone, and with so many seconds of a solver."""
    place, gangs = queue(seed, leaves, jobs)
    begun, clock = time.process_time(), time.monotonic()
    greedy(place, gangs)
    first = time.process_time()
    own = judge(place, gangs, WEIGHTS, attempts_max=ATTEMPTS)
    alone = time.process_time()
    weights = [WEIGHTS] * len(gangs)
    asked, answer = together(place, gangs, weights, seconds=seconds)
    solved = time.process_time()
    best = judge(place, gangs, WEIGHTS, program=asked, answer=answer, attempts_max=ATTEMPTS)
    return Measured(
        first_ms=(first - begun) * 1000,
        own_ms=(alone - first) * 1000,
        own=own,
        best=best,
        solver_cpu_s=solved - alone,
        all_s=time.monotonic() - clock,
    )


def main() -> None:
    """Print a row for each seed, and the summary, for each length of time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(20))
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 20.0])
    options = parser.parse_args()
    for seconds in options.seconds:
        found: list[Measured] = []
        for seed in options.seeds:
            found.append(measured(seed, options.leaves, options.jobs, seconds))
            print(f"seed {seed:>2}: {line_of(found[-1])}", flush=True)
        print(
            f"{options.leaves * LEAF_NODES * 8} GPUs, {options.jobs} jobs, {seconds:g} s: "
            f"{summary_of(found)}"
        )


def line_of(one: Measured) -> str:
    """A queue in words."""
    best = one.best
    return (
        f"alone {one.own.cost:>5} in {one.own_ms:.0f} ms, best {best.cost:>5} by {best.source}, "
        f"bound {best.bound:>5} ({best.bound_by}), gap {best.gap_ppm / 10_000:.2f} %, "
        f"{best.status}; solver {one.solver_cpu_s:.1f} s of a core, {one.all_s:.1f} s in all"
    )


def summary_of(found: Sequence[Measured]) -> str:
    """All queues in words."""
    gaps = sorted(each.best.gap_ppm / 10_000 for each in found)
    return (
        f"gap median {median(gaps):.2f} %, p95 {p95(gaps):.2f} %; alone median "
        f"{median(each.own_ms for each in found):.0f} ms, first answer at most "
        f"{max(each.first_ms for each in found):.0f} ms"
    )


def p95(values: Sequence[float]) -> float:
    """Nearest rank: of twenty the second largest."""
    return sorted(values)[ceil(0.95 * len(values)) - 1]


if __name__ == "__main__":
    main()
