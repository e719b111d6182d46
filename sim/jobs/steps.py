"""Steps that were finished, and when each rank was where in them."""

from typing import Final

import msgspec

from nemesis.sim.jobs.layout import Ranks

STEPS_KEPT: Final = 20
"""What a recorder needs of the past: the times of so many steps."""


class StepDone(msgspec.Struct, frozen=True):
    """A step that all members finished."""

    epoch: int
    step: int
    at_ns: int
    members: frozenset[int]

    @property
    def world(self) -> int:
        """How many ranks."""
        return len(self.members)


class StepTimes(msgspec.Struct, frozen=True):
    """When the ranks of a finished step began it, and computed in it; arrays over all ranks."""

    done: StepDone
    began_ns: Ranks
    compute_ns: Ranks
