"""Data sets of lives: how many of which kind, of which GPUs, and what part of a fleet each is.

Kinds that happen once in a million GPU-days are drawn as often as common ones, or nothing would be
seen of them; each life carries the GPU-days that it stands for, and every figure is weighted by
them. A seed belongs to one split, so a GPU does.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.sim.params import load_params
from nemesis.sim.prediction.lives import Lives, live
from nemesis.sim.prediction.precursors import MILLION, Mix, Precursors
from nemesis.sim.prediction.stories import STEPS_A_MINUTE, draw_story

Floats = NDArray[np.float64]

QUIET: Final = "quiet"
SEEDS_PER_SPLIT: Final = 1 << 20
MINUTES_A_DAY: Final = 1_440


class DataSet(msgspec.Struct, kw_only=True):
    """Lives of one split."""

    split: str
    lives: Lives
    weights: Floats
    """[GPU]: how many lives like it a fleet sees in a million GPU-days."""


def draw_set(
    split: str, precursors: Precursors, *, each: int, quiet: int, seed: int, mix: Mix = "honest"
) -> DataSet:
    """`each` lives of every kind and `quiet` ones in which nothing happens.

    Raises:
        BadPrecursorsError: no such split.
    """
    own = precursors.of(precursors.named(split), mix)
    rates = kinds_of(own, mix)
    plan = [kind for kind in rates for _ in range(each)] + [QUIET] * quiet
    together = _lived(split, precursors, own, plan, seed)
    counts = {kind: together.kinds.count(kind) for kind in set(together.kinds)}
    shares = rates | {QUIET: _quiet_rate(own, rates)}
    weights = np.array([shares[kind] / counts[kind] for kind in together.kinds])
    return DataSet(split=split, lives=together, weights=weights)


def draw_fleet(split: str, precursors: Precursors, *, count: int, seed: int) -> DataSet:
    """So many lives as often as they happen, each of which stands for itself.

    Raises:
        BadPrecursorsError: no such split.
    """
    own = precursors.of(precursors.named(split))
    rates = kinds_of(own, "honest")
    shares = rates | {QUIET: _quiet_rate(own, rates)}
    plan = Random(f"{seed}/fleet").choices([*shares], [*shares.values()], k=count)
    lives = _lived(split, precursors, own, plan, seed)
    return DataSet(split=split, lives=lives, weights=np.ones(count))


def _quiet_rate(precursors: Precursors, rates: Mapping[str, float]) -> float:
    """Lives in a million GPU-days in which nothing happens."""
    return MILLION * MINUTES_A_DAY / precursors.life.minutes - sum(rates.values())


def _lived(
    split: str, precursors: Precursors, own: Precursors, plan: Sequence[str], seed: int
) -> Lives:
    """Lives of these kinds, over the families of a split in turn."""
    assert 0 <= seed < SEEDS_PER_SPLIT
    about = precursors.named(split)
    number = precursors.split.index(about)
    steps = own.life.minutes * STEPS_A_MINUTE
    lives: list[Lives] = []
    for at, family in enumerate(about.families):
        world_seed = (number * SEEDS_PER_SPLIT + seed) * 16 + at
        random = Random(f"{world_seed}/stories")
        stories = [draw_story(kind, own, steps, random) for kind in plan[at :: len(about.families)]]
        lives.append(
            live(
                stories,
                steps=steps,
                model=family,
                params=load_params(),
                seed=world_seed,
                lost_ppm=own.polls.lost_ppm,
                ce_days=about.ce_days,
            )
        )
    return _joined(lives)


def kinds_of(precursors: Precursors, mix: Mix) -> dict[str, float]:
    """Kind to lives in a million GPU-days, without the quiet ones."""
    if mix == "honest":
        return {each.name: each.rate for each in precursors.kind}
    return {"hbm-ramp": sum(each.rate for each in precursors.kind if each.fails)}


def _joined(lives: list[Lives]) -> Lives:
    return Lives(
        codes=np.concatenate([each.codes for each in lives], axis=2),
        fails=np.concatenate([each.fails for each in lives]),
        signs=np.concatenate([each.signs for each in lives]),
        kinds=[kind for each in lives for kind in each.kinds],
        devices=[device for each in lives for device in each.devices],
    )
