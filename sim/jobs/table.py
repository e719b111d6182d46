"""The programs of all stages as arrays, so that every rank is looked up at once."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.sim.jobs.layout import KIND_INDEX, KINDS, Kind, Ranks
from nemesis.sim.jobs.pipelines import Message
from nemesis.sim.jobs.program import Program
from nemesis.sim.jobs.rings import Pattern, pattern_of

MESSAGES: Final[tuple[Message, ...]] = ("send_next", "recv_next", "send_prev", "recv_prev")
COUNTERPARTS: Final = (3, 2, 1, 0)
"""By message: what the neighbour does with the same one."""
END: Final = -1


class ProgramTable:
    """Programs of the stages, padded to one length; the column after the last holds END.

    Matrices have a row a stage and a column a position, one more than the longest program.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs: Final = tuple(programs)
        self.lengths: Final = np.array([len(each) for each in programs], np.int64)
        shape = (len(programs), int(self.lengths.max()) + 1)
        used: set[tuple[Kind, Pattern]] = {
            (each.kind, pattern_of(each.name, math.prod(each.sizes_in)))
            for program in programs
            for each in program
        }
        self.uses: Final[tuple[tuple[Kind, Pattern], ...]] = tuple(sorted(used))
        """Kinds of groups, and how something runs in them."""
        self.use: Final[Ranks] = np.full(shape, END, np.int64)
        """The place in `uses` of each operation."""
        self.share_ppm: Final[Ranks] = np.zeros(shape, np.int64)
        self.messages: Final[Ranks] = np.zeros((len(MESSAGES), *shape), np.int64)
        """How many messages of a kind a rank has posted when it stands there, 0 if none now."""
        self.host_limit: Final[Ranks] = np.zeros(shape, np.int64)
        """The last position that the host enqueues while the GPU is at this one."""
        self.collectives: Final[Ranks] = np.zeros((len(KINDS), *shape), np.int64)
        """Collectives of a kind of group that lie before a position."""
        for stage, program in enumerate(programs):
            self._fill(stage, program)

    def _fill(self, stage: int, program: Program) -> None:
        posted: dict[tuple[Kind, Message], int] = {}
        length = len(program)
        for at, operation in enumerate(program):
            kind = KIND_INDEX[operation.kind]
            pattern = pattern_of(operation.name, math.prod(operation.sizes_in))
            self.use[stage, at] = self.uses.index((operation.kind, pattern))
            self.share_ppm[stage, at] = operation.share_ppm
            self.collectives[:, stage, at + 1] = self.collectives[:, stage, at]
            self.collectives[kind, stage, at + 1] += not operation.messages
            for message in operation.messages:
                count = posted[operation.kind, message] = (
                    posted.get((operation.kind, message), 0) + 1
                )
                self.messages[MESSAGES.index(message), stage, at] = count
        self.collectives[:, stage, length:] = self.collectives[:, stage, length, None]
        limit = length - 1
        self.host_limit[stage, length:] = limit
        for at in range(length - 1, -1, -1):
            if program[at].host_waits:
                limit = at
            self.host_limit[stage, at] = limit


def at_positions(table: NDArray[np.int64], stages: Ranks, positions: Ranks) -> Ranks:
    """The entry of each rank, by its stage and position."""
    entries: Ranks = table[stages, positions]
    return entries
