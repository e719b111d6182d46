"""What the training code of ranks tells of their steps, as the rows of a sample."""

from collections.abc import Sequence

import numpy as np

from nemesis.schemas.channels import STEP_CHANNELS
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import Ranks
from nemesis.sim.jobs.ranks import RUNNING


def step_rows(job: Job, numbers: Sequence[int] | Ranks, at_ns: int | Ranks) -> Ranks:
    """The step of each of these ranks that runs: a row a rank, the columns STEP_CHANNELS.

    `at_ns`: when it is read, of all or of each.
    """
    table = job.table
    ranks = np.asarray(numbers, np.int64)
    runs = table.stage[ranks] == RUNNING
    ranks, at_ns = ranks[runs], np.broadcast_to(at_ns, runs.shape)[runs]
    rows = np.empty((len(ranks), len(STEP_CHANNELS)), np.int64)
    steps = table.step[ranks]
    completed = table.completed_count[ranks]
    columns: dict[str, Ranks] = {
        "rank": ranks,
        "step": steps,
        "step_ns": table.step_ns[ranks],
        "enqueued_count": completed + (table.ready_ns[ranks] <= at_ns),
        "completed_count": completed,
        "own_ns": table.own_ns[ranks],
        "data_wait_ns": table.data_wait_ns[ranks],
        "save_ns": table.save_ns[ranks],
        "nonfinite_count": np.zeros_like(ranks),
        "state_checksum": _checksums(job, steps),
        "state_step": steps,
    }
    for at, name in enumerate(STEP_CHANNELS):
        rows[:, at] = columns[name]
    if job.readings:
        for row, rank in enumerate(ranks.tolist()):
            for name, value in job.readings.get(rank, {}).items():
                rows[row, STEP_CHANNELS.index(name)] = value
    return rows


def _checksums(job: Job, steps: Ranks) -> Ranks:
    """Nearly always all ranks stand at one step."""
    if steps.size and (steps == steps[0]).all():
        return np.full(steps.shape, job.checksum(int(steps[0])))
    distinct, place = np.unique(steps, return_inverse=True)
    return np.array([job.checksum(step) for step in distinct.tolist()], np.int64)[place]
