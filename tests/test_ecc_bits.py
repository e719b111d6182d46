"""Promises of the whole way from samples to facts: equal bits in any company, on any BLAS."""

import hashlib
import os
import subprocess
import sys

import pytest

from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.fold import Fold
from tests.ecc_log import predictions, stepped
from tests.test_window import DRAWN, NAME, eventful

SEED = 3


def own(files: dict[str, bytes]) -> Fold:
    return Fold(EccModel(files.get))


def digest_of_a_log() -> str:
    """Of everything that is said of a log, and of the state at its end."""
    fold = own({NAME: DRAWN})
    digest = hashlib.sha256()
    for each in stepped(fold, eventful(SEED).records):
        digest.update(each.subject.encode() + each.payload)
    digest.update(fold.snapshot())
    return digest.hexdigest()


def test_neither_threads_nor_the_kind_of_processor_change_what_is_said() -> None:
    here = digest_of_a_log()
    code = "from tests.test_ecc_bits import digest_of_a_log as d; print(d())"
    for setting in (
        {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem", "PYTHONHASHSEED": "1"},
        {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Haswell", "PYTHONHASHSEED": "2"},
    ):
        other = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | setting,
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout.strip() == here, setting


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_what_is_said_of_a_node_is_the_same_when_it_is_alone(node: str) -> None:
    log = eventful(SEED)
    others = [f".{name}." for name in ("n1", "n2", "n3") if name != node]
    alone = [each for each in log.records if not any(name in each.subject for name in others)]
    every = [
        (each.at_ns, each.component, each.band, each.probability_ppm, each.incident)
        for each in predictions(stepped(own({NAME: DRAWN}), log.records))
        if each.component.startswith(f"gpu/{node}/")
    ]
    single = [
        (each.at_ns, each.component, each.band, each.probability_ppm, each.incident)
        for each in predictions(stepped(own({NAME: DRAWN}), alone))
    ]
    assert single == every
    assert len(every) > 2
