"""From a decision to the plan that agents get, and from what agents say to what became of it.

Pure: the same decision gives the same plan on every copy of the actor and at every start, which is
why sending it again is harmless.
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from nemesis.actors.claims import Effective, Standing
from nemesis.schemas.decided import QuiesceDecided
from nemesis.schemas.plans import Placement, Plan, RankState
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks

ENDED: Final = frozenset({"fenced", "left", "failed"})


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a plan has got."""

    outcome: Literal["done", "failed", "open"]
    lost: str = ""
    step: int = 0
    arrived_count: int = 0
    starting_count: int = 0
    """Ranks whose process is on its way: it imports, loads its state, connects."""
    unattached: str = ""
    """As `unattached_of` says."""
    stopped: str = ""
    """Ranks that a hold does not wait for: their process is stopped, and others are held."""


def plan_of(
    decision: Effective,
    standing: Standing,
    boot_ids: Mapping[str, str],
    *,
    stores: Mapping[str, str] = {},
    at_boundary: bool = False,
) -> Plan:
    """The plan that carries a decision out; `boot_ids`, `stores`: of the nodes that were heard of.

    The members meet at the store of the first of them whose node has one and has not failed.
    """
    job = standing.submitted
    held = isinstance(decision, QuiesceDecided)
    started = "" if isinstance(decision, QuiesceDecided) else decision.started
    members = standing.members if isinstance(decision, QuiesceDecided) else decision.members
    placements = placements_of(decision, standing)
    home = homes(standing, placements) if stores else {}
    failed = () if isinstance(decision, QuiesceDecided) else decision.nodes_out
    places = (home[rank] for rank in parse_ranks(members) if home)
    store = next((stores[node] for node in places if node in stores and node not in failed), "")
    return Plan(
        job=job.job,
        epoch=decision.epoch,
        kind="hold" if held else "membership",
        decision=decision.decision,
        members=members,
        world=len(parse_ranks(members)),
        # who leaves at a boundary has its part in the last step, and ends by itself
        fenced="" if at_boundary and not held else format_ranks(_ended(decision)),
        started=started,
        state_from="memory" if isinstance(decision, QuiesceDecided) else decision.state_from,
        placements=placements,
        issued_ns=decision.at_ns,
        deadline_ns=decision.deadline_ns,
        boot_ids={node: boot_ids[node] for node in sorted(boot_ids)},
        on_log_loss=_on_log_loss(job.on_log_loss),
        grace_ns=job.grace_ns,
        at_boundary=at_boundary and not held,
        store="" if held else store,
        step=-1 if isinstance(decision, QuiesceDecided) else decision.checkpoint_step,
        checkpoint="" if isinstance(decision, QuiesceDecided) else decision.checkpoint,
        why=decision.reason if started else "",
        life=standing.begun_seq,
    )


def _ended(decision: Effective) -> tuple[int, ...]:
    if isinstance(decision, QuiesceDecided):
        return decision.dead_ranks
    return decision.removed_ranks


def placements_of(decision: Effective, standing: Standing) -> tuple[Placement, ...]:
    """Where members run that moved, once the decision is carried out."""
    if isinstance(decision, QuiesceDecided):
        return standing.placements
    return decision.placements


def homes(standing: Standing, placements: tuple[Placement, ...]) -> dict[int, str]:
    """The node of every rank that was submitted."""
    job = standing.submitted
    home = {
        rank: node
        for at, node in enumerate(job.node_names)
        for rank in range(at * job.ranks_per_node, (at + 1) * job.ranks_per_node)
    }
    for placement in placements:
        home.update(dict.fromkeys(parse_ranks(placement.ranks), placement.node))
    return home


def nodes_of(decision: Effective, standing: Standing) -> tuple[str, ...]:
    """Every node that must hear the plan: where ranks run now, and where they will."""
    before = homes(standing, standing.placements)
    after = homes(standing, placements_of(decision, standing))
    ranks = set(parse_ranks(standing.members))
    return tuple(sorted({before[r] for r in ranks} | {after[r] for r in ranks}))


def progress_of(
    plan: Plan, home: Mapping[int, str], states: Mapping[tuple[str, int], RankState]
) -> Progress:
    """What became of a plan, from the newest state of each (node, rank)."""
    missing = starting = 0
    lost: list[int] = []
    steps: list[int] = []
    ended: list[int] = []
    stopped: list[int] = []
    fenced, started = frozenset(parse_ranks(plan.fenced)), frozenset(parse_ranks(plan.started))
    unattached = unattached_of(plan, home, states)
    for rank in parse_ranks(plan.members):
        state = states.get((home[rank], rank))
        if state is None:
            missing += rank not in fenced
        elif _has_finished(plan, state):
            steps.append(state.step)
        elif state.stage in ENDED and (plan.kind == "hold" or state.epoch >= plan.epoch):
            lost.append(rank)
            ended.append(state.step)
        elif _has_arrived(plan, state):
            steps.append(state.step)
        elif plan.kind == "hold" and state.stopped:
            stopped.append(rank)
        elif rank in unattached and (rank not in started or state.epoch >= plan.epoch):
            continue  # it runs: nobody can see more of it
        else:
            missing += 1
            starting += state.stage == "starting"
    if not steps:
        missing += len(stopped)  # all are: the job was suspended, and may go on
    failed = plan.kind == "membership" and bool(lost)
    return Progress(
        outcome="failed" if failed else "open" if missing else "done",
        lost=format_ranks(lost),
        step=max(steps or ended, default=0),
        arrived_count=len(steps),
        starting_count=starting,
        unattached=format_ranks(unattached),
        stopped=format_ranks(stopped),
    )


def unattached_of(
    plan: Plan, home: Mapping[int, str], states: Mapping[tuple[str, int], RankState]
) -> frozenset[int]:
    """The living members, where none of them has ever called the hook: they load still, or are of
    a script that never will; nobody where one has, or where one was not heard of."""
    known = [states.get((home[rank], rank)) for rank in parse_ranks(plan.members)]
    if any(state is None or state.attached for state in known):
        return frozenset()
    return frozenset(state.rank for state in known if state and state.stage not in ENDED)


def unheard(plan: Plan, home: Mapping[int, str], answered: Collection[str]) -> str:
    """Members on nodes that did not answer, in rank_ranges form."""
    return format_ranks(rank for rank in parse_ranks(plan.members) if home[rank] not in answered)


def _has_finished(plan: Plan, state: RankState) -> bool:
    """Whether the job went on and has come to its end since: that takes less than a report where
    few steps were left. Before the epoch: its members were to change after a step that was none.
    """
    if plan.kind != "membership" or state.stage != "left":
        return False
    return state.rank not in parse_ranks(plan.started) or state.epoch >= plan.epoch


def _has_arrived(plan: Plan, state: RankState) -> bool:
    if plan.kind == "hold":
        return state.stage == "held"
    return state.stage == "running" and state.epoch == plan.epoch


def _on_log_loss(word: str) -> Literal["wait", "restart", "shrink"]:
    match word:
        case "restart" | "shrink":
            return word
        case _:
            return "wait"  # the safe one, for a word that no agent knows
