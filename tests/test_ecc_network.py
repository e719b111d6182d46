"""Promises of the failure model's arithmetic: the same bits in whatever company, on any BLAS."""

import hashlib
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nemesis.processors.ecc_model.inputs import INPUTS, Codes
from nemesis.processors.ecc_model.model import (
    DILATIONS,
    HORIZONS_S,
    RECEPTIVE_STEPS,
    TAPS,
    Layer,
    Model,
    layer_of,
    load_model,
    probabilities_ppm,
)
from nemesis.processors.ecc_model.network import Network
from nemesis.schemas.errors import MalformedFactError
from tests.failure_models import drawn_codes, drawn_model

STATE_BYTES_MAX = 16 * 1024


def echoing_model() -> Model:
    """One channel; every convolution passes on its oldest tap alone, residuals add the newest."""

    def passes(terms: int, at: int, outputs: int = 1) -> Layer:
        weights = np.zeros((outputs, terms), np.int8)
        weights[:, at] = 1
        return layer_of(weights, [0] * outputs, [0] * outputs)

    return msgspec.structs.replace(
        drawn_model(),
        channels=1,
        stem=passes(len(INPUTS), 0),
        convolutions=(passes(TAPS, TAPS - 1),) * (2 * len(DILATIONS)),
        hidden=passes(2, 0),
        logits=passes(1, 0, outputs=len(HORIZONS_S)),
    )


def run(model: Model, codes: list[Codes], **how: int) -> NDArray[np.int16]:
    """[step, horizon, GPU] of a fresh network."""
    network = Network(model, codes[0].shape[1], **how)
    return np.array([network.step(each) for each in codes])


def layer_in_integers(layer: Layer, terms: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a layer means: 64-bit integers and a shift."""
    weights = np.frombuffer(layer.weights, np.int8).astype(np.int64).reshape(layer.outputs, -1)
    biases = np.frombuffer(layer.biases, "<i4").astype(np.int64)
    shifts = np.frombuffer(layer.shifts, np.uint8).astype(np.int64)
    found: NDArray[np.int64] = (weights @ terms + biases) >> shifts
    return found


def in_integers(model: Model, codes: list[Codes]) -> NDArray[np.int64]:
    """The last step's logits of one GPU, with every layer over the whole window."""
    stem = [
        np.clip(layer_in_integers(model.stem, each[:, 0].astype(np.int64)), 0, 255)
        for each in codes
    ]
    now = stem
    for block, dilation in enumerate(DILATIONS):
        before = now
        for half in range(2):
            layer, zeros = model.convolutions[2 * block + half], np.zeros(model.channels, np.int64)
            now = [
                np.clip(
                    layer_in_integers(
                        layer,
                        np.concatenate(
                            [
                                now[at - tap * dilation] if at >= tap * dilation else zeros
                                for tap in range(TAPS)
                            ]
                        ),
                    )
                    + (before[at] if half else 0),
                    0,
                    255,
                )
                for at in range(len(now))
            ]
    ends = np.concatenate([now[-1], stem[-1]])
    hidden = np.clip(layer_in_integers(model.hidden, ends), 0, 255)
    return np.clip(layer_in_integers(model.logits, hidden), -2048, 2047)


def test_a_score_is_what_64_bit_integers_give() -> None:
    model, codes = drawn_model(2), drawn_codes(3, 120, 1)
    logits = run(model, codes, part_width=4)[-1, :, 0]
    assert logits.tolist() == in_integers(model, codes).tolist()
    assert len(set(logits.tolist())) > 1


def test_neither_company_nor_width_changes_a_bit() -> None:
    model, codes = drawn_model(), drawn_codes(4, 40, 70)
    together = run(model, codes, part_width=64)
    for width in (1, 7, 512):
        assert np.array_equal(run(model, codes, part_width=width), together)
    alone = [run(model, [each[:, [at]] for each in codes]) for at in (0, 41, 69)]
    assert np.array_equal(np.concatenate(alone, axis=2), together[:, :, [0, 41, 69]])
    assert len(np.unique(together)) > 20


def digest_of_a_run() -> str:
    """A hash of the scores of so many GPUs that a second thread is worth its while to BLAS."""
    logits = run(drawn_model(5, channels=32), drawn_codes(6, 8, 600))
    return hashlib.sha256(logits.tobytes()).hexdigest()


def test_neither_threads_nor_the_kind_of_processor_change_a_bit() -> None:
    here = digest_of_a_run()
    code = "from tests.test_ecc_network import digest_of_a_run as d; print(d())"
    for setting in (
        {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem"},
        {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Haswell"},
    ):
        other = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | setting,
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout.strip() == here, setting


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**32 - 1),
    past=st.integers(0, 60),
    after=st.integers(0, 40),
)
def test_what_the_last_372_steps_say_is_all_that_is_remembered(
    seed: int, past: int, after: int
) -> None:
    model = drawn_model(seed)
    codes = drawn_codes(seed, past + RECEPTIVE_STEPS + after, 2)
    kept, rebuilt = (Network(model, 2, part_width=2) for _ in range(2))
    for each in codes[: past + RECEPTIVE_STEPS]:
        kept.step(each)
    for each in codes[past : past + RECEPTIVE_STEPS]:
        rebuilt.step(each)
    assert [kept.state(at) for at in (0, 1)] == [rebuilt.state(at) for at in (0, 1)]
    for each in codes[past + RECEPTIVE_STEPS :]:
        assert np.array_equal(kept.step(each), rebuilt.step(each))


def test_a_score_hears_what_was_shown_372_steps_ago_and_nothing_earlier() -> None:
    network = Network(echoing_model(), 1, part_width=1)
    shown = np.zeros((len(INPUTS), 1), np.int8)
    shown[0] = 100
    network.step(shown)
    heard = [network.step(shown * 0)[0, 0] for _ in range(RECEPTIVE_STEPS + 5)]
    assert heard[RECEPTIVE_STEPS - 1] == 100
    assert not any(heard[RECEPTIVE_STEPS:])
    assert set(network.state(0)) == {0}


def test_a_gpu_in_anothers_place_begins_as_a_new_one() -> None:
    model, codes = drawn_model(), drawn_codes(9, 30, 3)
    network = Network(model, 3, part_width=2)
    for each in codes[:20]:
        network.step(each)
    network.forget(np.array([1]))
    after = np.array([network.step(each) for each in codes[20:]])
    fresh = run(model, codes[20:], part_width=2)
    untouched = run(model, codes, part_width=2)[20:]
    assert np.array_equal(after[:, :, 1], fresh[:, :, 1])
    assert np.array_equal(after[:, :, [0, 2]], untouched[:, :, [0, 2]])


def test_more_gpus_leave_those_that_were_there_as_they_are() -> None:
    model, codes = drawn_model(), drawn_codes(10, 30, 5)
    network = Network(model, 2, part_width=2)
    for each in codes[:12]:
        network.step(each[:, :2])
    network.grow(5)
    after = np.array([network.step(each) for each in codes[12:]])
    assert np.array_equal(after[:, :, :2], run(model, codes)[12:, :, :2])
    assert np.array_equal(after[:, :, 2:], run(model, codes[12:])[:, :, 2:])


def test_the_shipped_size_remembers_less_than_16_kib_of_a_gpu() -> None:
    network = Network(drawn_model(channels=32), 1, part_width=1)
    assert len(network.state(0)) == network.state_bytes <= STATE_BYTES_MAX


def test_the_chance_of_failing_never_falls_with_the_horizon() -> None:
    model = drawn_model(11)
    logits = run(model, drawn_codes(12, 50, 40))
    for each in logits:
        found = probabilities_ppm(model.hazard_table(), each)
        assert (np.diff(found, axis=0) >= 0).all()
        assert found.min() >= 0
        assert found.max() <= 1_000_000


def test_a_model_comes_back_from_its_file_and_one_that_could_round_is_refused() -> None:
    model = drawn_model(channels=32)
    assert load_model(msgspec.msgpack.encode(model)) == model
    first, *rest = model.convolutions
    biases = np.frombuffer(first.biases, "<i4") + (1 << 24)
    loud = msgspec.structs.replace(first, biases=biases.astype("<i4").tobytes())
    with pytest.raises(MalformedFactError, match=r"convolution 0: sums up to .*: expected less"):
        load_model(
            msgspec.msgpack.encode(msgspec.structs.replace(model, convolutions=(loud, *rest)))
        )
    for wrong in (
        {"inputs": ("dram_ce",)},
        {"convolutions": model.convolutions[:3]},
        {"stem": msgspec.structs.replace(model.stem, weights=b"")},
        {"hazards": model.hazards[::-1]},
    ):
        with pytest.raises(MalformedFactError, match="failure model of"):
            load_model(msgspec.msgpack.encode(msgspec.structs.replace(model, **wrong)))
    with pytest.raises(MalformedFactError, match="failure model of 3 bytes"):
        load_model(b"\xff\x00\x01")
