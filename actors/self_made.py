"""Memberships that agents made by themselves while the log was away, turned into facts.

An agent that followed the plan laid down for the loss of the log reports in an epoch that nobody
decided. When every node of the job has been heard of, or nothing more came for a while, it is
written down, once an epoch, and the healer goes on from there. A node that is heard of too late
would be missing from it for ever, so the wait is long where nodes are missing.
"""

import asyncio
from typing import Final

from nemesis.actors.claims import Claims
from nemesis.actors.notary import Notary
from nemesis.actors.planning import homes
from nemesis.schemas.done import MembershipReported
from nemesis.schemas.plans import Report
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks

SETTLE_S: Final = 2.0  # agents find the log again within a second of each other
MISSING_S: Final = 10.0  # or later, on a busy node; one that is gone never does


class SelfMade:
    """Collects reports of epochs that no decision made."""

    def __init__(self, claims: Claims, notary: Notary) -> None:
        self._claims: Final = claims
        self._notary: Final = notary
        self._running: Final[dict[tuple[str, int], dict[int, int]]] = {}
        """Per job and epoch: the ranks that run in it and the step of each."""
        self._heard: Final = asyncio.Event()

    def hear(self, report: Report) -> None:
        """Take a report; anything but a membership that agents made is ignored."""
        standing = self._claims.jobs.get(report.job)
        made_up = report.by == "agent" and report.kind == "membership"
        if standing is None or not made_up or report.epoch <= standing.epoch:
            return
        ranks = self._running.setdefault((report.job, report.epoch), {})
        for state in report.ranks:
            if state.stage == "running" and state.epoch == report.epoch:
                ranks[state.rank] = state.step
        self._heard.set()

    async def run(self) -> None:
        """Write down what settled, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._heard.wait()
            deadline = loop.time() + MISSING_S
            while self._heard.is_set() or (self._misses_nodes() and loop.time() < deadline):
                self._heard.clear()
                await asyncio.sleep(SETTLE_S)
            for (job, epoch), ranks in sorted(self._running.items()):
                if ranks:
                    await self._notary.report(self._fact(job, epoch, ranks))
            self._running.clear()

    def _misses_nodes(self) -> bool:
        """Whether a node of a job that went on has not been heard of in its new epoch."""
        for (job, _), ranks in self._running.items():
            standing = self._claims.jobs.get(job)
            if standing is not None:
                home = homes(standing, standing.placements)
                expected = {home[rank] for rank in parse_ranks(standing.members)}
                if expected - {home[rank] for rank in ranks if rank in home}:
                    return True
        return False

    def _fact(self, job: str, epoch: int, ranks: dict[int, int]) -> MembershipReported:
        return MembershipReported(
            at_ns=self._claims.log_time_ns,
            reason=f"{len(ranks)} ranks of {job} went on by themselves while the log was away.",
            job=job,
            epoch=epoch,
            members=format_ranks(ranks),
            world=len(ranks),
            step=max(ranks.values()),
        )
