"""The hook costs a training job little: what its import pulls in, and how samples are numbered."""

import subprocess
import sys
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.training.samples import sample_ids

HEAVY = ("torch", "numpy", "polars", "nats", "networkx", "rich", "typer")


@pytest.mark.parametrize("module", ["nemesis", "nemesis.training.attach"])
def test_the_hook_imports_nothing_heavy(module: str) -> None:
    code = f"import {module}, sys; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@given(
    length=st.integers(1, 200),
    batch=st.integers(1, 8),
    worlds=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    seed=st.integers(0, 3),
)
def test_no_sample_of_a_pass_is_left_out_or_taken_twice_whoever_comes_and_goes(
    length: int, batch: int, worlds: list[int], seed: int
) -> None:
    taken: list[int] = []
    for world in worlds:
        step = [
            sample_ids(len(taken), length=length, batch=batch, position=position, seed=seed)
            for position in range(world)
        ]
        taken += chain.from_iterable(step)
    for first in range(0, len(taken) - length + 1, length):
        assert sorted(taken[first : first + length]) == list(range(length))
    rest = taken[len(taken) // length * length :]
    assert len(rest) == len(set(rest))


def test_a_step_that_broke_is_done_again_with_the_same_samples_divided_among_fewer() -> None:
    four = [sample_ids(80, length=100, batch=3, position=at, seed=1) for at in range(4)]
    three = [sample_ids(80, length=100, batch=4, position=at, seed=1) for at in range(3)]
    assert list(chain.from_iterable(four)) == list(chain.from_iterable(three))
