"""Which band a GPU's chances put it into, with hysteresis, so that nobody is told of flutter.

Why: a score crosses a threshold many times before anything happens, and each crossing would be a
decision. How: each band is a latch of its own on the head that it is measured on; it is set at its
threshold and reset below half of it; the gravest latch that is set is the band. What is only for
the record has several: nobody acts on them but who has counted the costs, from a chance of a few
per cent on (`Policy.worth_ppm`), and each says anew how likely it is. They hold until the lowest of
them is reset, so a chance that swings between them is told of once at each and not at each swing.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import Flags, Ints
from nemesis.processors.ecc_model.model import HORIZONS_S
from nemesis.schemas.inferred import RiskBand


class Band(msgspec.Struct, frozen=True):
    """A band, and what is to be exceeded on which head."""

    name: RiskBand
    head: int
    """Of HORIZONS_S."""
    at_ppm: int

    @property
    def horizon_ns(self) -> int:
        """The head's horizon."""
        return HORIZONS_S[self.head] * 1_000_000_000


# the seed tiers: 0.95 within half an hour and 0.85 within two; below them what is on record: a few
# chances within two hours, the lowest about that of a job of 4,000 nodes, so far apart that a part
# which goes up and fails is told of ten times at most; and what is likelier to happen than not
BANDS: Final = (
    *(Band("record", 2, 10_000 * percent) for percent in (5, 7, 10, 15, 20, 30)),
    Band("record", 3, 500_000),
    Band("watch", 2, 850_000),
    Band("act", 0, 950_000),
)
"""The gravest last."""
_HEADS: Final = [each.head for each in BANDS]
_UP_PPM: Final = np.array([[each.at_ppm] for each in BANDS], np.int64)
LEAST_PPM: Final = min(each.at_ppm for each in BANDS)
"""Whose longest horizon has less than this, and no latch, changes nothing."""
_DOWN_PPM: Final = np.array(
    [[(LEAST_PPM if each.name == "record" else each.at_ppm) // 2] for each in BANDS], np.int64
)


def latched(latches: Flags, chances_ppm: Ints, heard: Flags) -> Flags:
    """[BANDS, GPU]: the latches after this step; those of GPUs that are not heard stay.

    `latches` as they were, `chances_ppm` [HORIZONS_S, GPU].
    """
    own = chances_ppm[_HEADS]
    found: Flags = np.where(heard, (own >= _UP_PPM) | (latches & (own >= _DOWN_PPM)), latches)
    return found


def bands_of(latches: Flags) -> Ints:
    """[GPU]: the gravest latch that is set, from 1 on; 0: none."""
    ranks = np.arange(1, len(BANDS) + 1, dtype=np.int64).reshape(-1, 1)
    found: Ints = (latches * ranks).max(axis=0)
    return found


def percent(chances_ppm: Sequence[int]) -> str:
    """Chances in words, rounded down."""
    return ", ".join(f"{each // 10_000}" for each in chances_ppm) + " %"
