"""Promises of the figures that are told: of the shipped model and these parameters, as measured."""

import msgspec

from nemesis.processors.ecc_model.model import load_model
from nemesis.processors.ecc_model.shipped import latest, shipped
from nemesis.sim.prediction.precursors import load_precursors
from nemesis.sim.prediction.splits import QUIET, draw_fleet
from tests.needless_days import SPLITS, Needless
from tests.prediction_table import BEGIN, END, NEEDLESS, ROOT, SEED_MODEL, kept, tables

PRECURSORS = load_precursors()


def test_figures_are_of_the_shipped_model_and_of_the_frozen_parameters() -> None:
    assert [each.model_sha256 for each in kept("honest")] == [latest()]
    for each in (*kept("honest"), *kept("seed")):
        assert each.evaluation.precursors_sha256 == PRECURSORS.sha256
    for each in (*kept("honest"), kept("seed")[0]):
        assert each.leaks is not None
        assert each.leaks.shared_count == 0


def test_needless_moves_were_counted_of_the_shipped_model_on_every_split() -> None:
    found = msgspec.json.decode(NEEDLESS.read_bytes(), type=Needless)
    assert (found.model_sha256, found.precursors_sha256) == (latest(), PRECURSORS.sha256)
    assert tuple(found.counted) == found.splits == SPLITS
    assert all(each.gpu_days > 0 for each in found.counted.values())


def test_the_shipped_model_loads_and_says_what_it_learnt_from() -> None:
    raw = shipped(latest())
    assert raw is not None
    model = load_model(raw)
    assert PRECURSORS.sha256 in model.card
    assert model.shares
    assert load_model(SEED_MODEL.read_bytes()).channels == model.channels


def test_the_document_names_the_shipped_model() -> None:
    assert f'"model": "{latest()}"' in (ROOT / "docs/prediction.md").read_text()


def test_the_document_says_what_was_measured() -> None:
    text = (ROOT / "docs/prediction.md").read_text()
    between = text.split(BEGIN)[1].split(END)[0]
    assert between.strip() == "\n".join(tables()).strip()


def test_a_fleet_is_drawn_as_often_as_things_happen() -> None:
    data = draw_fleet("devices", PRECURSORS, count=150, seed=3)
    assert data.weights.tolist() == [1.0] * 150
    assert data.lives.kinds.count(QUIET) > 130
