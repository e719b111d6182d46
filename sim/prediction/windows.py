"""What the last half hour shows, as a row of numbers: for models that look at tables.

From the same codes that the network sees, over the same steps: how much and how often each channel
counted in the last 1, 5, 15 and 31 minutes, how long ago its last events were, levels now and
before, and everything slow as it is now.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import CHANNELS, FLAGS, RATES
from nemesis.processors.ecc_model.inputs import INPUTS, Codes
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS
from nemesis.sim.telemetry.draws import Ints

Floats32 = NDArray[np.float32]

SPANS: Final = (12, 60, 180, RECEPTIVE_STEPS)
"""Steps looked back."""
EVENTS: Final = 6
"""Last events of a channel whose ages are told."""
_LEVELS: Final = tuple(at for at in range(len(CHANNELS)) if at not in RATES)
_FLAGS: Final = tuple(range(2 * len(CHANNELS), 2 * len(CHANNELS) + len(FLAGS)))


def windows(codes: Codes, gpus: Ints, steps: Ints) -> Floats32:
    """[n, features] of codes [step, INPUTS, GPU], for the pairs of GPU and step that are asked for.

    Steps are RECEPTIVE_STEPS or more.
    """
    found = np.empty((len(gpus), features_count()), np.float32)
    order = np.argsort(gpus, kind="stable")
    ends = np.searchsorted(gpus[order], np.arange(codes.shape[2] + 1))
    for gpu, each in enumerate(np.ascontiguousarray(codes.transpose(2, 0, 1))):
        own = order[ends[gpu] : ends[gpu + 1]]
        if len(own):
            found[own] = _of_gpu(each, steps[own])
    return found


def features_count() -> int:
    """Width of a row."""
    return (
        len(INPUTS)
        + len(SPANS) * (2 * len(RATES) + len(_LEVELS) + len(_FLAGS))
        + (EVENTS * len(RATES))
    )


def _of_gpu(codes: Codes, steps: Ints) -> Floats32:
    meant = [*RATES, *_LEVELS, *_FLAGS]
    sums = np.zeros((len(codes) + 1, len(meant)), np.int32)
    np.cumsum(codes[:, meant], axis=0, out=sums[1:])
    happened = codes[:, RATES] > 0
    counts = np.zeros((len(codes) + 1, len(RATES)), np.int32)
    np.cumsum(happened, axis=0, out=counts[1:])
    parts: list[NDArray[Any]] = [codes[steps]]
    for span in SPANS:
        parts.append((sums[steps + 1] - sums[steps + 1 - span]) / span)
        parts.append(counts[steps + 1] - counts[steps + 1 - span])
    for channel in range(len(RATES)):
        when = np.flatnonzero(happened[:, channel])
        seen = np.searchsorted(when, steps, side="right")
        back = seen[:, None] - 1 - np.arange(EVENTS)
        at = when[np.maximum(back, 0)] if len(when) else np.zeros(back.shape, np.int64)
        ages = np.where(back >= 0, steps[:, None] - at, RECEPTIVE_STEPS)
        parts.append(np.minimum(ages, RECEPTIVE_STEPS))
    return np.hstack(parts).astype(np.float32)
