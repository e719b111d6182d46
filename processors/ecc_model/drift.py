"""Does the model still see what it was trained on? Shares of input codes and of scores, by the day.

Why: another driver, another family of GPUs or another load shows a model what it never saw, and its
chances then mean nothing. How: once a minute the codes and logits of all GPUs that are heard are
counted in sixteen bins each; after a day the shares are held against those of training. The shift
of an input is half the sum of the differences of its shares: the part that lies elsewhere.
"""

from typing import Final

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import Ints
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import HORIZONS_S, LOGIT_BITS, PPM, SHARE_BINS
from nemesis.processors.ecc_model.packing import Packed, packed, unpacked
from nemesis.processors.ecc_model.scorer import Scores

COUNTED_STEPS: Final = 12
"""One step of so many is counted: a minute."""
_SHAPE: Final = (len(INPUTS) + len(HORIZONS_S), SHARE_BINS)


class Counted(msgspec.Struct, array_like=True, frozen=True):
    """A Tally's state."""

    seen: int
    counts: Packed


class Tally:
    """What was shown and what came of it."""

    def __init__(self) -> None:
        self.seen = 0
        """Steps of GPUs."""
        self._counts: Ints = np.zeros(_SHAPE, np.int64)

    def add(self, scores: Scores) -> None:
        """Count one step of all GPUs that are heard."""
        heard = int(scores.heard.sum())
        if not heard:
            return
        self.seen += heard
        codes = (scores.codes[:, scores.heard].astype(np.int16) + 128) >> 4
        logits = (scores.logits[:, scores.heard] >> (LOGIT_BITS - 4)) + SHARE_BINS // 2
        for row, bins in enumerate((*codes, *logits)):
            self._counts[row] += np.bincount(bins, minlength=SHARE_BINS)

    def shares(self) -> bytes:
        """Of each input, then of each logit: what Model.shares holds of training."""
        return (self._counts * PPM // max(1, self.seen)).astype("<u4").tobytes()

    def shifts_ppm(self, trained: bytes) -> list[int]:
        """Of each input, then of each logit: how much of it lies elsewhere than in training."""
        now = np.frombuffer(self.shares(), "<u4").astype(np.int64)
        then = np.frombuffer(trained, "<u4").astype(np.int64)
        shifts: list[int] = (np.abs(now - then).reshape(_SHAPE).sum(axis=1) // 2).tolist()
        return shifts

    def state(self) -> Counted:
        """What was counted."""
        return Counted(self.seen, packed(self._counts))

    def resume(self, state: Counted) -> None:
        """Take up a state."""
        self.seen, self._counts = state.seen, unpacked(state.counts, _SHAPE)
