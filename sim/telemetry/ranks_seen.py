"""What nodes see of the ranks that they run, many nodes at once: how busy they are, their steps."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from nemesis.producers.sample import Block
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.ranks import HELD, RUNNING, STARTING
from nemesis.sim.jobs.rows import step_rows
from nemesis.sim.telemetry.draws import Ints
from nemesis.sim.telemetry.loads import IDLE, STALLED, TRAINING

WAITING_NS: Final = 300_000_000  # longer in a collective than any healthy rank: it spins


def seen(job: Job, nodes: Sequence[str], at_ns: Ints) -> tuple[Ints, list[Block]]:
    """What the GPUs of these nodes are doing, as loads.LOADS numbers it, and each node's step rows.

    Each node is looked at when `at_ns` says, ascending, and the job goes on to there. A row a
    running rank, columns as channels.STEP_CHANNELS.
    """
    loads: list[Ints] = []
    blocks: list[Block] = []
    start = 0
    while start < len(nodes):
        job.advance(int(at_ns[start]))
        end = max(start + 1, int(np.searchsorted(at_ns, job.due_ns)))
        some, rows = _seen_between(job, nodes[start:end], at_ns[start:end])
        loads.append(some)
        blocks += rows
        start = end
    return np.concatenate(loads), blocks


def _seen_between(job: Job, nodes: Sequence[str], at_ns: Ints) -> tuple[Ints, list[Block]]:
    """While no step of the job completes."""
    ranks, node_of = _ranks_on(job, nodes)
    times_ns = at_ns[node_of]
    stage = job.table.stage[ranks]
    running = stage == RUNNING
    alive = running | (stage == HELD) | (stage == STARTING)
    waits = alive & (~running | (times_ns - job.arrived_ns()[ranks] > WAITING_NS))
    loads = np.full(len(nodes), IDLE, np.int64)
    loads[node_of[alive]] = TRAINING
    loads[node_of[waits]] = STALLED
    rows = step_rows(job, ranks, times_ns)
    ends = np.cumsum(np.bincount(node_of[running], minlength=len(nodes))).tolist()
    return loads, [rows[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _ranks_on(job: Job, nodes: Sequence[str]) -> tuple[Ints, Ints]:
    """The ranks on these nodes, node by node, and which of the nodes each is on."""
    numbers = [job.numbers_on(node) for node in nodes]
    node_of = np.repeat(np.arange(len(nodes)), [len(each) for each in numbers])
    return np.array(list(chain.from_iterable(numbers)), np.int64), node_of
