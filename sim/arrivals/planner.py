"""Whoever gives nodes to jobs that arrive, and a trace run through one, in the time of the trace.

Nothing waits: time goes from one event to the next. At one moment jobs end first, then jobs come,
then who can starts. A job runs as long as it did in the trace, wherever it is put.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from nemesis.sim.arrivals.arrival import Arrival


class Start(msgspec.Struct, frozen=True):
    """A job that has its nodes."""

    job: str
    nodes: tuple[str, ...]
    backfilled: bool = False
    """It went before one that stands before it."""


class Refusal(msgspec.Struct, frozen=True):
    """A job that can never run."""

    job: str
    code: str
    why: str


Said = Start | Refusal


class Planner(Protocol):
    """A scheduler, asked at moments that only go forward."""

    def at(self, now_s: int) -> None:
        """It is so late now."""
        ...

    def come(self, arrival: Arrival) -> None:
        """A job is submitted."""
        ...

    def leave(self, job: str) -> None:
        """A job that runs is over."""
        ...

    def said(self) -> Sequence[Said]:
        """What was decided since the last time."""
        ...


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ran."""

    arrival: Arrival
    began_s: int
    nodes: tuple[str, ...]
    backfilled: bool

    @property
    def ended_s(self) -> int:
        """When it gave its nodes back."""
        return self.began_s + self.arrival.run_s

    @property
    def waited_s(self) -> int:
        """From its submission on."""
        return self.began_s - self.arrival.submitted_s


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trace."""

    stays: tuple[Stay, ...]
    refused: tuple[Refusal, ...]


def run(arrivals: Sequence[Arrival], planner: Planner, on_come: Callable[[int], None]) -> Course:
    """Let jobs, which stand in the order of their submission, come, run and go.

    `on_come` hears how many have come.
    """
    stays: list[Stay] = []
    refused: list[Refusal] = []
    waiting: dict[str, Arrival] = {}
    ends: list[tuple[int, str]] = []
    at = 0
    while at < len(arrivals) or ends:
        moments = [arrivals[at].submitted_s] if at < len(arrivals) else []
        now_s = min([*moments, *(end_s for end_s, _ in ends[:1])])
        planner.at(now_s)
        while ends and ends[0][0] == now_s:
            planner.leave(heappop(ends)[1])
        while at < len(arrivals) and arrivals[at].submitted_s == now_s:
            waiting[arrivals[at].job] = arrivals[at]
            planner.come(arrivals[at])
            at += 1
            on_come(at)
        for said in planner.said():
            arrival = waiting.pop(said.job)
            if isinstance(said, Refusal):
                refused.append(said)
                continue
            stays.append(
                Stay(
                    arrival=arrival,
                    began_s=now_s,
                    nodes=said.nodes,
                    backfilled=said.backfilled,
                )
            )
            heappush(ends, (stays[-1].ended_s, said.job))
    assert not waiting, f"{next(iter(waiting))} waits for ever on an empty cluster"
    return Course(stays=tuple(stays), refused=tuple(refused))
