"""What is to be predicted of each step: in which part of the next three hours the GPU fails."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.model import HORIZONS_S
from nemesis.sim.telemetry.draws import Flags, Ints

EDGES: Final = tuple(seconds * 1_000_000_000 // STEP_NS for seconds in HORIZONS_S)
"""The horizons in steps."""
Floats = NDArray[np.float64]


def left(fails: Ints, steps: Ints) -> Ints:
    """Steps until a GPU fails, beyond all horizons where it never does; `fails` as in Lives."""
    return np.where(fails < 0, 1 << 40, fails - steps)


def within(until: Ints) -> Flags:
    """[HORIZONS_S, ...]: whether it fails within each horizon, of `left`."""
    return np.array([(until > 0) & (until <= edge) for edge in EDGES])


def parts(until: Ints) -> tuple[Flags, Flags]:
    """[HORIZONS_S, ...]: whether it fails in the part from the horizon before, and who is at risk.

    Who failed in an earlier part, or has failed already, is not at risk any more.
    """
    before = (0, *EDGES[:-1])
    risk = np.array([until > edge for edge in before])
    return risk & within(until), risk
