"""Promises of training: what was learnt is frozen bit for bit, and an interrupted run goes on."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from nemesis.processors.ecc_model.model import (
    HORIZONS_S,
    RECEPTIVE_STEPS,
    load_model,
    probabilities_ppm,
)
from nemesis.processors.ecc_model.network import Network
from nemesis.sim.prediction.float_network import SPARSE_STEPS, FloatNetwork, NoTorchError
from nemesis.sim.prediction.precursors import Precursors, load_precursors
from nemesis.sim.prediction.splits import draw_set
from nemesis.sim.prediction.train import (
    CARD,
    MODEL,
    STATE,
    Card,
    NoCardError,
    calibrate,
    train,
)
from nemesis.sim.prediction.training import Plan, Trainer, calibrated, frozen
from tests.failure_models import drawn_codes, drawn_model

pytestmark = pytest.mark.torch
PLAN = Plan(channels=4, batches=4, exact_from=2, batch=2, judge_every=2, judged=12)


def short() -> Precursors:
    """Lives that are just long enough to be cut."""
    found = load_precursors()
    return replace(found, life=replace(found.life, minutes=60))


def test_without_torch_training_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(NoTorchError, match="torch, which is not installed"):
        FloatNetwork(4, 1)


def test_the_frozen_network_gives_the_bits_of_torch() -> None:
    torch = pytest.importorskip("torch")
    network = FloatNetwork(8, 3)
    network.exact = True
    for each in network.biases.values():
        torch.nn.init.normal_(each, 0.2, 0.3)
    data = draw_set("calibration", short(), each=1, quiet=1, seed=0)
    model = calibrated(frozen(network, data, data_sha256="", card=""), data)
    codes = drawn_codes(5, RECEPTIVE_STEPS + 20, 3)
    ours = Network(model, 3)
    scores = np.array([ours.step(each) for each in codes])[RECEPTIVE_STEPS:]
    with torch.no_grad():
        theirs = network.logit_codes(torch.from_numpy(np.stack(codes, axis=-1).transpose(1, 0, 2)))
    assert np.array_equal(scores, theirs.numpy()[:, :, RECEPTIVE_STEPS:].transpose(2, 1, 0))
    assert len(np.unique(scores)) > 20
    ppm = probabilities_ppm(model.hazard_table(), scores[0])
    assert ppm.shape == (len(HORIZONS_S), 3)


def test_what_is_judged_while_learning_is_what_every_step_gives() -> None:
    torch = pytest.importorskip("torch")
    network = FloatNetwork(4, 2)
    network.exact = True
    codes = torch.from_numpy(np.stack(drawn_codes(3, RECEPTIVE_STEPS + 50, 2), axis=-1))
    codes = codes.transpose(0, 1)
    every = network.forward(codes)[:, :, RECEPTIVE_STEPS::SPARSE_STEPS]
    assert every.shape[2] == 4
    assert every.tolist() == network.sparse(codes).tolist()


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    precursors = short()
    data, judge = (draw_set("train", precursors, each=2, quiet=2, seed=seed) for seed in (0, 1))
    whole = Trainer(PLAN, data, judge, precursors)
    whole.run(lambda _: None)
    first = Trainer(PLAN, data, judge, precursors)
    with pytest.raises(KeyboardInterrupt):
        first.run(_interrupt, tmp_path / STATE)
    assert first.batch == 2
    rest = Trainer(PLAN, data, judge, precursors)
    rest.take_up(tmp_path / STATE)
    rest.run(lambda _: None)
    assert [(each.batch, each.loss) for each in rest.history] == [
        (each.batch, each.loss) for each in whole.history
    ]
    for ours, theirs in zip(rest.network.parameters(), whole.network.parameters(), strict=True):
        assert ours.tolist() == theirs.tolist()


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_training_leaves_a_model_and_a_card_that_says_how_it_was_made(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said: list[str] = []
    _, card = train(tmp_path, PLAN, short(), mix="seed", each=2, quiet=2, told=said.append)
    raw = (tmp_path / MODEL).read_bytes()
    model = load_model(raw)
    assert msgspec.json.decode(model.card)["precursors_sha256"] == load_precursors().sha256
    assert card.loss < 10
    assert (
        "not trained on, and not measured on, any real telemetry" in (tmp_path / CARD).read_text()
    )
    assert any(line.startswith("batch 4") for line in said)


def test_chances_are_fitted_anew_under_another_name_and_the_weights_stay(tmp_path: Path) -> None:
    card = Card(
        mix="honest",
        plan=PLAN,
        each_count=1,
        quiet_count=1,
        batches=4,
        loss=0.5,
        history=(),
        torch="",
        precursors_sha256="",
        params_sha256="",
    )
    before = replace(drawn_model(channels=4), card=msgspec.json.encode(card).decode())
    found, renewed = calibrate(before, tmp_path, short(), each=2, quiet=6, told=lambda _: None)
    assert load_model((tmp_path / MODEL).read_bytes()) == found
    assert found.hazards != before.hazards
    assert replace(found, hazards=before.hazards, card=before.card) == before
    assert renewed == replace(card, calibrated_each_count=2, calibrated_quiet_count=6)
    assert "chances fitted to 2 other lives of every kind" in (tmp_path / CARD).read_text()
    with pytest.raises(NoCardError, match="no card of `nemesis ecc train`"):
        calibrate(drawn_model(), tmp_path, short(), each=1, quiet=1, told=lambda _: None)
