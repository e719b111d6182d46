"""How often would a healthy GPU be taken out? `python -m tests.needless_days [MODEL]`.

Lives are drawn as often as they happen, so nothing is weighted: what is counted is alarms of the
`act` tier, and of moves by cost in the largest job, that no failure followed. The bound is that of
a Poisson count, one-sided, 95 %. All is simulated. 20,000 GPU-days, the default, take about half an
hour of one core.
"""

import argparse
import sys
from pathlib import Path

from nemesis.sim.prediction.alarms import COST_HEAD, Costs, alarms, poisson_at_most
from nemesis.sim.prediction.evaluation import ACT
from nemesis.sim.prediction.judge import named
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.scored import scored
from nemesis.sim.prediction.splits import draw_fleet

LIVES_AT_ONCE = 400
TIERS = {"act": ACT, "by cost": (COST_HEAD, Costs().told_ppm)}
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
    days, seed = 0.0, FIRST_SEED
    told = dict.fromkeys(TIERS, 0)
    needless = dict.fromkeys(TIERS, 0)
    while days < options.gpu_days:
        data = draw_fleet(options.split, precursors, count=LIVES_AT_ONCE, seed=seed)
        scores = scored(model.model, data)
        for tier, (head, at_ppm) in TIERS.items():
            found = alarms(scores, head, at_ppm)
            needless[tier] += int(found.needless.sum())
            told[tier] += int((found.needless + found.right).sum())
        days += float(alarms(scores, *ACT).days.sum())
        seed += 1
        print(f"{days:,.0f} GPU-days, alarms {told}, needless {needless}", file=sys.stderr)
    print(f"simulated, model {model.sha256[:12]}, split {options.split}, {days:,.0f} GPU-days:")
    for tier, count in needless.items():
        rate, most = (1e4 * each / days for each in (count, poisson_at_most(count)))
        print(
            f"  {tier}: {told[tier]} alarms, {count} needless, {rate:.2f} per 10,000 GPU-days, at "
            f"most {most:.2f} (95 %)"
        )


if __name__ == "__main__":
    main()
