"""How often would a healthy GPU be taken out? `python -m tests.needless_days [MODEL] [options]`.

Lives are drawn as often as they happen, so nothing is weighted, from each split that was held out
in turn. Every step is scored, and what is counted is what the processor's own latches would tell
of: GPUs whose first alarm no failure followed within its horizon. A second alarm of a GPU counts
nothing, it was moved away by then; what is up when a life of six hours is first judged does, as if
nobody had watched it before. The bound is that of a Poisson count, one-sided, 95 %. All is
simulated.

    --gpu-days N      in all; 20,000, the default, take about 25 minutes of one core
    --splits NAME...  of these alone
    --engine torch    the same bits in half the time, where torch is installed and exact
    --kept FILE       go on from what this file counted, and keep what is found in it
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nemesis.cli.models import network_of
from nemesis.processors.ecc_model.bands import BANDS, latched
from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.model import (
    HORIZONS_S,
    LOGITS,
    RECEPTIVE_STEPS,
    Model,
    probabilities_ppm,
)
from nemesis.processors.ecc_model.network import Network
from nemesis.sim.prediction.alarms import COST_HEAD, Costs, poisson_at_most
from nemesis.sim.prediction.judge import named
from nemesis.sim.prediction.labels import left, within
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.splits import DataSet, draw_fleet

LIVES_AT_ONCE: Final = 2_048  # whole parts of either engine's network
FIRST_SEED: Final = 1_000
"""Beyond those of training, calibration and evaluation."""
DAYS_A_STEP: Final = STEP_NS / 86_400e9
SPLITS: Final = ("devices", "topologies", "parameters", "time")
_TOLD: Final = [(each.head, each.at_ppm) for each in BANDS]
TIERS: Final = {
    "act": len(BANDS) - 1,
    "watch": len(BANDS) - 2,
    "by cost": _TOLD.index((COST_HEAD, Costs().told_ppm)),
}
"""Places in BANDS: what asks for a shrink, for a look, and for a move of the largest job."""


class Counted(msgspec.Struct, kw_only=True):
    """Of one split."""

    gpu_days: float = 0.0
    """That were judged."""
    told: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    """Tier to GPUs that were told of."""
    needless: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(TIERS, 0))

    def add(self, other: "Counted") -> None:
        """Both together."""
        self.gpu_days += other.gpu_days
        for tier in TIERS:
            self.told[tier] += other.told[tier]
            self.needless[tier] += other.needless[tier]

    def rates(self, tier: str) -> tuple[float, float]:
        """Needless alarms per 10,000 GPU-days: as counted, and at most."""
        count = self.needless[tier]
        return 1e4 * count / self.gpu_days, 1e4 * poisson_at_most(count) / self.gpu_days


class Needless(msgspec.Struct, kw_only=True):
    """Everything that was counted of a model."""

    model_sha256: str
    precursors_sha256: str
    most_ppm: tuple[int, ...]
    """Within each horizon: `most_ppm` of the model."""
    splits: tuple[str, ...]
    draws_count: int = 0
    """So many fleets of LIVES_AT_ONCE were drawn, the splits in turn."""
    counted: dict[str, Counted] = {}

    def together(self) -> Counted:
        """Of all splits."""
        whole = Counted()
        for each in self.counted.values():
            whole.add(each)
        return whole


def most_ppm(model: Model) -> tuple[int, ...]:
    """The highest chances [HORIZONS_S] that a model can give, whatever it is shown.

    No hazard falls with its logit (`expect_exact`) and no chance with a hazard, so they are those
    of the highest logits that there are.
    """
    highest = np.full((len(HORIZONS_S), 1), LOGITS // 2 - 1, np.int16)
    return tuple(probabilities_ppm(model.hazard_table(), highest)[:, 0].tolist())


def counted(
    model: Model, data: DataSet, made: Callable[[Model, int], Network] = Network
) -> Counted:
    """What would be told of these lives."""
    codes, fails = data.lives.codes, data.lives.fails
    network, table, found = made(model, len(fails)), model.hazard_table(), Counted()
    latches = np.zeros((len(BANDS), len(fails)), np.bool_)
    known, judged_steps = latches.copy(), 0
    for step, each in enumerate(codes):
        logits = network.step(each)
        if step < RECEPTIVE_STEPS:
            continue
        up = (fails < 0) | (step < fails)
        judged_steps += int(up.sum())
        latches = latched(latches, probabilities_ppm(table, logits), up)
        begun = latches & ~known
        if not begun.any():
            continue
        known |= begun
        right = within(left(fails, np.array(step)))
        for tier, at in TIERS.items():
            found.told[tier] += int(begun[at].sum())
            found.needless[tier] += int((begun[at] & ~right[BANDS[at].head]).sum())
    found.gpu_days = judged_steps * DAYS_A_STEP
    return found


def _taken_up(path: Path | None, fresh: Needless) -> Needless:
    """What was counted before of the same model, parameters and splits."""
    if path is None or not path.exists():
        return fresh
    found = msgspec.json.decode(path.read_bytes(), type=Needless)
    for name in ("model_sha256", "precursors_sha256", "splits"):
        if getattr(found, name) != getattr(fresh, name):
            sys.exit(f"{path}: {name} {getattr(found, name)}: expected {getattr(fresh, name)}")
    return found


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--gpu-days", type=float, default=20_000.0)
    parser.add_argument("--splits", nargs="*", default=SPLITS)
    parser.add_argument("--engine", default="numpy")
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    model, precursors = named(options.model), load_precursors()
    network = network_of(options.engine)
    fresh = Needless(
        model_sha256=model.sha256,
        precursors_sha256=precursors.sha256,
        most_ppm=most_ppm(model.model),
        splits=tuple(options.splits),
        counted={split: Counted() for split in options.splits},
    )
    found = _taken_up(options.kept, fresh)
    while (whole := found.together()).gpu_days < options.gpu_days:
        split = found.splits[found.draws_count % len(found.splits)]
        seed = FIRST_SEED + found.draws_count
        data = draw_fleet(split, precursors, count=LIVES_AT_ONCE, seed=seed)
        found.counted[split].add(counted(model.model, data, network))
        found.draws_count += 1
        if options.kept is not None:
            options.kept.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        print(f"{split}: {found.counted[split]}", file=sys.stderr)
    print(f"simulated, model {model.sha256[:12]}, {whole.gpu_days:,.0f} GPU-days:")
    for tier in TIERS:
        rate, most = whole.rates(tier)
        print(
            f"  {tier}: {whole.told[tier]} GPUs, {whole.needless[tier]} needless, {rate:.2f} per"
            f" 10,000 GPU-days, at most {most:.2f} (95 %)"
        )


if __name__ == "__main__":
    main()
