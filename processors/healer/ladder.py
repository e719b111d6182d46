"""The smallest recovery that is safe and enough for one fault of one job.

Why: a restart of everything always works and costs minutes of every GPU; most faults need less.
How: the playbook names the rungs that would cure this fault, preferred first; each is tried
against the job as it stands (whole replicas, the smallest world, spares, who holds the state,
nodes to be left alone) and the first that holds is taken; every one passed over says why.
Not here: when to decide, how often (healer.py), and whether policy lets it happen (limits.py).
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from nemesis.processors.healer.playbooks import playbook_of
from nemesis.processors.healer.replicas import degrees_of, replica_of, replicas_of, world_of
from nemesis.schemas.codes import Action, FaultClass, Signature
from nemesis.schemas.components import node_of
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import Placement, StateSource
from nemesis.schemas.policy import PREDICTED_WORTH, Policy, Step
from nemesis.schemas.rank_ranges import format_ranks

WAITS_FOR_A_PERSON: Final[frozenset[Action]] = frozenset(
    {"fix_program", "fix_config", "fix_fabric", "raise_timeout", "restart_service", "pause"}
)
"""Enough even for a job that stands still: nothing that we do would make it run."""
_TAKES_A_NODE: Final[frozenset[Action]] = frozenset(
    {"cordon_node", "drain_node", "reset_gpu", "reboot_node", "replace_hardware"}
)
"""What a protected node is spared, whoever would do it."""
_AFTER_A_DEATH: Final[tuple[Action, ...]] = ("restart_rank", "shrink", "restart_job")
"""What cures a job with a dead rank where the playbook's rungs leave it dead."""


_REGROUPS_THE_LIVING: Final[frozenset[Action]] = frozenset(
    {"reinit_communicator", "restart_rank", "shrink", "swap_node"}
)
"""What only ranks that call the hook can take part in."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands."""

    submitted: JobSubmitted
    members: frozenset[int]
    moved: Mapping[int, str]
    """Where ranks run that are no longer on the node they were submitted to."""
    spares: tuple[str, ...]
    """Nodes that may join, best first."""
    unattached: bool = False
    """None of its ranks has ever called the hook: whoever goes on is started anew."""

    def node_of(self, rank: int) -> str:
        """The node that a rank runs on."""
        return (
            self.moved.get(rank) or self.submitted.node_names[rank // self.submitted.ranks_per_node]
        )

    def ranks_on(self, nodes: Collection[str]) -> frozenset[int]:
        """The members that run on these nodes."""
        return frozenset(rank for rank in self.members if self.node_of(rank) in nodes)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to be wrong."""

    fault_class: FaultClass
    signature: Signature = ""
    target: str
    """The component to name where no other fits better."""
    dead: frozenset[int]
    """Members that ended, were lost, or sit on the part at fault."""
    bad_nodes: frozenset[str] = frozenset()
    """Nodes with a part at fault."""
    silent_nodes: frozenset[str] = frozenset()
    """Nodes that do not answer."""
    predicted: str = ""
    """The playbook of a failure that has not come yet: `dead` still live."""
    chance_ppm: int = 0
    """Of that failure, where its playbook is that of costs."""

    @property
    def by_cost(self) -> bool:
        """Whether only costs speak for an answer."""
        return self.predicted == PREDICTED_WORTH


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A rung and what it does to the job's membership."""

    action: Action
    target: str
    refused: tuple[str, ...] = ()
    regroups: bool = False
    """It makes a new membership; the rest is empty otherwise."""
    members: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    state_from: StateSource = "memory"
    joined: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    nodes_out: tuple[str, ...] = ()
    """Nodes with a part at fault that no longer work for the job after it."""
    returned: tuple[int, ...] = ()
    """Ranks that were no members, and whose process waits."""


class NoRung(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing that would be enough is safe."""

    wanted: Action
    refused: tuple[str, ...]


def choose(
    fault: Fault,
    job: JobView,
    policy: Policy,
    *,
    protected: Collection[str] = (),
    failed: Collection[Action] = (),
    vetoed: Collection[Action] = (),
    nodes_out: int = 0,
) -> Choice | NoRung:
    """The first rung that is safe, of those that are enough and were not tried or forbidden."""
    steps = steps_of(fault, policy)
    if fault.dead and not any(_ends_it(step.action) for step in steps):
        steps = (*steps, *(Step(action=rung) for rung in _AFTER_A_DEATH))
    refused: list[str] = []
    for step in steps:
        rung = step.action
        answer: Choice | str
        if rung in failed:
            answer = "it was tried and failed"
        elif rung in vetoed:
            answer = "a person forbade it"
        else:
            answer = _try(rung, fault, job, policy)
        if isinstance(answer, Choice):
            why = _unmet(step, answer, fault, job, nodes_out) or _touches_protected(
                answer, fault, job, protected
            )
            if not why:
                return msgspec.structs.replace(answer, refused=tuple(refused))
            answer = why
        refused.append(f"{rung}: {answer}")
    return NoRung(wanted=steps[0].action, refused=tuple(refused))


def grow(job: JobView, ready: Collection[int], out: Collection[str]) -> Choice | None:
    """Every rank that is ready joins again, by whole replicas; not on nodes that are out."""
    sound = {rank for rank in ready if job.node_of(rank) not in out}
    there = job.members | sound
    whole = [rank for rank in sorted(sound) if _siblings(job, rank) <= there]
    if not whole:
        return None
    members = job.members | frozenset(whole)
    return Choice(
        action="restart_rank",
        target=f"rank/{job.submitted.job}/{whole[0]}",
        regroups=True,
        members=tuple(sorted(members)),
        state_from="peer",
        placements=_placements(job, members, {}),
        returned=tuple(whole),
    )


def _siblings(job: JobView, rank: int) -> frozenset[int]:
    """The ranks of a rank's replica, as submitted."""
    own = replica_of(job.submitted, rank)
    world = range(world_of(job.submitted))
    return frozenset(each for each in world if replica_of(job.submitted, each) == own)


def steps_of(fault: Fault, policy: Policy) -> tuple[Step, ...]:
    """The steps that would be enough for a fault, preferred first."""
    return playbook_of(fault.predicted or fault.fault_class, fault.signature, policy.playbooks)


def _ends_it(rung: Action) -> bool:
    """Whether a job with a dead rank can go on after it, or waits for a person."""
    return rung in _RUNGS or rung in WAITS_FOR_A_PERSON


def _try(rung: Action, fault: Fault, job: JobView, policy: Policy) -> Choice | str:
    """The rung applied to the job, or why it must not be."""
    if job.unattached and rung in _REGROUPS_THE_LIVING:
        return "no rank has called the hook (nemesis.attach), so none can regroup"
    if rung in _RUNGS:
        world_min = max(job.submitted.world_min, policy.world_min)
        return _RUNGS[rung](fault, job, world_min)
    if fault.dead and not fault.predicted and rung not in WAITS_FOR_A_PERSON:
        return "ranks are dead and would stay so"
    return Choice(action=rung, target=fault.target)


def _reinit(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    if fault.dead:
        return "ranks are dead and would stay so"
    return Choice(
        action="reinit_communicator",
        target=f"job/{job.submitted.job}",
        regroups=True,
        members=tuple(sorted(job.members)),
        placements=_placements(job, job.members, {}),
    )


def _restart_rank(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    if not fault.dead:
        return "no rank is named"
    silent = sorted({job.node_of(rank) for rank in fault.dead} & fault.silent_nodes)
    if silent:
        return f"node {silent[0]} does not answer"
    if fault.target in {f"node/{job.node_of(rank)}" for rank in fault.dead}:
        return f"{fault.target} itself is at fault"
    if not _holds_state(job, fault.dead):
        return "no untouched replica holds the state"
    return Choice(
        action="restart_rank",
        target=f"rank/{job.submitted.job}/{min(fault.dead)}",
        regroups=True,
        members=tuple(sorted(job.members)),
        started=tuple(sorted(fault.dead)),
        state_from="peer",
        placements=_placements(job, job.members, {}),
    )


def _shrink(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    if not fault.dead:
        return "no rank is named"
    gone = _with_replicas(job, fault.dead)
    left = job.members - gone
    why = _too_small(left, world_min)
    if why:
        return why
    return Choice(
        action="shrink",
        target=f"job/{job.submitted.job}",
        regroups=True,
        members=tuple(sorted(left)),
        removed=tuple(sorted(gone)),
        placements=_placements(job, left, {}),
        nodes_out=_emptied(fault, job, left),
    )


def _swap_node(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    homes = {job.node_of(rank) for rank in fault.dead}
    if not homes:
        return "no rank is named"
    # ranks that gave up because of a fault elsewhere start again where they were
    bad = sorted(homes & (fault.bad_nodes | fault.silent_nodes) or homes)
    spares = _usable_spares(fault, job)
    if len(spares) < len(bad):
        return f"{len(bad)} spare nodes are needed, {len(spares)} are there"
    starting = job.ranks_on(bad) | fault.dead
    if not _holds_state(job, starting):
        return "no untouched replica holds the state"
    joined = spares[: len(bad)]
    return Choice(
        action="swap_node",
        target=f"node/{bad[0]}",
        regroups=True,
        members=tuple(sorted(job.members)),
        started=tuple(sorted(starting)),
        state_from="peer",
        joined=joined,
        placements=_placements(job, job.members, dict(zip(bad, joined, strict=True))),
        nodes_out=tuple(bad),
    )


def _restart_job(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    bad = sorted(node for node in fault.bad_nodes | fault.silent_nodes if job.ranks_on((node,)))
    return _restart_without("restart_job", bad, fault, job, world_min)


def _drain_node(fault: Fault, job: JobView, world_min: int) -> Choice | str:
    homes = {job.node_of(rank) for rank in fault.dead}
    bad = sorted(homes | {node for node in fault.bad_nodes if job.ranks_on((node,))})
    if not bad:
        return Choice(action="drain_node", target=fault.target)
    return _restart_without("drain_node", bad, fault, job, world_min)


def _restart_without(
    action: Action, bad: list[str], fault: Fault, job: JobView, world_min: int
) -> Choice | str:
    """Everything anew from the checkpoint, without the bad nodes: spares first, then fewer."""
    spares = _usable_spares(fault, job)
    takes_over = dict(zip(bad, spares, strict=False))
    lost = [node for node in bad if node not in takes_over]
    gone = _with_replicas(job, job.ranks_on(lost))
    left = job.members - gone
    why = _too_small(left, world_min)
    if why:
        return why
    placements = _placements(job, left, takes_over)
    used = {placement.node for placement in placements}
    return Choice(
        action=action,
        target=f"node/{bad[0]}" if action == "drain_node" else f"job/{job.submitted.job}",
        regroups=True,
        members=tuple(sorted(left)),
        removed=tuple(sorted(gone)),
        started=tuple(sorted(left)),
        state_from="checkpoint",
        joined=tuple(spare for spare in takes_over.values() if spare in used),
        placements=placements,
        nodes_out=tuple(bad),
    )


_RUNGS: Final = {
    "reinit_communicator": _reinit,
    "restart_rank": _restart_rank,
    "shrink": _shrink,
    "swap_node": _swap_node,
    "restart_job": _restart_job,
    "drain_node": _drain_node,
}
"""The rungs that make a new membership."""


def _with_replicas(job: JobView, ranks: Collection[int]) -> frozenset[int]:
    """These members and all that share a replica with them."""
    left = degrees_of(job.submitted).without(ranks, job.members, world_of(job.submitted))
    return job.members.difference(left)


def _holds_state(job: JobView, ranks: Collection[int]) -> bool:
    """Whether a replica that these ranks are no part of has all its members."""
    touched = replicas_of(job.submitted, ranks)
    return bool(replicas_of(job.submitted, job.members) - touched)


def _too_small(left: frozenset[int], world_min: int) -> str:
    if len(left) >= max(1, world_min):
        return ""
    return f"{len(left)} ranks would be left, at least {max(1, world_min)} are needed"


def _emptied(fault: Fault, job: JobView, left: frozenset[int]) -> tuple[str, ...]:
    """Nodes with something wrong on which nothing goes on; sound ones become spares instead."""
    unsound = {job.node_of(rank) for rank in fault.dead} | fault.bad_nodes | fault.silent_nodes
    return tuple(sorted(unsound - {job.node_of(rank) for rank in left}))


def _usable_spares(fault: Fault, job: JobView) -> tuple[str, ...]:
    unfit = fault.bad_nodes | fault.silent_nodes
    return tuple(spare for spare in job.spares if spare not in unfit)


def _placements(
    job: JobView, members: Collection[int], takes_over: Mapping[str, str]
) -> tuple[Placement, ...]:
    """Where members run that are not where they were submitted to, by node."""
    homes: dict[str, list[int]] = {}
    for rank in sorted(members):
        node = job.node_of(rank)
        node = takes_over.get(node, node)
        if node != job.submitted.node_names[rank // job.submitted.ranks_per_node]:
            homes.setdefault(node, []).append(rank)
    return tuple(Placement(node=node, ranks=format_ranks(homes[node])) for node in sorted(homes))


def _unmet(step: Step, choice: Choice, fault: Fault, job: JobView, nodes_out: int) -> str:
    """The condition of its playbook that a step does not meet, or nothing."""
    spares, out = len(_usable_spares(fault, job)), nodes_out + len(choice.nodes_out)
    world = len(choice.members) if choice.regroups else len(job.members)
    if spares < step.spares_min:
        return f"its playbook asks for {step.spares_min} spare nodes, {spares} are there"
    if world < step.world_min:
        return f"its playbook asks for {step.world_min} ranks after it, {world} would be left"
    if step.ranks_lost_max is not None and len(fault.dead) > step.ranks_lost_max:
        return f"its playbook allows {step.ranks_lost_max} lost ranks, {len(fault.dead)} are lost"
    if step.nodes_out_max is not None and out > step.nodes_out_max:
        return f"its playbook allows {step.nodes_out_max} nodes out of work, {out} would be"
    return ""


def _touches_protected(
    choice: Choice, fault: Fault, job: JobView, protected: Collection[str]
) -> str:
    """Which protected node would lose or gain a living process, or be taken out, if any."""
    touched = set(choice.nodes_out) | set(choice.joined)
    living = set(choice.removed) if fault.predicted else set(choice.removed) - fault.dead
    touched |= {job.node_of(rank) for rank in living | set(choice.started)}
    if choice.action in _TAKES_A_NODE:
        touched |= {*fault.bad_nodes, node_of(choice.target) or ""}
    for node in sorted(touched & set(protected)):
        return f"node {node} is protected"
    return ""
