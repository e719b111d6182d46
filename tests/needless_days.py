"""How often would a healthy GPU be taken out? `python -m tests.needless_days [MODEL]`.

Lives are drawn as often as they happen, so nothing is weighted: what is counted is alarms of the
`act` tier that no failure followed. The bound is that of a Poisson count, one-sided, 95 %. All is
simulated. 20,000 GPU-days, the default, take about half an hour of one core.
"""

import argparse
import sys
from pathlib import Path

from nemesis.sim.prediction.alarms import alarms, poisson_at_most
from nemesis.sim.prediction.evaluation import ACT
from nemesis.sim.prediction.judge import named
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.scored import scored
from nemesis.sim.prediction.splits import draw_fleet

LIVES_AT_ONCE = 400
FIRST_SEED = 1_000
"""Beyond those of training, calibration and evaluation."""


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--gpu-days", type=float, default=20_000.0)
    parser.add_argument("--split", default="devices")
    options = parser.parse_args()
    model, precursors = named(options.model), load_precursors()
    days, told, needless, seed = 0.0, 0, 0, FIRST_SEED
    while days < options.gpu_days:
        data = draw_fleet(options.split, precursors, count=LIVES_AT_ONCE, seed=seed)
        found = alarms(scored(model.model, data), *ACT)
        days += float(found.days.sum())
        needless += int(found.needless.sum())
        told += int((found.needless + found.right).sum())
        seed += 1
        print(f"{days:,.0f} GPU-days, {told} alarms, {needless} needless", file=sys.stderr)
    rate, most = (1e4 * each / days for each in (needless, poisson_at_most(needless)))
    print(
        f"simulated, model {model.sha256[:12]}, split {options.split}, {days:,.0f} GPU-days: "
        f"{told} alarms, {needless} needless, {rate:.2f} per 10,000 GPU-days, at most {most:.2f} "
        f"(95 %)"
    )


if __name__ == "__main__":
    main()
