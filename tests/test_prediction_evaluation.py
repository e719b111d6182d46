"""Promises of the evaluation: nothing leaks between splits, baselines are taken seriously."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from typer.testing import CliRunner

from nemesis.cli.app import app
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS
from nemesis.sim.prediction.baselines import Line, fitted_line, probation, shown, thresholds
from nemesis.sim.prediction.evaluation import evaluate
from nemesis.sim.prediction.figures import average_precision
from nemesis.sim.prediction.labels import within
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored, scored
from nemesis.sim.prediction.splits import DataSet, draw_set
from tests.failure_models import drawn_model

ROW = {name: at for at, name in enumerate(INPUTS)}
FULL = load_precursors()
SHORT = replace(FULL, life=replace(FULL.life, minutes=60))
MODEL = drawn_model(channels=2)
ANNOUNCED = {"hbm-ramp", "bus-replays", "thermal-failure", "quiet"}


def drawn(split: str, each: int = 30) -> tuple[DataSet, Scored]:
    data = draw_set(split, SHORT, each=each, quiet=each, seed=3)
    return data, scored(MODEL, data)


@pytest.fixture(scope="module")
def learnt() -> tuple[DataSet, Scored]:
    return drawn("train")


@pytest.fixture(scope="module")
def unseen() -> tuple[DataSet, Scored]:
    return drawn("devices")


def area(scores: NDArray[np.int64], positive: NDArray[np.bool_]) -> float:
    """How often a positive is above a negative; 0.5 is chance."""
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count - 1) / 2) / (count * (~positive).sum()))


def test_only_steps_of_gpus_that_are_up_and_warm_are_scored(
    learnt: tuple[DataSet, Scored],
) -> None:
    data, found = learnt
    assert found.steps.min() >= RECEPTIVE_STEPS
    assert (found.steps % EVERY_STEPS == 0).all()
    fails = data.lives.fails[found.gpus]
    assert ((fails < 0) | (found.steps < fails)).all()
    assert (found.until > 0).all()


@pytest.mark.timeout(300)
def test_a_line_that_learnt_shuffled_labels_is_at_chance_on_other_gpus(
    learnt: tuple[DataSet, Scored], unseen: tuple[DataSet, Scored]
) -> None:
    data, found = learnt
    other, elsewhere = unseen
    announced = np.array([kind in ANNOUNCED for kind in other.lives.kinds])[elsewhere.gpus]
    codes, positive = shown(other, elsewhere)[announced], within(elsewhere.until)[2][announced]
    assert area(fitted_line(data, found, 2).scores(codes), positive) > 0.8
    fails = (data.lives.fails >= 0) & np.isin(np.arange(len(data.weights)), found.gpus)
    areas = []
    for seed in range(8):
        shuffled = np.random.default_rng(seed).permutation(fails)[found.gpus]
        line = Line(shown(data, found), shuffled, found.weights)
        areas.append(area(line.scores(codes), positive))
    assert abs(float(np.mean(areas)) - 0.5) < 0.12


def test_who_a_gpu_is_says_nothing_of_whether_it_fails(unseen: tuple[DataSet, Scored]) -> None:
    _, found = unseen
    positive = within(found.until)[2]
    areas = []
    for seed in range(40):
        marks = np.random.default_rng(seed).permutation(int(found.gpus.max()) + 1)
        areas.append(area(marks[found.gpus], positive))
    assert abs(float(np.mean(areas)) - 0.5) < 0.05


def test_the_baselines_speak_of_what_they_are_named_after() -> None:
    codes = np.zeros((5, len(INPUTS)), np.int64)
    codes[1, ROW["ue_recency"]] = 40
    codes[2, [ROW["spare_rows_low"], ROW["remaps_week"]]] = 8
    codes[3, ROW["remap_failed"]] = 64
    codes[4, ROW["remap_pending"]] = 64
    assert thresholds(codes).tolist() == [0, 1, 2, 3, 1]
    assert probation(codes).tolist() == [0, 40, 0, 0, 0]


def test_a_line_finds_what_separates(learnt: tuple[DataSet, Scored]) -> None:
    data, found = learnt
    codes = shown(data, found)
    hot = codes[:, ROW["memory_temp_c"]] > 20
    line = Line(codes, hot, np.ones(len(hot)))
    assert average_precision(line.scores(codes), hot, np.ones(len(hot))) > 0.95


@pytest.mark.timeout(300)  # six splits are drawn anew
def test_every_split_is_judged_beside_every_baseline_and_the_command_says_so(
    tmp_path: Path,
) -> None:
    short = replace(FULL, life=replace(FULL.life, minutes=40))
    found = evaluate(MODEL, short, mix="honest", each=1, quiet=2, seed=5)
    assert [each.split for each in found.figures[::4]] == [
        "devices",
        "topologies",
        "parameters",
        "time",
    ]
    assert [each.scorer for each in found.figures[:4]] == [
        "model",
        "thresholds",
        "probation",
        "logistic",
    ]
    for each in found.figures:
        low, high = each.pr_auc_interval
        assert 0 <= low <= high <= 1
    assert found.recall_ceiling == FULL.ceiling()
    path = tmp_path / "model.msgpack"
    path.write_bytes(msgspec.msgpack.encode(MODEL))
    wrong = CliRunner().invoke(app, ["ecc", "evaluate", str(path), "--mix", "lucky"])
    assert wrong.exit_code == 2
    absent = CliRunner().invoke(app, ["ecc", "evaluate", str(tmp_path / "none")])
    assert absent.exit_code == 2
    assert json.loads(msgspec.json.encode(found))["mix"] == "honest"
