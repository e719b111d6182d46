"""Who waits for nodes, why, and who has which: made from events alone."""

from typing import Any, Final, Literal

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.node_ranges import format_nodes
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.scheduled import (
    JobPlaced,
    JobQueued,
    JobRejected,
    JobReleased,
    PlanQuality,
    begun,
)


class Row(msgspec.Struct, kw_only=True):
    """One job."""

    job: str
    state: Literal["waits", "runs"]
    team: str
    priority: int
    spec: str
    since_ns: int
    seq: int
    """Of the fact that made it wait or run."""
    position: int = 0
    """Jobs before it, when it was last told."""
    code: str = ""
    why: str = ""
    helps: tuple[str, ...] = ()
    start_ns_expected: int = 0
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 0
    spares: tuple[str, ...] = ()
    quality: PlanQuality | None = None


class Queue:
    """All jobs that are not over, as of the last event seen."""

    def __init__(self) -> None:
        self.rows: Final[dict[str, Row]] = {}
        self.log_time_ns = 0
        self._submitted: Final[dict[str, JobSubmitted]] = {}

    def take(self, item: Input) -> None:
        """Take note of a record."""
        data = item.decoded() if item.space == "events" or item.token == "tick" else None
        seq = item.record.seq
        match data:
            case ClockTicked():
                self.log_time_ns = max(self.log_time_ns, data.at_ns)
            case JobSubmitted() if data.waits:
                self._wait(data, data.at_ns, seq)
            case JobPlaced() if self._is_taken_back(data):
                pass  # the scheduler gives the nodes back as it reads this
            case JobSubmitted() | JobPlaced():
                self._begin(data, seq)
            case JobQueued() if self._is_waiting(data.job):
                row = self.rows[data.job]
                row.position, row.code, row.why = data.position, data.code, data.reason
                row.helps, row.start_ns_expected = data.helps, data.start_ns_expected
            case JobRejected() if self._is_waiting(data.job):
                del self.rows[data.job]
            case JobEnded():
                if data.requeued and self._is_waiting(data.job):
                    return  # as if nobody had said so: it goes on waiting since when it came
                before = self._submitted.get(data.job)
                ended = self.rows.pop(data.job, None) is not None
                if ended and data.requeued and before is not None and before.waits:
                    self._wait(before, data.at_ns, seq)
            case _:
                pass

    def listed(self) -> list[Row]:
        """Who waits, in the order in which they were told to stand, then who runs."""
        waiting = [row for row in self.rows.values() if row.state == "waits"]
        running = [row for row in self.rows.values() if row.state == "runs"]
        waiting.sort(key=lambda row: (row.position, -row.priority, row.seq))
        return waiting + sorted(running, key=lambda row: row.seq)

    def _is_waiting(self, job: str) -> bool:
        row = self.rows.get(job)
        return row is not None and row.state == "waits"

    def _is_taken_back(self, placed: JobPlaced) -> bool:
        """It was ended, or submitted anew, before the placement could be read."""
        row = self.rows.get(placed.job)
        return row is None or row.state != "waits" or row.seq != placed.job_revision

    def _wait(self, job: JobSubmitted, since_ns: int, seq: int) -> None:
        before = self.rows.get(job.job)
        if before is not None and before.state == "runs":
            return  # the scheduler refuses it
        self._submitted[job.job] = job
        self.rows[job.job] = _row(job, "waits", since_ns, seq)

    def _begin(self, data: JobSubmitted | JobPlaced, seq: int) -> None:
        job = begun(data)
        if job is None:
            return
        submitted = self._submitted.get(job.job, job) if isinstance(data, JobPlaced) else job
        self._submitted[job.job] = submitted
        row = _row(submitted, "runs", data.at_ns, seq)
        row.nodes, row.spares = format_nodes(job.node_names), job.spares
        row.ranks_per_node = job.ranks_per_node
        row.quality = data.quality if isinstance(data, JobPlaced) else None
        self.rows[job.job] = row


def _row(job: JobSubmitted, state: Literal["waits", "runs"], since_ns: int, seq: int) -> Row:
    return Row(
        job=job.job,
        state=state,
        team=job.team or job.by,
        priority=job.priority,
        spec=job.spec,
        since_ns=since_ns,
        seq=seq,
    )


def answer_to(data: Any, cause: tuple[int, ...], seqs: tuple[int, ...]) -> bool:
    """Whether this is what the scheduler says to a fact of one of these sequences."""
    said = isinstance(data, JobPlaced | JobQueued | JobRejected | JobReleased)
    return said and not set(seqs).isdisjoint(cause)
