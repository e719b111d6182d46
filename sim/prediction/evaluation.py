"""How good a model is, on every split, beside every baseline, in the figures of decision 0018.

Thresholds are found on the calibration split and used on the others; intervals come from resamples
of GPUs. Everything is simulated, and the ceiling that no model can exceed stands beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, Model
from nemesis.sim.prediction.baselines import Line, fitted_line, probation, shown, thresholds
from nemesis.sim.prediction.figures import (
    alarms,
    average_precision,
    best_threshold,
    calibration_error,
    f1_at,
    resampled,
)
from nemesis.sim.prediction.labels import within
from nemesis.sim.prediction.precursors import MILLION, Mix, Precursors
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored, scored
from nemesis.sim.prediction.splits import DataSet, draw_set
from nemesis.sim.telemetry.draws import Ints

Floats = NDArray[np.float64]
HEAD: Final = 2
"""Two hours: the horizon of the published gate."""
PRECISIONS: Final = (0.95, 0.99)
RESAMPLES: Final = 100
MINUTES_A_DAY: Final = 1_440
STEP_S: Final = 5


class AtPrecision(msgspec.Struct, kw_only=True, frozen=True):
    """Alarms at the lowest threshold that had this precision on the calibration split."""

    wanted: float
    threshold_ppm: int
    """0: no threshold had it, and nothing is ever said."""
    precision: float = 0.0
    recall: float = 0.0
    false_per_1000_gpu_days: float = 0.0
    lead_median_s: int = 0


class Figure(msgspec.Struct, kw_only=True, frozen=True):
    """One scorer on one split."""

    split: str
    scorer: str
    pr_auc: float
    pr_auc_interval: tuple[float, float]
    f1: float
    at_precision: tuple[AtPrecision, ...] = ()
    """Of the model alone: baselines state no chances."""
    calibration_error: tuple[float, ...] = ()
    """By horizon, of all steps; nearly all of them are of healthy GPUs."""
    calibration_error_alarming: tuple[float, ...] = ()
    """Of steps with a chance of 1 % and more."""


class Evaluation(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that was measured."""

    mix: Mix
    lives_count: int
    recall_ceiling: float
    precursors_sha256: str
    figures: tuple[Figure, ...]


Scorer = Callable[[Scored, Ints], Ints]


def evaluate(
    model: Model, precursors: Precursors, *, mix: Mix, each: int, quiet: int, seed: int
) -> Evaluation:
    """Draw every split anew with this seed, and judge the model and the baselines on it."""

    def drawn(split: str) -> DataSet:
        return draw_set(split, precursors, each=each, quiet=quiet, seed=seed, mix=mix)

    learnt = drawn("train")
    line = fitted_line(learnt, scored(model, learnt), HEAD)
    scorers = _scorers(line)
    calibration = drawn("calibration")
    known = scored(model, calibration)
    cuts = _cuts(scorers, known, shown(calibration, known))
    tiers = {wanted: _threshold(known, wanted) for wanted in PRECISIONS}
    figures: list[Figure] = []
    count = 0
    for split in precursors.split[2:]:
        data = drawn(split.name)
        count += len(data.lives.kinds)
        figures += _judged(
            data, scored(model, data), scorers=scorers, cuts=cuts, tiers=tiers, seed=seed
        )
    return Evaluation(
        mix=mix,
        lives_count=count,
        recall_ceiling=precursors.ceiling() if mix == "honest" else 1.0,
        precursors_sha256=precursors.sha256,
        figures=tuple(figures),
    )


def _scorers(line: Line) -> Mapping[str, Scorer]:
    return {
        "model": lambda found, _: found.ppm[HEAD],
        "thresholds": lambda _, codes: thresholds(codes),
        "probation": lambda _, codes: probation(codes),
        "logistic": lambda _, codes: line.scores(codes),
    }


def _cuts(scorers: Mapping[str, Scorer], found: Scored, codes: Ints) -> dict[str, int]:
    positive = within(found.until)[HEAD]
    return {
        name: best_threshold(scorer(found, codes), positive, found.weights)
        for name, scorer in scorers.items()
    }


def _judged(
    data: DataSet,
    found: Scored,
    *,
    scorers: Mapping[str, Scorer],
    cuts: Mapping[str, int],
    tiers: Mapping[float, int],
    seed: int,
) -> Iterator[Figure]:
    codes, positive = shown(data, found), within(found.until)
    for name, scorer in scorers.items():
        scores = scorer(found, codes)
        random = np.random.default_rng(seed)
        again = [
            average_precision(scores, positive[HEAD], resampled(found, random))
            for _ in range(RESAMPLES)
        ]
        low, high = np.quantile(again, [0.025, 0.975]).tolist()
        of_model = name == "model"
        yield Figure(
            split=data.split,
            scorer=name,
            pr_auc=average_precision(scores, positive[HEAD], found.weights),
            pr_auc_interval=(low, high),
            f1=f1_at(cuts[name], scores, positive[HEAD], found.weights),
            at_precision=tuple(_at(found, each, cut) for each, cut in tiers.items() if of_model),
            calibration_error=_errors(found, 0) if of_model else (),
            calibration_error_alarming=_errors(found, MILLION // 100) if of_model else (),
        )


def _errors(found: Scored, least_ppm: int) -> tuple[float, ...]:
    positive = within(found.until)
    errors = []
    for head in range(len(HORIZONS_S)):
        own = found.ppm[head] >= least_ppm
        errors.append(
            calibration_error(found.ppm[head, own], positive[head, own], found.weights[own])
        )
    return tuple(errors)


def _threshold(found: Scored, wanted: float) -> int:
    """The lowest chance, of those that were given, from which on alarms are so precise; else 0."""
    chances = np.unique(found.ppm[HEAD])
    candidates = np.unique(chances[np.linspace(0, len(chances) - 1, 40).astype(int)])
    lowest = 0
    for each in candidates[::-1].tolist():
        if each == 0 or alarms(found, HEAD, each, found.weights).precision < wanted:
            break
        lowest = each
    return lowest


def _at(found: Scored, wanted: float, threshold_ppm: int) -> AtPrecision:
    if not threshold_ppm:
        return AtPrecision(wanted=wanted, threshold_ppm=0)
    told = alarms(found, HEAD, threshold_ppm, found.weights)
    days = float(found.weights.sum()) * EVERY_STEPS * STEP_S / 60 / MINUTES_A_DAY
    leads = sorted(told.leads_steps)
    return AtPrecision(
        wanted=wanted,
        threshold_ppm=threshold_ppm,
        precision=told.precision,
        recall=told.recall,
        false_per_1000_gpu_days=told.needless / days * 1_000,
        lead_median_s=leads[len(leads) // 2] * STEP_S if leads else 0,
    )
