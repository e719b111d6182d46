"""A cluster's worth of telemetry at a steady rate, for measuring what is behind it.

Samples are made by the encoders that producers use and are published as producers do it: atomic
batches, one in flight. The blocks of one poll of the simulated cluster are used again and again,
because the work behind them depends on their size and not on their content; numbers and times are
always new. The credential is that of the simulator.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import msgspec

from nemesis.producers.origin import Origin
from nemesis.producers.sample import sample_of
from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster import Cluster
from nemesis.streams.batch import Message
from nemesis.streams.log import Log

BATCH_S: Final = 0.02  # 50 atomic batches a second at any rate: well below the stream's 400


class LoadMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """What was published."""

    sent_count: int
    elapsed_s: float
    behind_s_max: float
    """How far the publisher fell behind its schedule at worst."""


def samples(
    cluster: Cluster,
    *,
    nodes_count: int,
    period_ns: int,
    start_ns: int,
    now_ns: Callable[[], int],
    seed: int = 1,
) -> Iterator[Message]:
    """Samples of `nodes_count` nodes round and round, for ever, seen at `now_ns()`."""
    world = World(cluster, seed)
    world.advance(period_ns, dict.fromkeys(cluster.node_names, "training"))
    polls = [world[node].poll("training") for node in cluster.node_names]
    origins = [Origin(f"load{at:05d}", start_ns=start_ns) for at in range(nodes_count)]
    subjects = [telemetry_subject(origin.node, "sample") for origin in origins]
    for number in count():
        at = number % nodes_count
        poll = polls[at % len(polls)]
        sample = sample_of(
            origins[at],
            now_ns(),
            period_ns=period_ns,
            gpu=poll.gpu[0],
            nic=poll.nic[0],
            host=poll.host[0],
        )
        yield Message(subject=subjects[at], payload=encode_observation(sample))


async def publish_load(
    log: Log, messages: Iterator[Message], *, rate_per_s: int, seconds: float
) -> LoadMeasured:
    """Publish at this rate for so long; a publisher that falls behind catches up.

    Raises:
        LogUnavailableError, LogFullError: the log did not take a batch.
    """
    began_s = time.monotonic()
    sent_count, behind_s_max = 0, 0.0
    for batch in range(1, round(seconds / BATCH_S) + 1):
        wanted_count = round(rate_per_s * batch * BATCH_S)
        await log.commit([next(messages) for _ in range(wanted_count - sent_count)])
        sent_count = wanted_count
        ahead_s = began_s + batch * BATCH_S - time.monotonic()
        behind_s_max = max(behind_s_max, -ahead_s)
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
    return LoadMeasured(
        sent_count=sent_count,
        elapsed_s=time.monotonic() - began_s,
        behind_s_max=behind_s_max,
    )
