"""Promises of the faster engine: numpy's bits, or none at all; without torch they are skipped."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from nemesis.cli.models import catalogue
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.model import ACTIVATION_MAX, EXACT_BELOW, Layer, Model, layer_of
from nemesis.processors.ecc_model.network import Network
from nemesis.processors.fold import Fold
from nemesis.streams.torch_network import EngineError, TorchNetwork, integer_torch
from tests.ecc_log import stepped
from tests.failure_models import drawn_codes, drawn_model
from tests.test_window import DRAWN, NAME, eventful

pytestmark = pytest.mark.torch
MANY = 100_000


def extreme(model: Model) -> Model:
    """Its first convolutions sum as much as can be carried, of either sign."""

    def layer(weight: int, bias: int) -> Layer:
        terms = model.convolutions[0].terms
        weights = np.full((model.channels, terms), weight, np.int8)
        return layer_of(weights, [bias] * model.channels, [14] * model.channels)

    most = EXACT_BELOW - 1 - (ACTIVATION_MAX << 14)
    room = most - 127 * ACTIVATION_MAX * model.convolutions[0].terms
    first = (layer(127, room), layer(-127, -room))
    return Model(
        **{
            name: getattr(model, name) for name in Model.__struct_fields__ if name != "convolutions"
        },
        convolutions=(*first, *model.convolutions[2:]),
    )


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="no torch: pip install 'nemesis-gpu[train]'")


@pytest.mark.parametrize(
    ("count", "steps", "threads", "worst"),
    [(1, 120, 1, False), (1, 3, 2, True), (MANY, 1, 1, True), (MANY, 1, 2, False)],
)
def test_torch_gives_the_bits_of_numpy(
    torch: Any, count: int, steps: int, threads: int, worst: bool
) -> None:
    drawn = drawn_model(5, channels=32)
    model = extreme(drawn) if worst else drawn
    ours, theirs = Network(model, count), TorchNetwork(model, count)
    torch.set_num_threads(threads)
    for codes in drawn_codes(7, steps, count):
        assert np.array_equal(ours.step(codes), theirs.step(codes))
    for column in {0, count - 1}:
        assert ours.state(column) == theirs.state(column)


def test_what_is_said_of_a_log_and_the_state_after_it_do_not_tell_which_engine_it_was(
    torch: Any,
) -> None:
    records = eventful(3).records
    folds = [Fold(EccModel({NAME: DRAWN}.get, each)) for each in (Network, TorchNetwork)]
    ours, theirs = [stepped(each, records) for each in folds]
    assert ours == theirs
    assert len(ours) > 2
    assert folds[0].snapshot() == folds[1].snapshot()


def test_a_processor_that_rounds_sums_of_bytes_is_refused(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = torch._int_mm

    def saturating(left: Any, right: Any) -> Any:
        """As AVX2 without VNNI adds two products in sixteen bits."""
        return product(left, right).clamp(-(1 << 21), (1 << 21) - 1)

    monkeypatch.setattr(torch, "_int_mm", saturating)
    with pytest.raises(EngineError, match="rounds products of bytes here"):
        integer_torch()
    monkeypatch.delattr(torch, "_int_mm")
    with pytest.raises(EngineError, match="has no product of bytes"):
        integer_torch()


def test_an_engine_that_cannot_be_had_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMESIS_ENGINE", "torch")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineError, match="the engine torch is not installed"):
        catalogue()["ecc_model"][1]()
    ran = subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "activate", "ecc_model", "--reason", "test"],
        env=os.environ | {"NEMESIS_ENGINE": "abacus"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "NEMESIS_ENGINE=abacus: no such engine" in ran.stderr
    assert "Traceback" not in ran.stderr
