"""Many GPUs' hours at once: from stories to the model's inputs, by the arrays of the simulator.

`Gpus`, the effects and the channel extraction are those of the wire; left out are the wire itself,
processes, and whoever would act. A test runs both and compares every code.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import STEP_NS, ChannelReader
from nemesis.processors.ecc_model.inputs import FRACTION_BITS, INPUTS, Codes, InputMaker
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, GPU_STATE_CHANNELS
from nemesis.sim.faults.symptoms import GpuCounted, GpuEffect
from nemesis.sim.params import Params
from nemesis.sim.prediction.stories import Story
from nemesis.sim.telemetry.draws import Flags, Ints, at_time, keys
from nemesis.sim.telemetry.gpus import Gpus

_CORRECTED: Final = GPU_STATE_CHANNELS.index("dram_ce_aggregate_count")
_FADING: Final = {
    "dram_ue": ((0, 19),),
    "dram_ce": ((1, 12), (2, 14), (3, 17)),
    "remapped_rows": ((4, 17),),
    "link_replay": ((5, 14),),
}
"""Rows of InputMaker.fading that a channel feeds, each with its shift."""


class Lives(msgspec.Struct, kw_only=True):
    """What the model is shown of several GPUs, and what came of them."""

    codes: Codes
    """[step, INPUTS, GPU]"""
    fails: Ints
    """[GPU]: the step in which it fails, -1 never."""
    signs: Ints
    """[GPU]: the step in which something shows first, 0 where it began before; -1 never."""
    corrected: Ints
    """[GPU]: corrected errors of its memory, read by anybody or not; 0 where nobody knows."""
    kinds: list[str]
    devices: list[str]
    """Names that no other split has."""


def live(
    stories: Sequence[Story],
    *,
    steps: int,
    model: str,
    params: Params,
    seed: int,
    lost_ppm: int = 0,
    ce_days: int = 0,
) -> Lives:
    """Let these GPUs, all of one model, live for so many steps."""
    if ce_days:
        params = replace(params, gpu_noise=replace(params.gpu_noise, ce_days=ce_days))
    count = len(stories)
    gpus = Gpus(np.ones(count, np.bool_), 1, model, params, seed)
    reader, maker = ChannelReader(count), InputMaker(count)
    remember(maker, stories)
    effects = _by_step(stories)
    boots = _rows_by_step((step, row) for row, each in enumerate(stories) for step in each.boots)
    loads_at = {(step, row): load for row, each in enumerate(stories) for step, load in each.loads}
    turns = _rows_by_step(loads_at)
    absent = _absent(stories)
    gaps = np.array([each.gap for each in stories], np.int64).T
    lost_keys = keys(seed, 2, (count, 1))
    rows = np.arange(count)
    loads = np.zeros(count, np.int64)
    codes = np.empty((steps, len(INPUTS), count), np.int8)
    elapsed = np.full(count, STEP_NS)
    for step in range(steps):
        at_ns = np.full(count, step * STEP_NS)
        if step:
            gpus.follow(rows, elapsed, loads, at_ns)
        for row in turns.get(step, ()):
            loads[row] = loads_at[step, row]
        for row, effect in effects.get(step, ()):
            gpus.suffer(row, effect)
        for row in boots.get(step, ()):
            gpus.boot(row)
        block = gpus.block(rows, loads, at_ns)[:, 0]
        block[absent] = ABSENT
        polled = _polled(lost_keys, at_ns, lost_ppm) & ~((gaps[0] <= step) & (step < gaps[1]))
        codes[step] = maker.make(reader.read(block, polled))
    return Lives(
        codes=codes,
        fails=np.array([each.fails for each in stories], np.int64),
        signs=np.array([each.shows for each in stories], np.int64),
        corrected=gpus.state(rows, loads)[
            :, 0, GPU_STATE_CHANNELS.index("dram_ce_aggregate_count")
        ],
        kinds=[each.kind for each in stories],
        devices=[f"{seed}/{model}/{row}" for row in range(count)],
    )


def remember(maker: InputMaker, stories: Sequence[Story]) -> None:
    """Let GPUs know of what came before the first step, faded by as much as passed since.

    The fading of whole counts is that of `make`, in floats; its rounding down is below a code.
    """
    for column, story in enumerate(stories):
        for age, channel, by in story.before:
            for row, shift in _FADING[channel]:
                left = by * (1.0 - 2.0**-shift) ** age
                maker.fading[row, column] += int(left * (1 << FRACTION_BITS))
            if channel == "dram_ue":
                since = int(maker.since_ue[column]) or age
                maker.since_ue[column] = min(since, age)
            if channel == "dram_ce":
                since = int(maker.since_ce[column]) or age
                maker.since_ce[column] = min(since, age)
            if channel == "remapped_rows":
                maker.rows[column] += by


def _by_step(stories: Sequence[Story]) -> dict[int, list[tuple[int, GpuEffect]]]:
    found: dict[int, list[tuple[int, GpuEffect]]] = defaultdict(list)
    for row, story in enumerate(stories):
        counted: dict[int, dict[str, int]] = {}
        for step, effect in story.effects:
            if isinstance(effect, GpuCounted):
                sums = counted.setdefault(step, {})
                for name, by in effect.rises:
                    sums[name] = sums.get(name, 0) + by
            else:
                found[step].append((row, effect))
        for step, sums in counted.items():
            found[step].append((row, GpuCounted(0, tuple(sums.items()))))
    return found


def _rows_by_step(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for step, row in pairs:
        found[step].append(row)
    return found


def _absent(stories: Sequence[Story]) -> Flags:
    found = np.zeros((len(stories), len(GPU_CHANNELS)), np.bool_)
    for row, story in enumerate(stories):
        for name in story.absent:
            found[row, GPU_CHANNELS.index(name)] = True
    return found


def _polled(words: NDArray[np.uint64], at_ns: Ints, lost_ppm: int) -> Flags:
    chance = at_time(words, at_ns)[:, 0] >> np.uint64(44)  # of 2^20
    return chance.astype(np.int64) * 1_000_000 >> 20 >= lost_ppm
