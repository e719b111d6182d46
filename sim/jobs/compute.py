"""How long ranks compute in a step: a little differently each, longer where something slows them.

Pure: equal seeds give equal times, whoever asks and in whatever order.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from nemesis.sim.jobs.layout import Ranks

JITTER_PER_MILLE: Final = 40  # as sim/params.toml, [steps]
UNEVEN_PER_MILLE: Final = (700, 1_300)  # of what a host takes: more of one rank than of another
STEPS_CACHED: Final = 4
PlacesOf = Callable[[str], Iterable[tuple[int, int]]]
"""The ranks on a node: their numbers and GPU indices."""


class ComputeTimes:
    """Of one job."""

    def __init__(self, step_ns: int, world: int, key: int, *, jitter_per_mille: int) -> None:
        """`jitter_per_mille`: a healthy rank's step takes up to so much longer, evenly."""
        self._jitter_per_mille: Final = jitter_per_mille
        self._step_ns: Final = step_ns
        self._world: Final = world
        self._key: Final = key
        self._slow: Final[dict[tuple[str, int], int]] = {}
        """Per mille of a place: GPU `index` of a node, or -1 for all of it, unevenly."""
        self._delays: Final[dict[int, tuple[int, str]]] = {}
        self._draw: Final = lru_cache(STEPS_CACHED)(self._draw_step)

    def slow(self, node: str, index: int, per_mille: int) -> None:
        """Compute at a place takes this much longer, by index or, -1, on all of the node."""
        self._slow[node, index] = per_mille

    def delay(self, rank: int, delay_ns: int, waits_for: str) -> None:
        """The next step of a rank takes so much longer, once."""
        self._delays[rank] = delay_ns, waits_for

    def delays_of(self, ranks: Ranks) -> list[tuple[int, int, str]]:
        """Take the delays of ranks that begin a step: (rank, how long, for what)."""
        due = self._delays.keys() & set(ranks.tolist()) if self._delays else set()
        return [(rank, *self._delays.pop(rank)) for rank in sorted(due)]

    def of(self, ranks: Ranks, steps: Ranks, on_node: PlacesOf) -> Ranks:
        """How long these ranks compute in the step after the one that they stand at.

        `steps`: where every rank of the job stands.
        """
        per_mille = self._per_mille(steps, on_node)
        times_ns: Ranks = (self._step_ns * (1000 + per_mille) // 1000)[ranks]
        return times_ns

    def _per_mille(self, steps: Ranks, on_node: PlacesOf) -> Ranks:
        """Of all ranks, each by its own step."""
        spread = self._drawn("spread", steps, (0, self._jitter_per_mille))
        if not any(self._slow.values()):
            return spread
        uneven = self._drawn("uneven", steps, UNEVEN_PER_MILLE)
        for (node, index), slow in self._slow.items():
            for rank, at in on_node(node):
                if index == -1:
                    spread[rank] += slow * uneven[rank] // 1000
                elif index == at:
                    spread[rank] += slow
        return spread

    def _drawn(self, what: str, steps: Ranks, bounds: tuple[int, int]) -> Ranks:
        """A draw for every rank, by its step and by what is drawn."""
        first = int(steps[0])
        drawn = self._draw(what, first, bounds).copy()
        if not (steps == first).all():
            for step in np.unique(steps).tolist():
                there = steps == step
                drawn[there] = self._draw(what, step, bounds)[there]
        return drawn

    def _draw_step(self, what: str, step: int, bounds: tuple[int, int]) -> Ranks:
        key = np.array([self._key, step << 8 | (what == "uneven")], "u8")
        random = np.random.Generator(np.random.Philox(key=key))
        return random.integers(*bounds, self._world)
