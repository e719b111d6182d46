"""The samples that benches offer: 12,500 nodes at 5 s are 100,000 GPUs and 2,500 a second."""

import time
from collections.abc import Iterator

from nemesis.sim.telemetry.load import samples
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.streams.batch import Message

NODES_COUNT = 12_500
PERIOD_NS = 5_000_000_000


def samples_of_a_day() -> Iterator[Message]:
    """Samples of all nodes in turn, for ever."""
    return samples(
        load_cluster(),
        nodes_count=NODES_COUNT,
        period_ns=PERIOD_NS,
        start_ns=time.time_ns(),
        now_ns=time.time_ns,
    )
