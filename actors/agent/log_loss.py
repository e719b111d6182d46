"""What an agent does while the log is away: hold what cannot go on, and once what was logged.

Nobody decides without the log. A plan that lay in it says what to do after its grace
(`on_log_loss`), once, under the next epoch; before the first plan nothing does. Only where all
members are this node's: of another node nobody here knows whether it lives, and two halves must not
go on apart. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from nemesis.actors.following import Accepted
from nemesis.schemas.plans import Plan, RankStage
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.training.membership import Order

ABSENCE_S: Final = 0.1
"""How often to look."""


class Rank(Protocol):
    """A rank as its agent knows it."""

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended yet."""
        ...

    @property
    def stage(self) -> RankStage:
        """Where it is in its life."""
        ...


class Absence:
    """How long the log has been away, and what was done about it."""

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._held_epoch = -1

    def due(
        self,
        now_ns: int,
        *,
        connected: bool,
        last: Accepted | None,
        members: Sequence[int],
        ranks: Mapping[int, Rank],
    ) -> Order | Plan | None:
        """A hold for the node's members, or the plan that they go on with; mostly nothing.

        `now_ns`: of a clock that nobody sets; `last`: the plan in force; `members`: of the job;
        `ranks`: of this node, by number.
        """
        if connected:
            self._since_ns = None
            return None
        if self._since_ns is None:
            self._since_ns = now_ns
        here = {rank: ranks[rank] for rank in members if rank in ranks}
        if not any(not rank.is_alive or rank.stage == "held" for rank in here.values()):
            return None
        epoch = last.plan.epoch if last else 0
        if epoch > self._held_epoch:
            self._held_epoch = epoch
            return Order(epoch, "hold")
        if last is None or last.by_itself or len(here) < len(members):
            return None
        if last.plan.on_log_loss == "wait" or now_ns - self._since_ns < last.plan.grace_ns:
            return None
        return _next(last.plan, here)


def _next(plan: Plan, members: Mapping[int, Rank]) -> Plan | None:
    restarts = plan.on_log_loss == "restart"
    going = [number for number, rank in members.items() if restarts or rank.is_alive]
    if not going:
        return None
    return Plan(
        job=plan.job,
        epoch=plan.epoch + 1,
        kind="membership",
        members=format_ranks(going),
        world=len(going),
        fenced=format_ranks(set(members) - set(going)),
        started=format_ranks(going) if restarts else "",
        state_from="checkpoint" if restarts else "memory",
        placements=plan.placements,
        on_log_loss=plan.on_log_loss,
        grace_ns=plan.grace_ns,
        life=plan.life,
    )
