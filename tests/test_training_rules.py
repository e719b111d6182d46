"""Rules that ranks keep without asking: when all switch, who takes which samples, which mean."""

import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas.layout import Degrees
from nemesis.training.samples import sample_ids

FORMATS = {
    "bfloat16": (8, -133),
    "float16": (11, -24),
    "float32": (24, -149),
    "float8_e5m2": (3, -16),
}
"""Bits of the significand, and the exponent of the smallest number (IEEE 754, and OCP OFP8)."""


def rounded(value: float, name: str) -> float:
    """The nearest number of a format, ties to even; there is no largest here."""
    bits, smallest = FORMATS[name]
    if value == 0:
        return 0.0
    unit = max(math.frexp(value)[1] - bits, smallest)
    return math.ldexp(round(math.ldexp(value, -unit)), unit)


@pytest.mark.parametrize("name", FORMATS)
@given(
    waiting=st.integers(0, 300),
    averages=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_a_sum_of_300_numbers_is_0_only_where_all_are_in_any_format_average_and_order(
    name: str, waiting: int, averages: bool, seed: int
) -> None:
    scale = 1 / 300 if averages else 1.0
    parts = [rounded(scale * (at < waiting), name) for at in range(300)]
    order = random.Random(seed)
    order.shuffle(parts)
    while len(parts) > 1:  # a ring, a tree, whatever: two partial sums at a time become one
        one, other = (parts.pop(order.randrange(len(parts))) for _ in range(2))
        parts.append(rounded(one + other, name))
    assert (parts[0] == 0) == (waiting == 0)


LENGTH = 60
MEMBERS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=40)
"""Of each step: how many replicas there are, and whether it broke."""


@given(
    steps=MEMBERS,
    batch=st.integers(1, 4),
    degrees=st.sampled_from(
        [
            Degrees(),
            Degrees(tp=2),
            Degrees(cp=2),
            Degrees(pp=2, tp=2),
            Degrees(ep=2),
            Degrees(cp=2, ep=4),
        ]
    ),
)
def test_no_sample_is_left_out_or_used_twice_in_a_pass_whoever_comes_and_goes(
    steps: list[tuple[int, bool]], batch: int, degrees: Degrees
) -> None:
    taken_count = 0
    used: list[int] = []
    for replicas, broke in steps:
        world = replicas * degrees.replica_size
        of_place: dict[int, list[int]] = {}
        parts = degrees.data_place(0, world)[1]
        for rank in range(world):
            place, _ = degrees.data_place(rank, world)
            ids = sample_ids(taken_count, length=LENGTH, batch=batch, position=place, seed=3)
            assert of_place.setdefault(place, ids) == ids  # tensor, context, pipeline: the same
        assert sorted(of_place) == list(range(parts))
        if not broke:
            used.extend(each for place in sorted(of_place) for each in of_place[place])
            taken_count += batch * parts
    for first in range(0, len(used), LENGTH):
        passed = Counter(used[first : first + LENGTH])
        assert set(passed.values()) <= {1}
    assert len(used) == taken_count


@given(
    losses=st.lists(st.lists(st.integers(-50, 50), min_size=3, max_size=3), min_size=1, max_size=6),
    copies=st.integers(1, 3),
)
def test_the_mean_over_members_is_the_mean_over_all_samples_of_the_step(
    losses: list[list[int]], copies: int
) -> None:
    """`losses`: a list of samples' gradients a part; `copies`: ranks with the same samples."""
    of_rank = [Fraction(sum(part), len(part)) for part in losses for _ in range(copies)]
    every = [each for part in losses for each in part]
    assert sum(of_rank) / len(of_rank) == Fraction(sum(every), len(every))
