"""Looks twice at the stacks of ranks that stand still, once a stall: who is stuck is in one place.

Recorders say who never called what the others wait in, and not what he does in its place; a stack
does. Nothing is stopped for it, and nothing asked of a job that gets on.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nemesis.actors.agent.ranks import Rank
from nemesis.producers.origin import Origin
from nemesis.producers.rank_stack import Look, look_at, stack_of
from nemesis.producers.recorder_tap import read_stacks
from nemesis.schemas.observed import StackSeen
from nemesis.training.membership import State

LOOK_S: Final = 0.5
FIRST_NS: Final = 4_000_000_000
"""Since the ranks stand: most of what a loop does besides steps is over by then."""
APART_S: Final = 8.0
TAP_S: Final = 1.0
"""A thread gives up Python's lock each 5 ms (sys.getswitchinterval), on a busy node later."""
Moment = tuple[int, State]


def moment_of(ranks: Sequence[Rank]) -> Moment:
    """Where ranks stand: the latest epoch and state that one of them told of."""
    return max(each.epoch for each in ranks), max(each.state for each in ranks)


def stalled(ranks: Mapping[int, Rank], now_ns: int) -> list[Rank]:
    """The ranks that should be making steps, if all of them stand for longer than steps take."""
    running = [each for each in ranks.values() if each.is_standing]
    return running if all(each.is_stalled(now_ns) for each in running) else []


class StackLooks:
    """At the ranks of one node."""

    def __init__(
        self,
        origin: Origin,
        job: str,
        ranks: Mapping[int, Rank],
        *,
        tap: Callable[[int], Path],
        on_seen: Callable[[Sequence[StackSeen]], None],
    ) -> None:
        """`tap`: where a rank serves its stacks."""
        self._origin: Final = origin
        self._job: Final = job
        self._ranks: Final = ranks
        self._tap: Final = tap
        self._on_seen: Final = on_seen
        self._told: Moment | None = None

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            now_ns = time.monotonic_ns()
            ranks = stalled(self._ranks, now_ns)
            if not ranks or now_ns - max(each.said_ns for each in ranks) < FIRST_NS:
                continue
            moment = moment_of(ranks)
            if moment != self._told:
                self._told = moment
                await self._look_twice(ranks, moment)

    async def _look_twice(self, ranks: Sequence[Rank], moment: Moment) -> None:
        first = await self._look(ranks, {})
        await asyncio.sleep(APART_S)
        there = stalled(self._ranks, time.monotonic_ns())
        if not there or moment_of(there) != moment:
            return  # it was a long step
        last = await self._look(there, first)
        facts = [
            stack_of(
                self._origin,
                job=self._job,
                rank=rank.number,
                pid=rank.pid,
                looks=(first[rank.pid], last[rank.pid]),
            )
            for rank in there
            if rank.pid in first
        ]
        if facts:
            self._on_seen(facts)

    async def _look(self, ranks: Sequence[Rank], before: Mapping[int, Look]) -> dict[int, Look]:
        """By process; who did not answer before is not asked again, for he still owes an answer."""
        asked = [rank for rank in ranks if rank.pid not in before or before[rank.pid].frames]
        said = await asyncio.gather(
            *(asyncio.to_thread(read_stacks, self._tap(rank.number), TAP_S) for rank in asked)
        )
        stacks = dict(zip((rank.pid for rank in asked), said, strict=True))
        now_ns = time.time_ns()
        return {rank.pid: look_at(rank.pid, stacks.get(rank.pid), now_ns) for rank in ranks}
