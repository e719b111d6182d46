"""Which jobs want advice, and what advice has cost: made from events alone.

A job that was rejected or waits is advised on once; one that has its place meanwhile no more.
"""

from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.advised import AdviceGiven
from nemesis.schemas.facts import EVENTS_SUBJECT
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.scheduled import JobPlaced, JobQueued, JobRejected, JobReleased
from nemesis.streams.log import Log

DAY_NS: Final = 86_400_000_000_000
REJECTED_NS: Final = 600_000_000_000
"""Whoever submitted has read why by then, or asks."""
JOBS_MAX: Final = 2000
"""Twice what the scheduler lets wait; of more the oldest are forgotten."""


class Case(msgspec.Struct, kw_only=True):
    """A job that was submitted to the scheduler."""

    job: JobSubmitted
    seq: int
    """Of the fact that says how it stands."""
    at_ns: int = 0
    stands: str = "submitted"
    """submitted, waiting, rejected, running, over."""
    why: str = ""
    """In the scheduler's words."""
    advised_seq: int = 0
    """Of the last advice on a job of this name; the log takes the next one only behind it."""
    wants: bool = False

    @property
    def words(self) -> str:
        """How it stands, for people."""
        return f"{self.job.job}: {self.stands}" + (f", {self.why}" if self.why else "")


class Worklist:
    """As of the last event that was taken."""

    def __init__(self) -> None:
        self.cases: Final[dict[str, Case]] = {}
        self.seq = 0
        self.now_ns = 0
        """The newest time that an event states."""
        self._spent: list[tuple[int, int]] = []
        """(when, micro-USD) of each advice of the last day."""

    def take(self, item: Input) -> None:
        """Take note of an event."""
        data, seq = item.decoded(), item.record.seq
        self.seq = seq
        if data is None:
            return
        if isinstance(data, JobSubmitted):
            if not data.waits:
                return
            self._submitted(data, seq)
        elif isinstance(data, AdviceGiven):
            self._given(data, seq)
        elif stands := _stands(data):
            self._stand(data.job, stands, seq, data.at_ns, data.reason)
        else:
            return
        self.now_ns = max(self.now_ns, data.at_ns)

    def due(self) -> list[Case]:
        """Who wants advice, whoever was told something first stands first."""
        found = [case for case in self.cases.values() if case.wants]
        fresh_ns = self.now_ns - REJECTED_NS
        found = [case for case in found if case.stands == "waiting" or case.at_ns >= fresh_ns]
        return sorted(found, key=lambda case: case.seq)

    def day(self) -> tuple[int, int]:
        """(how many, micro-USD) of the last 24 hours."""
        self._spent = [each for each in self._spent if each[0] > self.now_ns - DAY_NS]
        return len(self._spent), sum(cost for _, cost in self._spent)

    def _submitted(self, job: JobSubmitted, seq: int) -> None:
        before = self.cases.pop(job.job, None)
        advised_seq = before.advised_seq if before is not None else 0
        self.cases[job.job] = Case(job=job, seq=seq, at_ns=job.at_ns, advised_seq=advised_seq)
        while len(self.cases) > JOBS_MAX:
            del self.cases[next(iter(self.cases))]

    def _stand(self, job: str, stands: str, seq: int, at_ns: int, why: str) -> None:
        case = self.cases.get(job)
        if case is None:
            return
        if case.stands != stands:
            case.wants = stands in ("waiting", "rejected")
        case.stands, case.seq, case.at_ns, case.why = stands, seq, at_ns, why

    def _given(self, advice: AdviceGiven, seq: int) -> None:
        self._spent.append((advice.at_ns, advice.cost_microusd))
        case = self.cases.get(advice.job)
        if case is not None:
            case.advised_seq, case.wants = seq, False


async def worklist_of(log: Log) -> Worklist:
    """All events that lie there now.

    Raises:
        LogUnavailableError: the log does not answer.
    """
    found = Worklist()
    async for record in log.read_range(1, (await log.bounds()).last_seq, subject=EVENTS_SUBJECT):
        found.take(Input(record))
    return found


def _stands(data: Any) -> str:
    """How a job stands after what was said of it, "" where that says nothing of it."""
    match data:
        case JobRejected():
            return "rejected"
        case JobQueued():
            return "waiting"
        case JobPlaced():
            return "running"
        case JobReleased():
            return "submitted" if data.requeued else "over"
        case JobEnded():
            return "over"
        case _:
            return ""
