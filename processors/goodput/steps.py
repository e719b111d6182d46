"""What a sample says of a job's steps.

A synchronous job has one step: whoever finished it, all did.
"""

from typing import Final

import msgspec
import numpy as np

from nemesis.schemas.channels import STEP_CHANNELS
from nemesis.schemas.observed import SampleTaken

_STEP: Final = STEP_CHANNELS.index("step")
_STEP_NS: Final = STEP_CHANNELS.index("step_ns")
STEP_MAX: Final = 2**40  # no job gets there; a broken counter may
_INT64: Final = np.dtype("<i8")


class Seen(msgspec.Struct, frozen=True):
    """The newest step in a sample."""

    step: int
    step_ns: int
    """How long it took; 0 where the sample does not say."""


def seen_in(data: SampleTaken) -> Seen | None:
    """The newest finished step of the ranks on one node, None where the sample has none."""
    count, raw = data.step_count, data.steps
    if not count or len(raw) % (8 * count) or len(raw) < 8 * count * (_STEP_NS + 1):
        return None
    rows = np.frombuffer(raw, _INT64).reshape(count, -1)
    at = int(rows[:, _STEP].argmax())
    step = int(rows[at, _STEP])
    return Seen(step, max(0, int(rows[at, _STEP_NS]))) if 0 <= step <= STEP_MAX else None
