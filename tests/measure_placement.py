"""How near we come to the best placement of a queue: `python -m tests.measure_placement`.

Synthetic: leaves of 32 nodes of 8 GPUs, eight leaves a pod; half of the leaves are partly taken;
gangs of very different sizes, some in segments of two, want 95 % of what is free. A leaf more costs
1, a pod more 4. The gap is to the better of prefix bound and solver's bound. The solver's seconds
are those of a clock, our own milliseconds those of one core.
"""

import argparse
import time
from random import Random
from statistics import median

from nemesis.actors.solver.highs import solve
from nemesis.processors.placement.counts import Judged, judge, program, values_of
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


def measured(seed: int, leaves: int, jobs: int, seconds: float) -> tuple[Judged, Judged, float]:
    """(our own, the better with a solver's, milliseconds of our own)."""
    place, gangs = queue(seed, leaves, jobs)
    begun = time.process_time()
    own = judge(place, gangs, WEIGHTS, attempts_max=ATTEMPTS)
    own_ms = (time.process_time() - begun) * 1000
    asked = program(place, gangs, [WEIGHTS] * len(gangs))
    start = values_of(asked, place, gangs, own.placements) if own.placements else ()
    answer = solve(asked.mip, seconds=seconds, start=start, threads=1)
    best = judge(place, gangs, WEIGHTS, program=asked, answer=answer, attempts_max=ATTEMPTS)
    return own, best, own_ms


def main() -> None:
    """Print a row for each seed, and the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    gaps: list[float] = []
    slow: list[float] = []
    for seed in range(options.seeds):
        own, best, own_ms = measured(seed, options.leaves, options.jobs, options.seconds)
        gaps.append(best.gap_ppm / 10_000)
        slow.append(own_ms)
        print(
            f"seed {seed:>2}: alone {own.cost:>5} in {own_ms:.0f} ms, solver {best.cost:>5}, "
            f"bound {best.bound:>5} ({best.bound_by}), gap {gaps[-1]:.2f} %, {best.status}"
        )
    ordered = sorted(gaps)
    print(
        f"{options.leaves * LEAF_NODES * 8} GPUs, {options.jobs} jobs, {options.seconds:g} s: "
        f"gap median {median(gaps):.2f} %, p95 {ordered[int(0.95 * (len(ordered) - 1))]:.2f} %; "
        f"alone median {median(slow):.0f} ms, most {max(slow):.0f} ms"
    )


if __name__ == "__main__":
    main()
