"""Memberships that agents made by themselves while the log was away, turned into facts.

Agents that followed the plan laid down for the loss of the log agreed on the members of an epoch
that nobody decided, and each names them all, in its reports and in its answers to plans: a report
may have been sent before anybody listened, or to a copy that died. Once more than half of the
members' nodes, which are more than half of the job's, have said the same it is written down, once
an epoch, and the healer goes on from there: no single node can make it up, an agent that finds the
log late is not missing, and a member that died since is told by its exit or its silence.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from nemesis.actors.claims import Claims
from nemesis.actors.notary import Notary
from nemesis.actors.planning import homes
from nemesis.schemas.done import MembershipReported
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.plans import PlanAnswer, Report
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks


class SelfMade:
    """Hears of epochs that no decision made."""

    def __init__(self, claims: Claims, notary: Notary) -> None:
        self._claims: Final = claims
        self._notary: Final = notary
        self._said_by: Final[dict[tuple[str, int, str], set[str]]] = {}
        """Per job, epoch and members: the nodes that said so."""
        self._agreed: Final[asyncio.Queue[MembershipReported]] = asyncio.Queue()

    def hear(self, said: Report | PlanAnswer) -> None:
        """Take what an agent says; anything but a membership that agents made is ignored."""
        standing = self._claims.jobs.get(said.job)
        made_up = said.kind == "membership" and said.members
        if standing is None or not made_up or said.epoch <= standing.epoch:
            return
        home = homes(standing, standing.placements)
        before = {home[rank] for rank in parse_ranks(standing.members)}
        members = _members(said) & home.keys()
        nodes = {home[rank] for rank in members}
        if said.node not in nodes or not _are_most(nodes, before):
            return
        place = (said.job, said.epoch, format_ranks(members))
        said_by = self._said_by.setdefault(place, set())
        known = _are_most(said_by, nodes)
        said_by.add(said.node)
        if _are_most(said_by, nodes) and not known:
            self._agreed.put_nowait(self._fact(said, members))

    async def run(self) -> None:
        """Write down what was agreed, for ever."""
        while True:
            await self._notary.report(await self._agreed.get())

    def _fact(self, said: Report | PlanAnswer, members: frozenset[int]) -> MembershipReported:
        return MembershipReported(
            at_ns=self._claims.log_time_ns,
            reason=f"{len(members)} ranks of {said.job} went on alone while the log was away.",
            job=said.job,
            epoch=said.epoch,
            members=format_ranks(members),
            world=len(members),
            step=max((state.step for state in said.ranks), default=0),
        )


def _members(said: Report | PlanAnswer) -> frozenset[int]:
    """The members that an agent names, none where it is not understood."""
    try:
        return frozenset(parse_ranks(said.members))
    except BadNameError:
        return frozenset()


def _are_most(some: Collection[str], of: Collection[str]) -> bool:
    return 2 * len(some) > len(of)
