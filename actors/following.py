"""What a node's agent makes of plans: which one counts, and what is left to do for it.

Pure. Plans of a job are ordered (schemas/plans.py): a later one is accepted, the same again is
answered and changes nothing, an earlier one or one for another boot is refused. What is left to do
is found by comparing the plan with the ranks as they are, so an agent that died in the middle, or
that is told twice, does only what is missing.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from nemesis.schemas.plans import Outcome, Plan, PlanAnswer, RankStage, RankState, order_of
from nemesis.schemas.rank_ranges import parse_ranks

Doing = Literal["hold", "fence", "join", "start", "leave"]


class Rank(Protocol):
    """A rank as its agent knows it."""

    @property
    def number(self) -> int:
        """As submitted."""
        ...

    @property
    def stage(self) -> RankStage:
        """Where it is in its life."""
        ...

    @property
    def epoch(self) -> int:
        """The membership that it is in, or was in last."""
        ...


class Deed(msgspec.Struct, frozen=True):
    """One thing to do to one rank."""

    doing: Doing
    rank: int


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that an agent follows, as it keeps it over its own restarts."""

    plan: Plan
    by_itself: bool = False
    """Made by the agents without the log, after the grace; they do that once."""


def judge(plan: Plan, *, node: str, boot_id: str, last: Plan | None) -> tuple[Outcome, str]:
    """What becomes of a plan, and why where it is refused."""
    meant_for = plan.boot_ids.get(node, boot_id)
    if meant_for != boot_id:
        return "other_boot", f"{node} booted since: the plan is for {meant_for}, this is {boot_id}"
    if plan.kind == "observe" or last is None:
        return "accepted", ""
    if plan.life and last.life and plan.life != last.life:
        if plan.life < last.life:
            return "stale", "the job has begun again since"
        return "accepted", ""
    here, there = order_of(plan.epoch, plan.kind), order_of(last.epoch, last.kind)
    if here == there:
        if plan.members != last.members:
            return "refused", f"epoch {plan.epoch} has other members already: {last.members}"
        return "repeated", ""
    if here < there:
        return "stale", f"{last.kind} of epoch {last.epoch} was accepted before"
    return "accepted", ""


def answer_to(
    plan: Plan,
    judged: tuple[Outcome, str],
    *,
    node: str,
    boot_id: str,
    last: Plan | None,
    ranks: tuple[RankState, ...],
    at: tuple[int, int],
    members: str = "",
) -> PlanAnswer:
    """What an agent says to a plan: what it made of it, the plan it follows now, its ranks.

    `at`: its start, and how many reports it has made; `members`: as in PlanAnswer.
    """
    outcome, why = judged
    return PlanAnswer(
        node=node,
        boot_id=boot_id,
        job=plan.job,
        outcome=outcome,
        epoch=last.epoch if last else 0,
        kind=last.kind if last else "membership",
        why=why,
        ranks=ranks,
        members=members,
        start_ns=at[0],
        n=at[1],
    )


def local_ranks(plan: Plan, node: str, submitted: Iterable[int]) -> frozenset[int]:
    """The ranks whose place is this node from the plan on."""
    ranks = set(submitted)
    for placement in plan.placements:
        moved = parse_ranks(placement.ranks)
        if placement.node == node:
            ranks.update(moved)
        else:
            ranks.difference_update(moved)
    return frozenset(ranks)


def deeds(plan: Plan, node: str, ranks: Sequence[Rank], submitted: Iterable[int]) -> list[Deed]:
    """What is left to do on this node, in order; `ranks` are those that run or ran here last."""
    fenced = frozenset(parse_ranks(plan.fenced))
    here = [Deed("fence", r.number) for r in ranks if r.number in fenced and _unfenced(r, plan)]
    alive = [r for r in ranks if r.number not in fenced and r.stage in ("running", "held")]
    match plan.kind:
        case "observe":
            return []
        case "hold":
            held = [r for r in alive if r.stage == "running" and r.epoch <= plan.epoch]
            return here + [Deed("hold", r.number) for r in held]
        case "stop":
            return here + [Deed("leave", r.number) for r in alive if r.epoch <= plan.epoch]
        case "membership":
            return here + _membership(plan, node, ranks, submitted)


def _membership(
    plan: Plan, node: str, ranks: Sequence[Rank], submitted: Iterable[int]
) -> list[Deed]:
    # a member whose place is another node from now on leaves this one
    members = frozenset(parse_ranks(plan.members)) & local_ranks(plan, node, submitted)
    started = frozenset(parse_ranks(plan.started))
    by_number = {rank.number: rank for rank in ranks}
    todo: list[Deed] = []
    for number in sorted(members & started):
        rank = by_number.get(number)
        if rank is None or rank.epoch < plan.epoch or rank.stage in ("failed", "fenced"):
            todo.append(Deed("start", number))
    for rank in ranks:
        if rank.epoch >= plan.epoch or rank.stage not in ("running", "held"):
            continue
        if rank.number in members and rank.number not in started:
            todo.append(Deed("join", rank.number))
        elif rank.number not in members:
            todo.append(Deed("leave", rank.number))
    return todo


def _unfenced(rank: Rank, plan: Plan) -> bool:
    # a rank that was started again in a later epoch is another process
    return rank.stage != "fenced" and rank.epoch <= plan.epoch
