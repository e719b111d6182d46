"""Data sets of lives: how many of which kind, of which GPUs, and what part of a fleet each is.

Kinds that happen once in a million GPU-days are drawn as often as common ones, or nothing would be
seen of them; each life carries the GPU-days that it stands for, and every figure is weighted by
them. So are the corrected errors of GPUs in which nothing else happens: in six hours one of ninety
counts one, and they outnumber the GPUs that fail with a sign by a thousand, so a few hundred lives
would hold either none of them or one that stands for far too many. A seed belongs to one split, so
a GPU does.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import product
from random import Random
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.sim.params import load_params
from nemesis.sim.prediction.lives import Lives, live
from nemesis.sim.prediction.precursors import MILLION, Mix, Precursors
from nemesis.sim.prediction.stories import STEPS_A_DAY, STEPS_A_MINUTE, draw_story
from nemesis.sim.telemetry.draws import Ints

Floats = NDArray[np.float64]

QUIET: Final = "quiet"
SEEDS_PER_SPLIT: Final = 1 << 20
SEED_STEPS: Final = 16
"""Between two seeds: a split has fewer families than half of that."""
LEARNT: Final = "train"
COMMON_RATE: Final = 1_000.0
"""Lives in a million GPU-days; what is more common than all that fails."""
CE_DAYS_DRAWN: Final = 1
"""Between the corrected errors of common kinds, as they are drawn to be judged by."""
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
    about = precursors.named(split)
    own = precursors.of(about, mix)
    rates = kinds_of(own, mix)
    shares = rates | {QUIET: _quiet_rate(own, rates)}
    judged = mix == "honest" and split != LEARNT
    common = frozenset(kind for kind, rate in shares.items() if judged and rate > COMMON_RATE)
    plan = [kind for kind in rates for _ in range(each)] + [QUIET] * quiet
    together = _lived(split, precursors, own, plan, seed=seed, noisy=common)
    likely = likelihoods(
        together.corrected, len(together.codes), about.ce_days or load_params().gpu_noise.ce_days
    )
    weights = np.zeros(len(together.kinds))
    for kind in dict.fromkeys(together.kinds):
        which = np.array([each == kind for each in together.kinds])
        parts = likely[which] if kind in common else np.ones(int(which.sum()))
        weights[which] = shares[kind] * parts / parts.sum()
    return DataSet(split=split, lives=together, weights=weights)


def likelihoods(corrected: Ints, steps: int, ce_days: int) -> Floats:
    """How much likelier lives with so many corrected errors are than they were drawn.

    `corrected` [GPU], of as many steps; `ce_days` between two of a GPU, CE_DAYS_DRAWN as drawn.
    """
    usual, drawn = (1 / (STEPS_A_DAY * days) for days in (ce_days, CE_DAYS_DRAWN))
    without = steps - 1 - corrected  # nothing happens in the first step
    found: Floats = (usual / drawn) ** corrected * ((1 - usual) / (1 - drawn)) ** without
    return found


def draw_fleet(split: str, precursors: Precursors, *, count: int, seed: int) -> DataSet:
    """So many lives as often as they happen, each of which stands for itself.

    Raises:
        BadPrecursorsError: no such split.
    """
    own = precursors.of(precursors.named(split))
    rates = kinds_of(own, "honest")
    shares = rates | {QUIET: _quiet_rate(own, rates)}
    plan = Random(f"{seed}/fleet").choices([*shares], [*shares.values()], k=count)
    lives = _lived(split, precursors, own, plan, seed=seed)
    return DataSet(split=split, lives=lives, weights=np.ones(count))


def _quiet_rate(precursors: Precursors, rates: Mapping[str, float]) -> float:
    """Lives in a million GPU-days in which nothing happens."""
    return MILLION * MINUTES_A_DAY / precursors.life.minutes - sum(rates.values())


def _lived(
    split: str,
    precursors: Precursors,
    own: Precursors,
    plan: Sequence[str],
    *,
    seed: int,
    noisy: Set[str] = frozenset(),
) -> Lives:
    """Lives of these kinds, over the families of a split in turn.

    `noisy`: kinds whose GPUs count a corrected error in CE_DAYS_DRAWN.
    """
    assert 0 <= seed < SEEDS_PER_SPLIT
    about = precursors.named(split)
    number = precursors.split.index(about)
    steps = own.life.minutes * STEPS_A_MINUTE
    lives: list[Lives] = []
    for (at, family), more in product(enumerate(about.families), (False, True)):
        world_seed = (number * SEEDS_PER_SPLIT + seed) * SEED_STEPS + at + more * SEED_STEPS // 2
        random = Random(f"{world_seed}/stories")
        kinds = [kind for kind in plan[at :: len(about.families)] if (kind in noisy) == more]
        if not kinds:
            continue
        lives.append(
            live(
                [draw_story(kind, own, steps, random) for kind in kinds],
                steps=steps,
                model=family,
                params=load_params(),
                seed=world_seed,
                lost_ppm=own.polls.lost_ppm,
                ce_days=CE_DAYS_DRAWN if more else about.ce_days,
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
        corrected=np.concatenate([each.corrected for each in lives]),
        kinds=[kind for each in lives for kind in each.kinds],
        devices=[device for each in lives for device in each.devices],
    )
