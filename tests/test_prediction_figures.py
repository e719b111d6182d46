"""Promises of how predictions are judged: weighted to a fleet, by alarms, never flattered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, UNIT
from nemesis.sim.prediction.alarms import Alarms, Costs, alarms, poisson_at_most
from nemesis.sim.prediction.calibrate import hazard_tables, isotonic, pooled
from nemesis.sim.prediction.figures import (
    as_drawn,
    average_precision,
    average_precisions,
    best_threshold,
    calibration_error,
    curve,
    f1s_at,
    resamples,
    value_of,
)
from nemesis.sim.prediction.labels import EDGES, left, parts, within
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored

FAR = 1 << 40


def minutes(*lives: tuple[float, int, list[int]]) -> Scored:
    """Lives of (weight, minutes until it fails at the first score or -1, ppm each minute)."""
    gpus, until, weights, ppm = [], [], [], []
    for at, (weight, fails, own) in enumerate(lives):
        for minute, each in enumerate(own):
            gpus.append(at)
            until.append(FAR if fails < 0 else (fails - minute) * EVERY_STEPS)
            weights.append(weight)
            ppm.append(each)
    steps = np.concatenate([np.arange(len(own)) * EVERY_STEPS for *_, own in lives])
    return Scored(
        gpus=np.array(gpus),
        steps=steps,
        until=np.array(until),
        weights=np.array(weights, float),
        gpus_count=len(lives),
        positive=within(np.array(until)),
        logits=np.zeros((len(HORIZONS_S), len(gpus)), np.int16),
        ppm=np.array([ppm] * len(HORIZONS_S)),
    )


def told(found: Scored, threshold_ppm: int = 900_000, head: int = 0) -> dict[str, float]:
    counted = alarms(found, head, threshold_ppm)
    names = ("foreseen", "failed", "right", "needless")
    return {name: summed(counted, name) for name in names}


def summed(counted: Alarms, name: str) -> float:
    return float(counted.summed(getattr(counted, name), as_drawn(len(counted.weights)))[0])


def test_a_gpu_fails_in_one_part_and_is_at_risk_until_then() -> None:
    until = np.array([1, EDGES[0], EDGES[0] + 1, EDGES[2], EDGES[3] + 1, FAR, 0])
    events, risk = parts(until)
    assert events.sum(axis=0).tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert risk.sum(axis=0).tolist() == [1, 1, 2, 3, 4, 4, 0]
    assert not (events & ~risk).any()
    assert (np.diff(within(until).astype(int), axis=0) >= 0).all()
    assert left(np.array([-1, 10]), np.array([3, 3])).tolist() == [FAR, 7]


def test_average_precision_is_that_of_the_textbook_and_weights_are_copies() -> None:
    scores = np.array([9, 8, 7, 6])
    hit = np.array([True, False, True, False])
    ones = np.ones(4)
    assert average_precision(scores, hit, ones) == pytest.approx((1 + 2 / 3) / 2)
    doubled = average_precision(scores, hit, np.array([1.0, 2.0, 1.0, 1.0]))
    copied = np.array([0, 1, 1, 2, 3])
    assert doubled == pytest.approx(average_precision(scores[copied], hit[copied], np.ones(5)))
    assert average_precision(scores, np.zeros(4, bool), ones) == 0.0


def test_who_says_the_same_of_all_gets_the_prevalence() -> None:
    hit = np.arange(100) < 7
    assert average_precision(np.full(100, 5), hit, np.ones(100)) == pytest.approx(0.07)


def test_f1_is_taken_at_a_threshold_that_was_found_elsewhere() -> None:
    found = minutes((1.0, 2, [9, 8]), (1.0, -1, [7, 1]))
    scores, hit = found.ppm[0], found.positive[0]
    assert best_threshold(scores, hit, found.weights) == 8
    for threshold, f1 in ((8, 1.0), (7, 0.8), (10, 0.0)):
        assert f1s_at(threshold, scores, hit, found, as_drawn(2)) == pytest.approx(f1)


def test_a_chance_that_means_what_it_says_has_no_calibration_error() -> None:
    ppm = np.repeat([100_000, 500_000], 1_000)
    hit = np.concatenate([np.arange(1_000) < 100, np.arange(1_000) < 500])
    assert calibration_error(ppm, hit, np.ones(2_000)) == pytest.approx(0.0)
    assert calibration_error(ppm, np.zeros(2_000, bool), np.ones(2_000)) == pytest.approx(0.3)


def test_an_alarm_before_the_failure_is_right_and_foresees_it_once() -> None:
    found = minutes((2.0, 5, [0, 950_000, 960_000, 990_000, 990_000]))
    assert told(found) == {"foreseen": 2.0, "failed": 2.0, "right": 2.0, "needless": 0.0}
    assert alarms(found, 0, 900_000).leads_s((0.5,)) == (4 * 60,)


def test_an_alarm_stays_up_until_half_of_its_threshold() -> None:
    wavering = minutes((1.0, -1, [950_000, 500_000, 950_000, 400_000, 950_000]))
    assert told(wavering)["needless"] == 2.0


def test_an_alarm_that_went_down_again_or_came_too_early_foresaw_nothing() -> None:
    down = minutes((1.0, 4, [950_000, 100, 100, 100]))
    assert told(down) == {"foreseen": 0.0, "failed": 1.0, "right": 1.0, "needless": 0.0}
    early = minutes((1.0, 200, [950_000] * 200))
    assert told(early) == {"foreseen": 0.0, "failed": 1.0, "right": 0.0, "needless": 1.0}


def test_needless_alarms_count_by_what_a_life_stands_for() -> None:
    found = minutes((1.0, 2, [950_000, 950_000]), (3_000.0, -1, [950_000, 0]))
    counted = alarms(found, 0, 900_000)
    assert counted.precision(as_drawn(2)) == pytest.approx(1 / 3_001)
    assert counted.recall(as_drawn(2)) == 1.0
    days = (2 + 2 * 3_000) / 1_440
    assert counted.needless_a_day(as_drawn(2)) == pytest.approx(3_000 / days)


def test_whoever_never_speaks_saves_nothing_and_may_still_be_wrong_three_times() -> None:
    found = minutes((2.0, 2, [950_000] * 2), (2.0, -1, [950_000] * 3))
    silent = alarms(found, 0, 0)
    once = as_drawn(2)
    assert silent.precision(once) == silent.recall(once) == 0.0
    assert silent.node_hours_saved(Costs(), once) == 0.0
    assert silent.needless_a_day_at_most() == pytest.approx(3 * 1_440 / 5)
    assert silent.leads_s((0.5,)) == ()


def test_a_needless_alarm_costs_and_a_foreseen_failure_saves() -> None:
    costs = Costs(missed=100.0, foreseen=10.0, needless=30.0)
    found = minutes((1.0, 2, [950_000] * 2), (1.0, -1, [950_000] * 2))
    month = 16_384 * 30 * 1_440 / 4
    saved = alarms(found, 0, 900_000).node_hours_saved(costs, as_drawn(2))
    assert saved == pytest.approx(month * (90 - 30))
    assert costs.worth_ppm == 250_000


@pytest.mark.parametrize(("count", "most"), [(0, 2.996), (1, 4.744), (10, 16.962)])
def test_the_upper_bound_of_a_count_is_that_of_the_tables(count: int, most: float) -> None:
    assert poisson_at_most(count) == pytest.approx(most, abs=1e-3)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=12), min_size=1, max_size=4))
def test_alarms_of_many_gpus_at_once_are_those_of_each_by_itself(lives: list[list[int]]) -> None:
    together = alarms(minutes(*[(1.0, -1, own) for own in lives]), 3, 6)
    for at, own in enumerate(lives):
        up, begun = False, 0
        for ppm in own:
            if not up and ppm >= 6:
                up, begun = True, begun + 1
            elif up and 2 * ppm < 6:
                up = False
        assert together.needless[at] == begun


def test_a_bootstrap_draws_gpus_and_not_steps() -> None:
    times = resamples(["rare"] * 5 + ["quiet"] * 15, seed=1, count=30)
    assert times.shape == (31, 20)
    assert (times[0] == 1).all()
    assert (times[:, :5].sum(axis=1) == 5).all()
    assert (times[:, 5:].sum(axis=1) == 15).all()


def test_an_interval_holds_what_was_drawn_and_narrows_with_more_gpus() -> None:
    widths = []
    for count in (10, 160):
        found = minutes(*[(1.0, 3 if at % 2 else -1, [at % 7, 5, 2]) for at in range(count)])
        times = resamples(["any"] * count, seed=1)
        hit = found.positive[0]
        areas = average_precisions(found.ppm[0], hit, found.weights, found.gpus, times)
        value = value_of(areas)
        assert value.low <= value.value <= value.high
        assert value.value == average_precision(found.ppm[0], hit, found.weights)
        widths.append(value.high - value.low)
    assert widths[1] < widths[0] / 2


def test_a_curve_ends_where_everything_is_said() -> None:
    found = minutes((1.0, 2, [9, 8]), (1.0, -1, [7, 1]))
    points = curve(found.ppm[0], found.positive[0], found.weights)
    assert points[0] == [0.5, 1.0]
    assert points[-1] == [1.0, 0.5]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_pooled_rates_rise_and_keep_every_event(pairs: list[tuple[int, int]]) -> None:
    positives = np.array([min(pair) for pair in pairs], float)
    totals = np.array([max(pair) for pair in pairs], float)
    rates = pooled(positives, totals).rates
    assert (np.diff(rates) >= 0).all()
    assert float((rates * totals).sum()) == pytest.approx(positives.sum())


def test_a_few_lives_never_make_a_certainty_however_many_steps_they_have() -> None:
    places, happened = np.repeat([0, 1], 900), np.repeat([False, True], 900)
    lives = np.arange(1_800) // 300
    rates = isotonic(places, happened, np.ones(1_800), lives, 2)
    assert rates.tolist() == [0.0, 0.75]


def test_tables_hold_the_hazard_of_those_at_risk_and_claim_no_certainty_of_health() -> None:
    logits = np.tile(np.repeat([-100, 100], 1_000), (len(HORIZONS_S), 1))
    events = np.zeros(logits.shape, bool)
    events[0, 1_000:1_250] = True
    risk = np.ones(logits.shape, bool)
    risk[1:, 1_000:1_250] = False
    raw = hazard_tables(logits, events, risk, np.ones(2_000), np.arange(2_000))
    tables = np.frombuffer(raw, "<i4").reshape(-1, LOGITS)
    assert tables[0, LOGITS // 2 + 100] == pytest.approx(UNIT / 4 * 250 / 251, rel=1e-6)
    assert tables[0, LOGITS // 2 - 100] == pytest.approx(UNIT * 0.5 / 2_000, rel=1e-3)
    assert (np.diff(tables, axis=1) >= 0).all()
