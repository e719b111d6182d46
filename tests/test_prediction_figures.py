"""Promises of how predictions are judged: weighted to a fleet, by alarms, never flattered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, UNIT
from nemesis.sim.prediction.calibrate import hazard_tables, isotonic
from nemesis.sim.prediction.figures import (
    alarms,
    average_precision,
    best_threshold,
    calibration_error,
    f1_at,
    resampled,
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
        logits=np.zeros((len(HORIZONS_S), len(gpus)), np.int16),
        ppm=np.array([ppm] * len(HORIZONS_S)),
    )


def told(found: Scored, threshold_ppm: int = 900_000, head: int = 0) -> dict[str, float]:
    counted = alarms(found, head, threshold_ppm, found.weights)
    names = ("foreseen", "failures", "right", "needless")
    return {name: getattr(counted, name) for name in names}


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
    scores, hit = np.array([9, 8, 7, 1]), np.array([True, True, False, False])
    assert best_threshold(scores, hit, np.ones(4)) == 8
    assert f1_at(8, scores, hit, np.ones(4)) == 1.0
    assert f1_at(7, scores, hit, np.ones(4)) == pytest.approx(0.8)
    assert f1_at(10, scores, hit, np.ones(4)) == 0.0


def test_a_chance_that_means_what_it_says_has_no_calibration_error() -> None:
    ppm = np.repeat([100_000, 500_000], 1_000)
    hit = np.concatenate([np.arange(1_000) < 100, np.arange(1_000) < 500])
    assert calibration_error(ppm, hit, np.ones(2_000)) == pytest.approx(0.0)
    assert calibration_error(ppm, np.zeros(2_000, bool), np.ones(2_000)) == pytest.approx(0.3)


def test_an_alarm_before_the_failure_is_right_and_foresees_it_once() -> None:
    found = minutes((2.0, 5, [0, 950_000, 960_000, 990_000, 990_000]))
    assert told(found) == {"foreseen": 2.0, "failures": 2.0, "right": 2.0, "needless": 0.0}
    assert alarms(found, 0, 900_000, found.weights).leads_steps == [4 * EVERY_STEPS]


def test_an_alarm_stays_up_until_half_of_its_threshold() -> None:
    wavering = minutes((1.0, -1, [950_000, 500_000, 950_000, 400_000, 950_000]))
    assert told(wavering)["needless"] == 2.0


def test_an_alarm_that_went_down_again_or_came_too_early_foresaw_nothing() -> None:
    down = minutes((1.0, 4, [950_000, 100, 100, 100]))
    assert told(down) == {"foreseen": 0.0, "failures": 1.0, "right": 1.0, "needless": 0.0}
    early = minutes((1.0, 200, [950_000] * 200))
    assert told(early) == {"foreseen": 0.0, "failures": 1.0, "right": 0.0, "needless": 1.0}


def test_needless_alarms_count_by_what_a_life_stands_for() -> None:
    found = minutes((1.0, 2, [950_000, 950_000]), (3_000.0, -1, [950_000, 0]))
    counted = alarms(found, 0, 900_000, found.weights)
    assert counted.precision == pytest.approx(1 / 3_001)
    assert counted.recall == 1.0


def test_a_bootstrap_draws_gpus_and_not_steps() -> None:
    found = minutes(*[(1.0, -1, [1, 2, 3])] * 20)
    drawn = resampled(found, np.random.default_rng(1)).reshape(20, 3)
    assert drawn.sum() == 60
    assert (drawn == drawn[:, :1]).all()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_pooled_rates_rise_and_keep_every_event(pairs: list[tuple[int, int]]) -> None:
    positives = np.array([min(pair) for pair in pairs], float)
    totals = np.array([max(pair) for pair in pairs], float)
    rates = isotonic(positives, totals)
    assert (np.diff(rates) >= 0).all()
    assert float((rates * totals).sum()) == pytest.approx(positives.sum())


def test_tables_hold_the_hazard_of_those_at_risk_and_claim_no_certainty_of_health() -> None:
    logits = np.tile(np.repeat([-100, 100], 1_000), (len(HORIZONS_S), 1))
    events = np.zeros(logits.shape, bool)
    events[0, 1_000:1_250] = True
    risk = np.ones(logits.shape, bool)
    risk[1:, 1_000:1_250] = False
    raw = hazard_tables(logits, events, risk, np.ones(2_000))
    tables = np.frombuffer(raw, "<i4").reshape(-1, LOGITS)
    assert tables[0, LOGITS // 2 + 100] == pytest.approx(UNIT / 4, rel=1e-6)
    assert tables[0, LOGITS // 2 - 100] == pytest.approx(UNIT * 0.5 / 2_000, rel=1e-3)
    assert (np.diff(tables, axis=1) >= 0).all()
