"""Why did the model raise an alarm? What each channel, and each minute, had to do with the score.

Exact occlusion: the model's integers score the same half hour again with one group of inputs as of
a GPU that shows nothing, and again with one minute so; what the log odds lose is what that group or
minute brought. Groups are not independent, so contributions need not add up.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import CHANNELS, FLAGS
from nemesis.processors.ecc_model.inputs import INPUTS, SLOW, Codes
from nemesis.processors.ecc_model.model import (
    HORIZONS_S,
    RECEPTIVE_STEPS,
    Model,
    probabilities_ppm,
)
from nemesis.processors.ecc_model.network import Network
from nemesis.sim.prediction.float_network import LOGIT_BITS
from nemesis.sim.prediction.recurrent import ranked
from nemesis.sim.telemetry.draws import Ints

STEPS_A_MINUTE: Final = 12
MINUTES: Final = RECEPTIVE_STEPS // STEPS_A_MINUTE
GROUPS: Final = (
    *((name, (name, f"no_{name}")) for name in CHANNELS),
    *((name, (name,)) for name in (*FLAGS, *SLOW)),
)
"""What is occluded together: a channel with its mark of what is missing, a flag, a slow input."""


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """A group of inputs or a minute."""

    name: str
    brought_milli: int
    """Thousandths of log odds, before calibration, that the score loses without it."""
    chance_ppm: int
    """Without it."""


class Explanation(msgspec.Struct, kw_only=True, frozen=True):
    """One score taken apart."""

    gpu: str
    step: int
    horizon_s: int
    chance_ppm: int
    chances_ppm: tuple[int, ...]
    """Of every horizon."""
    inputs: tuple[Part, ...]
    """What brought most first."""
    minutes: tuple[Part, ...]
    """`0` is the last minute; what brought most first."""
    shown: tuple[tuple[str, int], ...]
    """Codes at that step that are not 0."""


def explained(model: Model, codes: Codes, gpu: str, step: int, head: int) -> Explanation:
    """Take a score apart; `codes` [step, INPUTS] of one GPU up to and with the step.

    Raises:
        ValueError: fewer steps than the model looks back.
    """
    if step < RECEPTIVE_STEPS or step >= len(codes):
        raise ValueError(f"step {step}: expected {RECEPTIVE_STEPS} to {len(codes) - 1}")
    window = codes[step - RECEPTIVE_STEPS : step + 1]
    variants = [window]
    row = {name: at for at, name in enumerate(INPUTS)}
    for _, names in GROUPS:
        without = window.copy()
        without[:, [row[name] for name in names]] = 0
        variants.append(without)
    for minute in range(MINUTES):
        without = window.copy()
        end = len(window) - minute * STEPS_A_MINUTE
        without[max(0, end - STEPS_A_MINUTE) : end, : row[SLOW[0]]] = 0
        variants.append(without)
    odds, chances = _scored(model, np.stack(variants, axis=2), head)

    def part(name: str, at: int) -> Part:
        lost = int(odds[0] - odds[at]) // 1_000
        return Part(name=name, brought_milli=lost, chance_ppm=int(chances[head, at]))

    inputs = [part(name, 1 + at) for at, (name, _) in enumerate(GROUPS)]
    minutes = [part(str(at), 1 + len(GROUPS) + at) for at in range(MINUTES)]
    return Explanation(
        gpu=gpu,
        step=step,
        horizon_s=HORIZONS_S[head],
        chance_ppm=int(chances[head, 0]),
        chances_ppm=tuple(chances[:, 0].tolist()),
        inputs=tuple(sorted(inputs, key=lambda each: -abs(each.brought_milli))),
        minutes=tuple(sorted(minutes, key=lambda each: -abs(each.brought_milli))),
        shown=tuple(
            (name, int(code)) for name, code in zip(INPUTS, window[-1], strict=True) if code
        ),
    )


def _scored(model: Model, codes: Codes, head: int) -> tuple[Ints, Ints]:
    """Log odds of the head in millionths, chances of all; each column a variant."""
    network = Network(model, codes.shape[2], part_width=codes.shape[2])
    logits: NDArray[np.int16] = np.zeros(0, np.int16)
    for each in codes:
        logits = network.step(each)
    return ranked(logits / (1 << LOGIT_BITS))[head], probabilities_ppm(model.hazard_table(), logits)
