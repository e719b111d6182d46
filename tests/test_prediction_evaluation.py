"""Promises of the evaluation: nothing leaks between splits, baselines are taken seriously."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from typer.testing import CliRunner

from nemesis.cli.app import app
from nemesis.cli.ecc_words import told_of
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS, probabilities_ppm
from nemesis.processors.ecc_model.network import Network
from nemesis.sim.prediction.alarms import alarms
from nemesis.sim.prediction.baselines import Line, fitted_line, probation, shown, thresholds
from nemesis.sim.prediction.evaluation import Drawing, evaluate
from nemesis.sim.prediction.explain import explained
from nemesis.sim.prediction.figures import as_drawn, average_precision, calibration_error
from nemesis.sim.prediction.judge import Judgement, NoSuchScoreError
from nemesis.sim.prediction.leaks import area, probed
from nemesis.sim.prediction.page import written
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.scored import EVERY_STEPS, Scored, scored
from nemesis.sim.prediction.scorers import Calibrated, of_oracle
from nemesis.sim.prediction.splits import DataSet, draw_set
from nemesis.sim.prediction.windows import features_count, windows
from tests.failure_models import drawn_codes, drawn_model

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
def test_labels_that_were_shuffled_and_names_of_gpus_say_nothing(
    learnt: tuple[DataSet, Scored], unseen: tuple[DataSet, Scored]
) -> None:
    data, found = learnt
    other, elsewhere = unseen
    announced = np.array([kind in ANNOUNCED for kind in other.lives.kinds])[elsewhere.gpus]
    codes, positive = shown(other, elsewhere)[announced], elsewhere.positive[2][announced]
    assert area(fitted_line(data, found, 2).scores(codes), positive) > 0.8
    leaks = probed(data, other)
    assert abs(leaks.shuffled.value - 0.5) < 0.12
    assert abs(leaks.names.value - 0.5) < 0.05
    assert leaks.shared_count == 0


def test_an_area_is_one_half_by_chance_and_where_all_are_equal() -> None:
    positive = np.array([False, True, False, True])
    assert area(np.array([1, 2, 3, 4]), positive) == 0.75
    assert area(np.full(4, 7), positive) == 0.5
    assert area(np.arange(4), np.zeros(4, bool)) == 0.5


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


def test_who_knows_the_end_of_every_failure_from_its_first_sign_on_is_never_wrong(
    unseen: tuple[DataSet, Scored],
) -> None:
    data, _ = unseen
    found = of_oracle(data)
    told = alarms(found, 2, 500_000)
    signs = data.lives.signs >= 0
    assert told.precision(as_drawn(found.gpus_count)) == 1.0
    assert (told.foreseen > 0).any()
    assert not told.foreseen[~signs].any()


def test_ranks_become_chances_that_came_true_where_they_were_fitted(
    learnt: tuple[DataSet, Scored],
) -> None:
    data, _ = learnt
    hot = INPUTS.index("memory_temp_c")
    scorer = Calibrated(lambda other, steps: np.tile(shown(other, steps)[:, hot], (4, 1)), data)
    found = scorer(data)
    assert (np.diff(found.ppm, axis=0) >= 0).all()
    for head in range(4):
        error = calibration_error(found.ppm[head], found.positive[head], found.weights)
        assert error < 0.002


def test_windows_tell_how_often_how_much_and_how_long_ago() -> None:
    codes = np.zeros((600, len(INPUTS), 2), np.int8)
    codes[[500, 590], ROW["dram_ce"], 1] = 8, 16
    found = windows(codes, np.array([1, 0, 1]), np.array([595, 595, 400]))
    assert found.shape == (3, features_count())
    assert not found[1, : features_count() - 36].any()
    ages = found[:, -36:-30]
    assert ages[0].tolist() == [5, 95, 372, 372, 372, 372]
    assert (ages[1:] == 372).all()


@pytest.mark.timeout(300)  # splits are drawn anew
def test_a_split_is_judged_beside_every_baseline_and_the_command_says_so(
    tmp_path: Path,
) -> None:
    short = replace(FULL, life=replace(FULL.life, minutes=40))
    drawing = Drawing(mix="honest", each=1, quiet=2, seed=5, learnt=1)
    steps: list[str] = []
    found = evaluate(MODEL, short, drawing, splits=("devices", "time"), told=steps.append)
    assert steps == [
        "drawing GPUs to calibrate on, 1 of every kind of life",
        "drawing GPUs for baselines to learn from, 1 of every kind of life",
        "fitting the simple baselines",
        "fitting boosted trees",
        "judging on devices, split 1 of 2",
        "judging on time, split 2 of 2",
    ]
    names = ["model", "oracle", "thresholds", "probation", "logistic"]
    absent = {each.scorer for each in found.absent}
    assert absent <= {"gru", "boosting"}
    names += [] if "boosting" in absent else ["boosting"]
    assert [(each.split, each.scorer) for each in found.figures] == [
        (split, name) for split in ("devices", "time") for name in names
    ]
    for each in found.figures:
        assert 0 <= each.pr_auc.low <= each.pr_auc.high <= 1
        assert [told.name for told in each.told][:3] == ["act", "watch", "by cost"]
    assert found.recall_ceiling == FULL.ceiling()
    judgement = Judgement(model_sha256="ab" * 32, card="", evaluation=found)
    lines = list(told_of(judgement))
    assert any("recall of failures is at most" in line for line in lines)
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(names)
    assert not [line for line in lines if re.search(r"\.\d+\.", line)]  # columns that touch
    page = written(judgement)
    assert page.count('<div class="plot"') == 3
    assert "src=" not in page.split("<script>", maxsplit=1)[0]
    path = tmp_path / "model.msgpack"
    path.write_bytes(msgspec.msgpack.encode(MODEL))
    wrong = CliRunner().invoke(app, ["ecc", "evaluate", "--model", str(path), "--mix", "lucky"])
    assert wrong.exit_code == 2
    absent_file = CliRunner().invoke(app, ["ecc", "evaluate", "--model", str(tmp_path / "none")])
    assert absent_file.exit_code == 2


def test_one_score_is_taken_apart_exactly() -> None:
    codes = np.stack(drawn_codes(7, RECEPTIVE_STEPS + 30, 1))[:, :, 0]
    step = RECEPTIVE_STEPS + 20
    found = explained(MODEL, codes, "gpu/n1/0000:01:00.0", step, 2)
    network = Network(MODEL, 1, part_width=1)
    logits: NDArray[np.int16] = np.zeros(0, np.int16)
    for each in codes[: step + 1]:
        logits = network.step(each[:, None])
    chances = probabilities_ppm(MODEL.hazard_table(), logits)
    assert found.chances_ppm == tuple(chances[:, 0].tolist())
    assert {each.name for each in found.minutes} == {str(at) for at in range(31)}
    nothing = explained(MODEL, np.zeros_like(codes), "", step, 2)
    assert not any(each.brought_milli for each in (*nothing.inputs, *nothing.minutes))
    with pytest.raises(ValueError, match="expected 372 to"):
        explained(MODEL, codes, "", 10, 2)


def test_the_command_explains_a_simulated_gpu_and_says_which_kinds_there_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.msgpack"
    path.write_bytes(msgspec.msgpack.encode(MODEL))
    asked = ["ecc", "explain", "--model", str(path), "--mix", "seed"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "without this input" in found.output
    with pytest.raises(NoSuchScoreError, match="there are hbm-ramp, quiet"):
        CliRunner().invoke(app, [*asked, "--kind", "ghost"], catch_exceptions=False)
