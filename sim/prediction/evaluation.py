"""How good a model is, on every split, beside every baseline, in the figures of decision 0018.

Thresholds are found on the calibration split and used on the others; intervals come from resamples
of GPUs. Everything is simulated, and the ceiling that no model can exceed stands beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.model import HORIZONS_S, Model
from nemesis.sim.prediction.alarms import COST_HEAD, Alarms, Costs, alarms
from nemesis.sim.prediction.boosted import NoBoostingError, boosted
from nemesis.sim.prediction.figures import (
    RESAMPLES,
    Value,
    as_drawn,
    average_precisions,
    best_threshold,
    bins_of,
    calibration_error,
    curve,
    f1s_at,
    resamples,
    value_of,
)
from nemesis.sim.prediction.precursors import Mix, Precursors
from nemesis.sim.prediction.scored import Scored
from nemesis.sim.prediction.scorers import (
    HEADS,
    MODEL,
    ORACLE,
    Absent,
    Calibrated,
    Ranker,
    Scorer,
    of_model,
    of_oracle,
    simple,
)
from nemesis.sim.prediction.splits import DataSet, draw_set

Floats = NDArray[np.float64]
HEAD: Final = 2
"""Two hours: the horizon of the published gate."""
ACT: Final = (0, 950_000)
WATCH: Final = (2, 850_000)
"""The tiers: head and chance (DESIGN 9; processors/ecc_model/bands.py)."""
PRECISIONS: Final = (0.95, 0.99)
EVEN_PPM: Final = 500_000
"""Where nothing was found by a split of its own."""
LEAD_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)


class Told(msgspec.Struct, kw_only=True, frozen=True):
    """Alarms at one threshold."""

    name: str
    horizon_s: int
    threshold_ppm: int
    """0: no threshold is so precise, and nothing is ever said."""
    alarms_count: int = 0
    """As they were drawn; nearly every figure here rests on so many."""
    precision: Value | None = None
    """None: there were no alarms."""
    recall: Value
    false_per_1000_gpu_days: Value
    needless_per_10000_gpu_days_at_most: float
    """Upper 95 % bound."""
    node_hours_saved_a_month: Value
    leads_s: tuple[int, ...] = ()
    """Lead times at LEAD_SHARES of the failures that were foreseen."""


class Figure(msgspec.Struct, kw_only=True, frozen=True):
    """One scorer on one split."""

    split: str
    scorer: str
    pr_auc: Value
    f1: tuple[Value, ...]
    """By horizon."""
    told: tuple[Told, ...]
    calibration_error: tuple[float, ...]
    """By horizon, of all steps; nearly all of them are of healthy GPUs."""
    calibration_error_alarming: tuple[float, ...]
    """Of steps with a chance of 1 % and more."""
    curve: tuple[tuple[float, float], ...] = ()
    """(recall, precision) of steps, two hours."""
    reliability: tuple[tuple[float, float, float], ...] = ()
    """(mass, chance, share that came), of steps with a chance of 1 % and more, two hours."""


class Evaluation(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that was measured."""

    mix: Mix | None
    """None: of a log."""
    seed: int
    each_count: int
    quiet_count: int
    lives_count: int
    gpu_days: float
    """That were judged, as drawn."""
    recall_ceiling: float
    precursors_sha256: str
    costs: Costs
    figures: tuple[Figure, ...]
    absent: tuple[Absent, ...] = ()

    def of(self, split: str, scorer: str) -> Figure:
        """One of the figures.

        Raises:
            KeyError: there is none.
        """
        for each in self.figures:
            if (each.split, each.scorer) == (split, scorer):
                return each
        raise KeyError((split, scorer))


class Drawing(msgspec.Struct, kw_only=True, frozen=True):
    """Which lives are judged."""

    mix: Mix
    each: int
    quiet: int
    seed: int
    learnt: int
    """Lives of every kind that baselines learn from, of seed 0 of the training split as the model
    did."""

    def set(self, split: str, precursors: Precursors) -> DataSet:
        """A split."""
        each, seed = (self.learnt, 0) if split == "train" else (self.each, self.seed)
        quiet = 2 * each if split == "train" else self.quiet
        return draw_set(split, precursors, each=each, quiet=quiet, seed=seed, mix=self.mix)


def evaluate(
    model: Model,
    precursors: Precursors,
    drawing: Drawing,
    *,
    others: Mapping[str, Ranker] | None = None,
    costs: Costs | None = None,
    splits: Sequence[str] = (),
    alone: bool = False,
    told: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Draw splits with this seed, and judge the model, the baselines and `others` on them.

    `others` rank steps and are fitted to the calibration split; `splits`: of those that the mix is
    judged by, these; none: all. `alone`: without baselines, of which another judgement tells.
    """
    costs = costs or Costs()
    told(f"drawing GPUs to calibrate on, {drawing.each} of every kind of life")
    calibration = drawing.set("calibration", precursors)
    scorers: dict[str, Scorer] = {MODEL: of_model(model)}
    absent: list[Absent] = []
    if not alone:
        scorers, absent = _scorers(model, precursors, drawing, calibration, others or {}, told=told)
    cuts = {name: _cuts(scorer(calibration), costs) for name, scorer in scorers.items()}
    figures: list[Figure] = []
    count, days = 0, 0.0
    judged = [
        split
        for split in precursors.split[2:]
        if drawing.mix in split.mixes and (not splits or split.name in splits)
    ]
    for at, split in enumerate(judged, start=1):
        told(f"judging on {split.name}, split {at} of {len(judged)}")
        data = drawing.set(split.name, precursors)
        count += len(data.lives.kinds)
        times = resamples(data.lives.kinds, drawing.seed)
        for name, scorer in scorers.items():
            found = scorer(data)
            figures.append(_figure(split.name, name, found, cuts[name], times))
            if name == MODEL:
                days += float(alarms(found, 0, 0).days.sum())
    return Evaluation(
        mix=drawing.mix,
        seed=drawing.seed,
        each_count=drawing.each,
        quiet_count=drawing.quiet,
        lives_count=count,
        gpu_days=days,
        recall_ceiling=precursors.ceiling() if drawing.mix == "honest" else 1.0,
        precursors_sha256=precursors.sha256,
        costs=costs,
        figures=tuple(figures),
        absent=tuple(absent),
    )


def of_log(model: Model, data: DataSet, costs: Costs) -> Evaluation:
    """A model on GPUs of a log, by the tiers: nothing is fitted to them, no ceiling is known."""
    found = of_model(model)(data)
    cuts = _Cuts(f1_ppm=[EVEN_PPM] * len(HORIZONS_S), alarms=_tiers(costs), costs=costs)
    times = resamples(data.lives.kinds, 0)
    return Evaluation(
        mix=None,
        seed=0,
        each_count=0,
        quiet_count=0,
        lives_count=len(data.lives.kinds),
        gpu_days=float(alarms(found, 0, 0).days.sum()),
        recall_ceiling=1.0,
        precursors_sha256="",
        costs=costs,
        figures=(_figure(data.split, MODEL, found, cuts, times),),
    )


def _tiers(costs: Costs) -> list[tuple[str, int, int]]:
    return [("act", *ACT), ("watch", *WATCH), ("by cost", COST_HEAD, costs.told_ppm)]


def _scorers(
    model: Model,
    precursors: Precursors,
    drawing: Drawing,
    calibration: DataSet,
    others: Mapping[str, Ranker],
    *,
    told: Callable[[str], None],
) -> tuple[dict[str, Scorer], list[Absent]]:
    told(f"drawing GPUs for baselines to learn from, {drawing.learnt} of every kind of life")
    learnt = drawing.set("train", precursors)
    scorers: dict[str, Scorer] = {MODEL: of_model(model), ORACLE: of_oracle}
    told("fitting the simple baselines")
    scorers |= simple(learnt, calibration)
    absent: list[Absent] = []
    told("fitting boosted trees")
    try:
        scorers["boosting"] = boosted(learnt, calibration, precursors, drawing.seed)
    except NoBoostingError as error:
        absent.append(Absent("boosting", str(error)))
    scorers |= {name: Calibrated(each, calibration) for name, each in others.items()}
    if "gru" not in others:
        absent.append(Absent("gru", "no run of `nemesis ecc train --network gru` was named"))
    return scorers, absent


class _Cuts(msgspec.Struct, kw_only=True):
    """Thresholds of one scorer."""

    f1_ppm: list[int]
    alarms: list[tuple[str, int, int]]
    """(name, head, threshold)."""
    costs: Costs


def _cuts(found: Scored, costs: Costs) -> _Cuts:
    f1 = [best_threshold(found.ppm[at], found.positive[at], found.weights) for at in HEADS]
    tiers = _tiers(costs)
    tiers += [(f"precision {each}", HEAD, _threshold(found, each)) for each in PRECISIONS]
    return _Cuts(f1_ppm=f1, alarms=tiers, costs=costs)


def _threshold(found: Scored, wanted: float) -> int:
    """The lowest chance, of those that were given, from which on alarms are so precise; else 0."""
    chances = np.unique(found.ppm[HEAD])
    candidates = np.unique(chances[np.linspace(0, len(chances) - 1, 40).astype(int)])
    once, lowest = as_drawn(found.gpus_count), 0
    for each in candidates[::-1].tolist():
        if each == 0 or alarms(found, HEAD, each).precision(once)[0] < wanted:
            break
        lowest = each
    return lowest


def _figure(split: str, scorer: str, found: Scored, cuts: _Cuts, times: Floats) -> Figure:
    ppm, positive, weights = found.ppm, found.positive, found.weights
    areas = average_precisions(
        ppm[HEAD], positive[HEAD], weights, found.gpus, times[: RESAMPLES // 2 + 1]
    )
    likely = ppm >= 10_000
    near = likely[HEAD]
    bins = bins_of(ppm[HEAD, near], positive[HEAD, near], weights[near]).T
    return Figure(
        split=split,
        scorer=scorer,
        pr_auc=value_of(areas),
        f1=tuple(
            value_of(f1s_at(cuts.f1_ppm[at], ppm[at], positive[at], found, times)) for at in HEADS
        ),
        told=tuple(
            _told((name, head, threshold), alarms(found, head, threshold), cuts.costs, times)
            for name, head, threshold in cuts.alarms
        ),
        calibration_error=tuple(calibration_error(ppm[at], positive[at], weights) for at in HEADS),
        calibration_error_alarming=tuple(
            calibration_error(ppm[at, likely[at]], positive[at, likely[at]], weights[likely[at]])
            for at in HEADS
        ),
        curve=_pairs(curve(ppm[HEAD], positive[HEAD], weights)),
        reliability=tuple((each[0], each[1], each[2]) for each in bins.tolist() if each[0] > 0),
    )


def _pairs(rows: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((recall, precision) for recall, precision in rows)


def _told(tier: tuple[str, int, int], of: Alarms, costs: Costs, times: Floats) -> Told:
    name, head, threshold_ppm = tier
    count = int((of.right + of.needless).sum())
    return Told(
        name=name,
        horizon_s=HORIZONS_S[head],
        threshold_ppm=threshold_ppm,
        alarms_count=count,
        precision=value_of(of.precision(times)) if count else None,
        recall=value_of(of.recall(times)),
        false_per_1000_gpu_days=value_of(1e3 * of.needless_a_day(times)),
        needless_per_10000_gpu_days_at_most=1e4 * of.needless_a_day_at_most(),
        node_hours_saved_a_month=value_of(of.node_hours_saved(costs, times)),
        leads_s=of.leads_s(LEAD_SHARES),
    )
