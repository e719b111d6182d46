"""P1: how well failures are foreseen, simulated; the seed mix and the honest one, never averaged.

F1 is measured anew on a few lives; what takes longer is what `tests.prediction_table` kept, and
says so. A row of another model or of other parameters would be no figure of this release.
"""

import asyncio
from collections.abc import Iterator

from nemesis.processors.ecc_model.model import load_model
from nemesis.sim.prediction.evaluation import HEAD, Figure, Told
from nemesis.sim.prediction.figures import best_threshold, f1s_at, resamples, value_of
from nemesis.sim.prediction.judge import Judgement
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.scored import scored
from nemesis.sim.prediction.splits import draw_set
from tests.bench.row import AtLeast, AtMost, Row
from tests.prediction_table import SEED_MODEL, kept, value

LIVES = 24
HOURS = {1: 1, 2: 2, 3: 3}
"""Head to hours."""
SYNTHETIC = "synthetic, precursor in 100 % of failures"


async def measure() -> list[Row]:
    """All rows of P1."""
    rows = await asyncio.to_thread(_seed_rows)
    precursors = load_precursors()
    for found in kept("honest"):
        assert found.evaluation.precursors_sha256 == precursors.sha256, "of other parameters"
        rows += _honest_rows(found)
    return rows


def _seed_rows() -> list[Row]:
    if not SEED_MODEL.is_file():
        return []
    model, precursors = load_model(SEED_MODEL.read_bytes()), load_precursors()
    known, found = (
        scored(model, draw_set(split, precursors, each=LIVES, quiet=LIVES, seed=7, mix="seed"))
        for split in ("calibration", "devices")
    )
    times = resamples(["any"] * found.gpus_count, 1)
    rows = []
    for head, hours in HOURS.items():
        threshold = best_threshold(known.ppm[head], known.positive[head], known.weights)
        f1 = value_of(f1s_at(threshold, found.ppm[head], found.positive[head], found, times))
        how = f"{SYNTHETIC}; anew on {found.gpus_count} lives, {value(f1)}"
        goal = AtLeast(0.90) if head == HEAD else None
        rows.append(Row("P1", f"F1 at {hours} h, seed mix", f1.value, "", how, goal))
    return rows


def _honest_rows(found: Judgement) -> Iterator[Row]:
    evaluation = found.evaluation
    model = evaluation.of("devices", "model")
    others = [
        each
        for each in evaluation.figures
        if each.split == "devices" and each.scorer not in ("model", "oracle")
    ]
    how = f"simulated, honest mix, kept; {evaluation.lives_count} lives; "
    best = max(others, key=lambda each: each.pr_auc.value)
    by_cost, oracle = _told(model, "by cost"), evaluation.of("devices", "oracle")

    def beside(figure: Figure) -> str:
        return f"{how}{figure.scorer} {value(figure.pr_auc, 4)}"

    yield Row(
        "P1",
        "recall ceiling, honest mix",
        evaluation.recall_ceiling,
        "",
        "share of failures with any sign, from published counts",
    )
    yield Row("P1", "PR-AUC at 2 h, honest mix", model.pr_auc.value, "", beside(best))
    yield Row("P1", "  of the oracle", oracle.pr_auc.value, "", how + "knows every end at a sign")
    for name in ("precision 0.95", "precision 0.99"):
        told = _told(model, name)
        recall = value(told.recall) if told.precision is not None else "never speaks"
        yield Row("P1", f"recall at {name}", told.recall.value, "", how + recall)
    rate = by_cost.false_per_1000_gpu_days
    yield Row("P1", "false alarms, by cost", rate.value, "/1,000 d", how + value(rate))
    lead = by_cost.leads_s[2] / 60 if by_cost.leads_s else 0.0
    yield Row("P1", "lead time, by cost, median", lead, "min", how.rstrip("; "))
    errors = (model.calibration_error[HEAD], model.calibration_error_alarming[HEAD])
    nearly = how + "nearly all steps are of healthy GPUs"
    yield Row("P1", "ECE at 2 h", errors[0], "", nearly, AtMost(0.02))
    yield Row("P1", "  of chances from 1 % on", errors[1], "", how.rstrip("; "))
    saved = by_cost.node_hours_saved_a_month
    rival = max(others, key=_saved)
    yield Row(
        "P1",
        "node-hours saved a month",
        saved.value,
        "",
        f"{how}{value(saved, 0)}; {rival.scorer} {_saved(rival):,.0f}; costs assumed",
    )


def _told(figure: Figure, name: str) -> Told:
    return next(each for each in figure.told if each.name == name)


def _saved(figure: Figure) -> float:
    return _told(figure, "by cost").node_hours_saved_a_month.value
