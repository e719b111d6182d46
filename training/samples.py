"""Which samples a rank takes in a step: a rule that no change of membership breaks.

The job's samples are numbered: number g is the sample at place g % length of the (g // length)th
shuffling of all. A step takes the next numbers, as many from each member as before, in the order of
the members. What a step that broke had taken is taken again by the next, divided among those who
are there; so no sample of a pass is left out, and none is used twice, whoever comes and goes.
"""

from functools import lru_cache
from random import Random


def sample_ids(taken_count: int, *, length: int, batch: int, position: int, seed: int) -> list[int]:
    """The ids, below `length`, of one member's samples in a step: a list, so it indexes a tensor.

    `taken_count`: numbers that earlier steps took; `position`: of the member among the members.
    """
    first = taken_count + position * batch
    return [
        _shuffled(length, seed, number // length)[number % length]
        for number in range(first, first + batch)
    ]


@lru_cache(maxsize=2)
def _shuffled(length: int, seed: int, turn: int) -> list[int]:
    order = list(range(length))
    Random(f"{seed}/{turn}").shuffle(order)  # noqa: S311
    return order
