"""One run of each scenario in virtual time, made once for all tests of a process."""

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.fold import Input
from nemesis.schemas.observed import Observation, SampleTaken
from nemesis.sim.faults.scenario import scenario_named, scenarios
from nemesis.sim.offline import START_NS, OfflineRun, run_offline
from nemesis.sim.topology.cluster_file import load_cluster

CLUSTER = load_cluster()
NAMES = [each.name for each in scenarios()]
SECOND = 1_000_000_000
Seen = TypeVar("Seen", bound=Observation)


@cache
def run_of(name: str, seed: int = 7) -> OfflineRun:
    with tempfile.TemporaryDirectory() as folder:
        return run_offline(CLUSTER, scenario_named(name), seed=seed, folder=Path(folder))


def observed(run: OfflineRun, kind: type[Seen]) -> Iterator[Seen]:
    """All observations of a kind, in the log's order."""
    for record in run.records:
        data = Input(record).decoded()
        if isinstance(data, kind):
            yield data


def second(at_ns: int) -> float:
    """Since the start of the run."""
    return (at_ns - START_NS) / SECOND


def column(
    run: OfflineRun, node: str, block: Callable[[SampleTaken], tuple[bytes, int]], at: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(times in s, values with a row a sample and a column a device) of one channel of a node."""
    times, rows = [], []
    for sample in observed(run, SampleTaken):
        if sample.node == node:
            data, count = block(sample)
            times.append(second(sample.at_ns))
            rows.append(np.frombuffer(data, "<i8").reshape(count, -1)[:, at])
    return np.array(times), np.array(rows)
