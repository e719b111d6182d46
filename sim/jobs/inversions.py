"""Two collectives of different groups that one rank calls in the opposite order, and all wait.

Pure. NCCL's kernels run in the order in which a process enqueued them, so a rank that calls the
second group first waits there for ranks that wait for it in the first (NCCL user guide, "Using
multiple NCCL communicators concurrently"; the dumps of data/fr_samples/order_inversion). Where two
groups have nobody else in common all get through: such pairs are no fault.
"""

import numpy as np
from numpy.typing import NDArray

from nemesis.sim.jobs.layout import Layout
from nemesis.sim.jobs.program import Operation, Program
from nemesis.sim.jobs.table import ProgramTable


def invertible(layout: Layout, table: ProgramTable) -> NDArray[np.bool_]:
    """(stage, position) -> whether this operation and the next, inverted, stop the step."""
    stops = np.zeros(table.use.shape, np.bool_)
    for stage, program in enumerate(table.programs):
        for at in range(len(program) - 1):
            stops[stage, at] = _stops(layout, program[at], program[at + 1])
    return stops


def _stops(layout: Layout, one: Operation, two: Operation) -> bool:
    if one.kind == two.kind or one.messages or two.messages:
        return False
    # ranks are laid out alike, so what is true of the first is of all
    shared = set(layout.group_of(0, one.kind).ranks) & set(layout.group_of(0, two.kind).ranks)
    return len(shared) > 1


def inverted(program: Program, at: int) -> Program:
    """The program of a rank that calls the operation after this one first."""
    return (*program[:at], program[at + 1], program[at], *program[at + 2 :])


def enqueued_last(program: Program, at: int) -> int:
    """The last position that the host enqueues while the GPU is at this one."""
    waits = (each for each in range(at, len(program)) if program[each].host_waits)
    return next(waits, len(program) - 1)
