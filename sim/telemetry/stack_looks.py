"""Two looks at the stacks of a node's simulated ranks, once a stall, as real agents take them."""

from collections.abc import Sequence
from typing import Final

from nemesis.producers.origin import Origin
from nemesis.producers.rank_stack import Look, stack_of
from nemesis.schemas.observed import StackSeen
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.ranks import Rank, pid_of
from nemesis.sim.jobs.stacks import frames_of, stand_of

FIRST_NS: Final = 4_000_000_000  # as actors/agent/stack_looks.py
APART_NS: Final = 8_000_000_000
Moment = tuple[int, int]


class StackLooks:
    """Of one node."""

    def __init__(self, origin: Origin) -> None:
        self._origin: Final = origin
        self._moment: Moment | None = None
        self._since_ns = 0
        self._first: dict[int, Look] = {}
        self._is_told = False

    def look(self, job: Job, ranks: Sequence[Rank], now_ns: int) -> list[StackSeen]:
        """The ranks that answer have stood until now; what there is to tell of it."""
        if not ranks:
            return []
        moment = max((rank.epoch, rank.step) for rank in ranks)
        if moment != self._moment:
            self._moment, self._since_ns, self._is_told = moment, now_ns, False
            self._first = {}
        stood_ns = now_ns - self._since_ns
        if self._is_told or stood_ns < FIRST_NS:
            return []
        if not self._first:
            self._first = _looks(job, ranks, now_ns)
        if stood_ns < FIRST_NS + APART_NS:
            return []
        self._is_told = True
        return [
            stack_of(
                self._origin,
                job=job.name,
                rank=number,
                pid=pid_of(number),
                looks=(self._first[number], look),
            )
            for number, look in _looks(job, ranks, now_ns).items()
            if number in self._first
        ]


def _looks(job: Job, ranks: Sequence[Rank], now_ns: int) -> dict[int, Look]:
    looks: dict[int, Look] = {}
    for rank in ranks:
        stand = stand_of(job, rank.number, now_ns)
        ran_ns = now_ns // 1_000 * stand.ran_per_mille
        looks[rank.number] = Look(
            at_ns=now_ns,
            frames=frames_of(stand, now_ns),
            ran_ns=ran_ns,
            process_ran_ns=ran_ns,
            waits_in=stand.waits_in,
        )
    return looks
