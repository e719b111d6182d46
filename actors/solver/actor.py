"""The solver as an actor: reads what the scheduler asks, proposes in time, decides nothing.

A request is answered once, whoever of several copies is first: the proposal's subject takes one. A
request whose deadline is over is left alone, so one that starts late wastes nothing. What it says
is checked by the scheduler; without it jobs are placed all the same, after the wait.
"""

import asyncio
from typing import Final

from nemesis.actors.solver.together import together
from nemesis.processors.fold import Input
from nemesis.processors.placement.counts import Answer, proposal
from nemesis.processors.placement.ground import Gang, Ground
from nemesis.schemas.facts import encode_conclusion
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.scheduled import GangProposed, PlacementProposed, PlacementRequested
from nemesis.streams.errors import PositionMovedError
from nemesis.streams.log import Log
from nemesis.streams.ticker import TICK_SUBJECT

REQUESTS: Final = "nemesis.events.placement_requested.*"
SHARE: Final = 0.6
"""Of the time until the deadline that the solver may take; the rest is for the way back."""
BOUND_SLACK: Final = 1e-6


class SolverActor:
    """Answers requests until it is cancelled."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log

    async def run(self) -> None:
        """Follow the requests from now on.

        Raises:
            LogUnavailableError: the log did not answer.
        """
        from_seq = (await self._log.bounds()).last_seq + 1
        async for record in self._log.follow(from_seq, subject=REQUESTS):
            request = Input(record).decoded()
            if isinstance(request, PlacementRequested):
                await self._answer(request)

    async def _answer(self, request: PlacementRequested) -> None:
        now_ns = max(request.at_ns, await self._log_time_ns())
        left_s = (request.deadline_ns - now_ns) / 1e9
        if left_s <= 0:
            return
        found = await asyncio.to_thread(proposed, request, seconds=left_s * SHARE)
        subject, payload = encode_conclusion(
            id=f"solver/{request.request}",
            source="/actors/solver",
            at_ns=request.at_ns,
            data=found,
            key=request.request,
        )
        try:
            await self._log.publish(subject, payload, expected_last_subject_seq=0)
        except PositionMovedError:
            return  # another copy was first

    async def _log_time_ns(self) -> int:
        tick = await self._log.last(TICK_SUBJECT)
        data = Input(tick).decoded() if tick is not None else None
        return data.at_ns if isinstance(data, ClockTicked) else 0


def proposed(request: PlacementRequested, *, seconds: float) -> PlacementProposed:
    """The best that is found in so many seconds."""
    ground = Ground(request.free, request.tiers)
    gangs = [Gang(gang.nodes, gang.segment) for gang in request.gangs]
    asked, answer = together(
        ground, gangs, [gang.weights for gang in request.gangs], seconds=seconds
    )
    placements = proposal(asked, gangs, answer)
    told = tuple(
        GangProposed(
            job=gang.job,
            shelves=tuple(part.shelf for part in placement),
            nodes=tuple(part.nodes for part in placement),
        )
        for gang, placement in zip(request.gangs, placements, strict=False)
    )
    return PlacementProposed(
        at_ns=request.at_ns,
        reason=_words(len(told), answer),
        request=request.request,
        gangs=told,
        bound=max(0, int(answer.bound - BOUND_SLACK) + 1) if answer.bound > BOUND_SLACK else 0,
        status=answer.status,
    )


def _words(count: int, answer: Answer) -> str:
    found = f"places for {count} jobs" if count else "nothing"
    return f"HiGHS found {found}: {answer.status}"
