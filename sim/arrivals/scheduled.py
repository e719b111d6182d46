"""The scheduler itself as a planner: a log in memory that holds what a real one would.

Inventories of all nodes and switches first, then a tick, a submission or an end for each event of
the trace; what the scheduler concludes is written behind and read back, as its runner does. There
is no tick between two events of the trace, so nothing is looked at again for its own sake.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from nemesis.processors.fold import Fold, Input
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.facts import Record, encode_conclusion, encode_observation
from nemesis.schemas.operated import JobEnded, JobSubmitted, Operation, ProcessorActivated
from nemesis.schemas.scheduled import JobPlaced, JobRejected
from nemesis.sim.arrivals.arrival import Arrival
from nemesis.sim.arrivals.planner import Refusal, Said, Start
from nemesis.sim.told import message_of
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.scheduled import inventories
from nemesis.streams.ticker import TICK_SUBJECT, tick_of

SECOND_NS: Final = 1_000_000_000
BEFORE_S: Final = 60
"""So long before the first job the cluster is there: longer than inventories are waited for."""


class SchedulerPlanner:
    """The processor `scheduler` with its default settings."""

    def __init__(self, cluster: Cluster, *, said_runtime: float) -> None:
        """`said_runtime`: what jobs say of their runtime, in multiples of it; 0: nothing."""
        self._cluster = cluster
        self._size = len(cluster.node.gpus)
        self._said_runtime = said_runtime
        self._fold: Final = Fold(Scheduler())
        self._seq = 0
        self._now_s = 0
        self._said: list[Said] = []

    def at(self, now_s: int) -> None:
        """A tick; before the first, what a cell begins with."""
        if not self._seq:
            self._begin(now_s - BEFORE_S)
        self._tick(now_s)

    def come(self, arrival: Arrival) -> None:
        """A submission of whole nodes, of whose shape it is said only that it is data parallel."""
        nodes = arrival.nodes(self._size)
        gpus = arrival.gpu_count if nodes == 1 else nodes * self._size
        self._write(
            JobSubmitted(
                at_ns=self._now_s * SECOND_NS,
                by="trace",
                reason="it comes then in the trace",
                job=arrival.job,
                nodes=(),
                spec=f"DP{gpus}",
                team=arrival.team,
                runtime_ns=round(arrival.run_s * self._said_runtime * SECOND_NS),
            ),
            arrival.job,
        )

    def leave(self, job: str) -> None:
        """The end of a job."""
        at_ns = self._now_s * SECOND_NS
        ended = JobEnded(at_ns=at_ns, by="trace", reason="it is over in the trace", job=job)
        self._write(ended, job)

    def said(self) -> Sequence[Said]:
        """Who was placed or rejected."""
        found, self._said = self._said, []
        return found

    def _begin(self, at_s: int) -> None:
        self._tick(at_s)
        activated = ProcessorActivated(
            at_ns=at_s * SECOND_NS,
            by="trace",
            reason="a trace is run",
            name=Scheduler.name,
            version=Scheduler.version,
        )
        self._write(activated, Scheduler.name)
        for told in inventories(self._cluster):
            message = message_of(told)
            self._put(message.subject, message.payload)

    def _tick(self, now_s: int) -> None:
        self._now_s = now_s
        self._put(TICK_SUBJECT, encode_observation(tick_of(now_s * SECOND_NS)))

    def _write(self, data: Operation, key: str) -> None:
        self._put(
            *encode_conclusion(
                id=f"trace/{self._seq}", source="/trace", at_ns=data.at_ns, data=data, key=key
            )
        )

    def _put(self, subject: str, payload: bytes) -> None:
        """Append a record, and everything that follows from it."""
        behind = deque([(subject, payload)])
        while behind:
            subject, payload = behind.popleft()
            self._seq += 1
            item = Input(Record(self._seq, subject, self._now_s * SECOND_NS, payload))
            behind.extend((each.subject, each.payload) for each in self._fold.step(item))
            match item.decoded():
                case JobPlaced() as placed:
                    nodes = placed.submission.node_names
                    self._said.append(Start(placed.job, nodes, placed.backfilled))
                case JobRejected() as rejected:
                    first = rejected.findings[0]
                    self._said.append(Refusal(rejected.job, first.code, first.text))
                case _:
                    pass
