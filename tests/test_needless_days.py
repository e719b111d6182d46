"""Promises of the count of GPUs that would be taken out for nothing."""

import numpy as np

from nemesis.processors.ecc_model.bands import BANDS
from nemesis.processors.ecc_model.inputs import INPUTS, Codes
from nemesis.processors.ecc_model.model import (
    HORIZONS_S,
    LOGITS,
    RECEPTIVE_STEPS,
    load_model,
    probabilities_ppm,
)
from nemesis.processors.ecc_model.shipped import latest, shipped
from nemesis.sim.prediction.lives import Lives
from nemesis.sim.prediction.splits import DataSet
from tests.failure_models import drawn_model, watching_model
from tests.needless_days import DAYS_A_STEP, TIERS, Counted, counted, most_ppm

STEPS = RECEPTIVE_STEPS + 40
WATCHED = INPUTS.index("memory_temp_c")
LIKELY = 12
"""A code of which `watching_model` makes 9 %."""


def fleet(*lives: tuple[list[int], int]) -> DataSet:
    """GPUs of (codes after the first half hour, the step after it in which it fails, -1 never)."""
    codes: Codes = np.zeros((STEPS, len(INPUTS), len(lives)), np.int8)
    for at, (shown, _) in enumerate(lives):
        codes[RECEPTIVE_STEPS : RECEPTIVE_STEPS + len(shown), WATCHED, at] = shown
    fails = np.array([step if step < 0 else RECEPTIVE_STEPS + step for _, step in lives])
    none, names = np.zeros(len(lives), np.int64), [""] * len(lives)
    found = Lives(codes=codes, fails=fails, signs=none, corrected=none, kinds=names, devices=names)
    return DataSet(split="devices", lives=found, weights=np.ones(len(lives)))


def told_of(*lives: tuple[list[int], int]) -> Counted:
    return counted(watching_model("memory_temp_c"), fleet(*lives))


def test_a_gpu_that_fails_within_the_horizon_was_rightly_told_of_and_another_was_not() -> None:
    found = told_of(([0, LIKELY], 20), ([0, LIKELY], -1), ([0], -1))
    assert (found.told["by cost"], found.needless["by cost"]) == (2, 1)
    assert found.told["act"] == found.told["watch"] == 0
    assert found.gpu_days == (20 + 40 + 40) * DAYS_A_STEP


def test_a_chance_that_swings_counts_once_because_the_gpu_was_moved_away() -> None:
    found = told_of(([LIKELY, 0] * 10, -1))
    assert found.needless["by cost"] == 1


def test_what_was_shown_before_anything_may_be_said_counts_nothing() -> None:
    data = fleet(([], -1))
    data.lives.codes[:RECEPTIVE_STEPS, WATCHED] = 127
    assert not any(counted(watching_model("memory_temp_c"), data).told.values())


def test_no_input_can_make_a_chance_exceed_the_highest_of_its_model() -> None:
    random = np.random.default_rng(1)
    for seed in range(1, 5):
        model = drawn_model(seed)
        logits = random.integers(-LOGITS // 2, LOGITS // 2, (len(HORIZONS_S), 400)).astype(np.int16)
        given = probabilities_ppm(model.hazard_table(), logits).max(axis=1)
        assert (given <= most_ppm(model)).all()
        assert (np.diff(most_ppm(model)) >= 0).all()


def test_the_shipped_model_can_ask_for_no_shrink_whatever_it_is_shown() -> None:
    raw = shipped(latest())
    assert raw is not None
    act = BANDS[TIERS["act"]]
    assert act.name == "act"
    assert most_ppm(load_model(raw))[act.head] < act.at_ppm
