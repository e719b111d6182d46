"""Where the scheduler puts the jobs of a simulated cluster that say what they need.

A simulation must know before it begins on which nodes its ranks run. So the scheduler itself is
asked, with the inventories that nodes and switches are about to tell; in the log it is told the
same, and comes to the same end.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.producers.fabric import fabric_inventory_of
from nemesis.producers.inventory import inventory_of
from nemesis.producers.origin import Origin
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import ClockTicked, Observation
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.registry import BY_STRUCT
from nemesis.schemas.scheduled import JobPlaced, JobQueued, JobRejected
from nemesis.sim.topology.cluster import Cluster

SETTLED_NS: Final = 3_600_000_000_000
"""Log time of the only tick; nothing is news any more by then."""


class UnplacedError(NemesisError):
    """The scheduler has no place for a job of a cluster file."""

    exit_code = 2


def scheduled(cluster: Cluster) -> Cluster:
    """The cluster with the nodes that the scheduler gives to its jobs.

    Raises:
        UnplacedError: it gives one none; says why.
    """
    scheduler = Scheduler()
    found: dict[str, tuple[str, ...]] = {}
    told = [*_told(cluster)]
    for seq, (kind, key, data) in enumerate(told, 1):
        for said in scheduler.step(_fact(seq, kind, key, data)):
            if isinstance(said.data, JobPlaced):
                found[said.data.job] = said.data.submission.node_names
                placed = _fact(len(told) + len(found), "job_placed", said.data.job, said.data)
                scheduler.step(placed)
            elif isinstance(said.data, JobQueued | JobRejected):
                raise UnplacedError(f"job {said.data.job}: {said.data.reason}")
    places = tuple(found[job.name] for job in cluster.jobs)
    return msgspec.structs.replace(cluster, places=places)


def _fact(seq: int, kind: str, key: str, data: msgspec.Struct) -> Fact:
    return Fact(
        seq=seq,
        kind=kind,
        key=key,
        id=f"{kind}/{seq}",
        at_ns=SETTLED_NS,
        log_time_ns=SETTLED_NS if kind == "tick" or kind.startswith("job") else 1,
        late=False,
        data=data,
    )


def inventories(cluster: Cluster) -> Iterator[Observation]:
    """What nodes, then switches, of a cluster tell of themselves."""
    for node in cluster.node_names:
        gpus, nics = cluster.gpus_of(node), cluster.nics_of(node)
        rack = cluster.rack_of(node)
        yield inventory_of(Origin(node, start_ns=1), 1, gpus=gpus, nics=nics, rack=rack)
    for switch in cluster.switches:
        yield fabric_inventory_of(
            Origin(switch, start_ns=1),
            1,
            switch=f"switch/{switch}",
            tier=cluster.tier_of(switch),
            transport=cluster.fabric.transport,
            ports=cluster.ports_of(switch),
        )


def _told(cluster: Cluster) -> Iterator[tuple[str, str, msgspec.Struct]]:
    """(kind, key, what is said): what is there, then who wants some of it."""
    for observation in inventories(cluster):
        yield BY_STRUCT[type(observation)].token, observation.node, observation
    yield "tick", "clock", ClockTicked(node="clock", start_ns=1, n=1, at_ns=SETTLED_NS)
    for job in cluster.jobs:
        submitted = JobSubmitted(
            at_ns=SETTLED_NS,
            by="simulator",
            reason="asked",
            job=job.name,
            nodes=(),
            spec=job.spec,
            gpu_count=cluster.world_of(job),
        )
        yield "job_submitted", job.name, submitted
