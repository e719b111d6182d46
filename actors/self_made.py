"""Memberships that agents made by themselves while the log was away, turned into facts.

An agent that followed the plan laid down for the loss of the log reports in an epoch that nobody
decided. When every rank of that epoch has been heard of, or nothing more came for a while, it is
written down, once an epoch, and the healer goes on from there.
"""

import asyncio
from typing import Final

from nemesis.actors.claims import Claims
from nemesis.actors.notary import Notary
from nemesis.schemas.done import MembershipReported
from nemesis.schemas.plans import Report
from nemesis.schemas.rank_ranges import format_ranks

SETTLE_S: Final = 2.0  # agents find the log again within a second of each other


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
        while True:
            await self._heard.wait()
            self._heard.clear()
            await asyncio.sleep(SETTLE_S)
            if self._heard.is_set():
                continue
            for (job, epoch), ranks in sorted(self._running.items()):
                if ranks:
                    await self._notary.report(self._fact(job, epoch, ranks))
            self._running.clear()

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
