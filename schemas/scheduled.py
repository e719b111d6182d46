"""What the scheduler decided about jobs that wait for a place, and what was proposed to it.

A job begins with `job_submitted` that names nodes, or with `job_placed`; it is over with
`job_ended`. So whoever looks after jobs reads these three; `begun` tells them what begins. The
other facts here are for people, for whoever submits, and for advisors.
"""

from typing import Annotated, Any, Literal

import msgspec

from nemesis.schemas.inferred import Inference, Ppm
from nemesis.schemas.observed import Count, Index, Ns
from nemesis.schemas.operated import RANKS_PER_NODE_MAX, JobSubmitted


class JobFinding(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What a rule has to say of a description."""

    code: str
    """Of the rule, as docs/scheduling.md lists them; GRAMMAR: it is not in the language."""
    text: str
    legal: str = ""
    """The nearest that would do."""
    span: tuple[Index, ...] = ()
    """From and to of the characters that it speaks of; (): of all."""


class JobRejected(Inference, kw_only=True, frozen=True):
    """The job can never run as it was described: it is in no queue."""

    job: str
    findings: tuple[JobFinding, ...]


WaitCode = Literal["capacity", "nodes", "wish", "turn", "inventory", "shape", "advice"]
"""capacity: other jobs have what it needs. nodes: nodes that would do are held, on probation or
likely to fail. wish: it waits for a soft wish, until its time is over. turn: what is free is kept
for a job before it. inventory: no node has told what it is made of. shape: enough is free, and no
rule finds a place that holds. advice: it has a place, and waits a moment for advice."""


class JobQueued(Inference, kw_only=True, frozen=True):
    """A job waits, and why; said again when why changes."""

    job: str
    code: WaitCode
    position: Count
    """Jobs before it, at that moment."""
    blocked: tuple[str, ...] = ()
    """Nodes around which too little is free, or that are held."""
    helps: tuple[str, ...] = ()
    """What would let it start, one sentence each, the nearest first."""
    start_ns_expected: Ns = 0
    """Log time at which jobs that run now will have made room, if they end as they said; 0: not
    known."""


class PlanQuality(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """How good a place is known to be."""

    rule: str
    """Which rule found it; solver: an advisor's proposal that held."""
    objective: Count = 0
    """What the groups that it touches cost, summed over levels."""
    bound: Count = 0
    """No placement costs less."""
    bound_by: Literal["prefix", "solver"] = "prefix"
    """solver: on a solver's word, which cannot be checked in whole numbers."""
    unit: Literal["groups", "ns"] = "groups"
    """Of both: nanoseconds of a step where the step can be predicted."""
    status: Literal["optimal", "feasible"] = "feasible"
    gap_ppm: Ppm = 0
    step_ns: Count = 0
    """Predicted; 0: not known."""
    step_ns_least: Count = 0
    """With every group at its best place."""
    mfu_ppm: Ppm = 0
    """Predicted share of the GPUs' peak."""
    bound_share_ppm: Ppm = 0
    """step_ns_least / step_ns: how much of the best speed the place gives."""


class JobPlaced(Inference, kw_only=True, frozen=True):
    """A job has nodes and begins: rank r on node r // ranks_per_node, as in job_submitted."""

    job: str
    nodes: tuple[str, ...]
    """In node_ranges form, in the order of the ranks."""
    ranks_per_node: Annotated[int, msgspec.Meta(ge=1, le=RANKS_PER_NODE_MAX)]
    job_revision: Count
    """Sequence of the fact that put it into the queue."""
    spares: tuple[str, ...] = ()
    """The one to take first stands first."""
    tp: Index = 1
    pp: Index = 1
    cp: Index = 1
    ep: Index = 1
    world_min: Index = 1
    on_log_loss: str = "wait"
    grace_ns: Ns = 30_000_000_000
    quality: PlanQuality
    proposal: str = ""
    """Of the placement_proposed, or the advice, that was taken; "": nobody's."""
    backfilled: bool = False
    """It began before a job that stands before it, and does not delay it."""
    relaxed: tuple[str, ...] = ()
    """Soft wishes that the place does not grant, as they stand in the description."""

    @property
    def submission(self) -> JobSubmitted:
        """The same as somebody would have submitted it who knew where."""
        return JobSubmitted(
            at_ns=self.at_ns,
            by="scheduler",
            reason=self.reason,
            job=self.job,
            nodes=self.nodes,
            ranks_per_node=self.ranks_per_node,
            spares=self.spares,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            ep=self.ep,
            world_min=self.world_min,
            on_log_loss=self.on_log_loss,
            grace_ns=self.grace_ns,
        )


class JobReleased(Inference, kw_only=True, frozen=True):
    """A job gave back what it had: nodes, or its place in the queue."""

    job: str
    nodes: tuple[str, ...] = ()
    """In node_ranges form, spares among them; (): it had none yet."""
    requeued: bool = False
    """It waits again."""
    held_ns: Ns = 0
    """How long it had them, log time."""


class MoveAdvised(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A job that would leave its nodes for others."""

    job: str
    nodes_from: tuple[str, ...]
    """In node_ranges form."""
    nodes_to: tuple[str, ...]


class MovesAdvised(Inference, kw_only=True, frozen=True):
    """A job would start now if others moved, and that is worth more than it costs: advice alone."""

    job: str
    """That waits."""
    moves: tuple[MoveAdvised, ...]
    cost_node_s: Count
    """Node-seconds that the moves take, by `move_ns` of the settings."""
    gain_node_s: Count
    """Node-seconds by which it starts earlier, if those that run end as they said."""


class GangWanted(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A job as a solver sees it."""

    job: str
    nodes: Count
    segment: Count = 1
    """Nodes that must lie on one shelf; it divides `nodes`."""
    weights: tuple[Count, ...] = ()
    """By level, what touching one more group costs: shelves first, then tiers upwards."""


class PlacementRequested(Inference, kw_only=True, frozen=True):
    """Jobs are about to be placed; until the deadline a solver may say where they lie better."""

    request: str
    deadline_ns: Ns
    """Log time until which an answer is waited for."""
    free: tuple[Count, ...]
    """By shelf (nodes on one leaf and in one NVLink domain), nodes that are free."""
    tiers: tuple[tuple[Index, ...], ...]
    """By tier above the shelves, the group of each."""
    gangs: tuple[GangWanted, ...]


class GangProposed(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Where a solver would put a job."""

    job: str
    shelves: tuple[Index, ...]
    nodes: tuple[Count, ...]
    """Of each of those shelves."""


class PlacementProposed(Inference, kw_only=True, frozen=True):
    """A solver's answer: a proposal, which is checked in whole numbers before anything follows."""

    request: str
    gangs: tuple[GangProposed, ...] = ()
    """(): it found nothing in time."""
    bound: Count = 0
    """No placement of all of them costs less, it says."""
    status: str = ""
    """In the solver's own words."""


def begun(data: Any) -> JobSubmitted | None:
    """The job that begins with this fact; None where none does, or it has yet to be placed."""
    if isinstance(data, JobPlaced):
        return data.submission
    return data if isinstance(data, JobSubmitted) and not data.waits else None
