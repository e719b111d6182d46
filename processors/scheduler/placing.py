"""Where one job goes on what is free, with its spares, and how good that place is known to be.

Soft wishes are tried as if they were hard first; one that is waited for stays so until its time is
over, others are given up when the job could not start otherwise. A place is a function of the case
and of what is free alone; who may have that is for queue.py, which nodes stand by for spares.py.
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.mfu.marginal import weights_ns
from nemesis.processors.mfu.planned import UnpredictableError, gpu_of, job_of
from nemesis.processors.mfu.step import Job
from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.layout import Layout
from nemesis.processors.parallelism.spec import Spec, Term, printed
from nemesis.processors.placement.ground import Placement
from nemesis.processors.placement.plan import Plan, plan_of
from nemesis.processors.placement.reach import ways_of
from nemesis.processors.scheduler.spares import spares_of, together_of
from nemesis.processors.topology.pool import Pool
from nemesis.processors.topology.told import NodePart
from nemesis.schemas.layout import Degrees
from nemesis.schemas.scheduled import PlanQuality

MILLION: Final = 1_000_000


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a job."""

    nodes: tuple[str, ...]
    """In the order of its ranks."""
    ranks_per_node: int
    row: tuple[str, ...]
    """The same nodes as what must lie together does."""
    spares: tuple[str, ...]
    """The one to take first stands first."""
    spares_near: bool = False
    """Some spare shares a leaf or a rack with the job: no other was free."""
    quality: PlanQuality
    relaxed: tuple[str, ...] = ()
    """Soft wishes that it does not grant."""
    order: tuple[str, ...] = ()
    """Dims with their degrees along its nodes, the closest first."""
    touched: tuple[int, ...] = ()
    levels: tuple[str, ...] = ()
    advice: str = ""
    """Whose nodes, or spares, these are; "": the rules' own."""


def placed(
    case: Case,
    *,
    spare_pool: Pool,
    told: Mapping[str, NodePart],
    waited_s: int,
    proposed: tuple[str, Placement] = ("", ()),
) -> Place | None:
    """The best place for a job on the free nodes of its pool; None: it has to wait.

    `spare_pool`: where spares may be taken from besides. `waited_s`: how long it has waited.
    """
    for spec, relaxed in readings(case.spec, waited_s):
        own = replace(case, spec=spec)
        if spec != case.spec and check(own).outcome != "accepted":
            continue
        found = _placed(own, relaxed, spare_pool, told, proposed)
        if found is not None:
            return found
    return None


def readings(spec: Spec, waited_s: int) -> Iterator[tuple[Spec, tuple[str, ...]]]:
    """The description with soft wishes as hard ones, then without those that are not waited for.

    Each with the terms whose wish it does not grant.
    """
    soft = [term for term in spec.terms if term.fabric and term.fabric.force == "soft"]
    yield replace(spec, terms=tuple(map(_hardened, spec.terms))), ()
    over = [term for term in soft if term.fabric and term.fabric.wait_s <= waited_s]
    if over:
        terms = tuple(term if term in over else _hardened(term) for term in spec.terms)
        words = tuple(printed(Spec(terms=(term,))) for term in over)
        yield replace(spec, terms=terms), words


def next_relaxation_s(spec: Spec, waited_s: int) -> int:
    """Seconds of waiting after which the next soft wish is given up; 0: none is waited for."""
    waits = [t.fabric.wait_s for t in spec.terms if t.fabric and t.fabric.force == "soft"]
    return min((wait_s for wait_s in waits if wait_s > waited_s), default=0)


def _hardened(term: Term) -> Term:
    fabric = term.fabric
    if fabric is None or fabric.force == "hard":
        return term
    return replace(term, fabric=replace(fabric, force="hard", wait_s=0))


def predicted_job(case: Case) -> Job | None:
    """The job as the MFU model takes it; None where too little of it is said or known."""
    assert case.pool is not None
    try:
        return job_of(case, *gpu_of(case.pool))
    except UnpredictableError:
        return None


def _placed(
    case: Case,
    relaxed: tuple[str, ...],
    spare_pool: Pool,
    told: Mapping[str, NodePart],
    proposed: tuple[str, Placement],
) -> Place | None:
    assert case.pool is not None
    job = predicted_job(case)
    plan = plan_of(case, job, proposed)
    seats = sorted((seat for seat in plan.seats if seat.ranks), key=lambda seat: min(seat.ranks))
    row = [rank for seat in seats for rank in sorted(seat.ranks)]
    if not seats or row != [*range(case.world)]:
        return None
    nodes = tuple(seat.node for seat in seats)
    row_of_nodes = tuple(seat.node for seat in plan.seats if seat.ranks)
    spares: tuple[str, ...] = ()
    near = False
    if count := case.spec.spares:
        spares, near = spares_of(count, row_of_nodes, together_of(case), spare_pool, told)
        if len(spares) < count:
            return None
    return Place(
        nodes=nodes,
        ranks_per_node=len(seats[0].ranks),
        row=row_of_nodes,
        spares=spares,
        spares_near=near,
        quality=quality_of(plan, case, job),
        relaxed=relaxed,
        order=plan.order,
        touched=plan.touched,
        levels=plan.levels,
    )


def weights_of(case: Case, job: Job | None, levels: int) -> tuple[int, ...]:
    """By level of the ground, what touching one more group costs: a step's nanoseconds, else 1."""
    assert case.pool is not None
    if job is None:
        return (1,) * levels
    # ways[h] leads between the groups below tier h: shelves that are leaves are joined by ways[1]
    ways = ways_of(case.pool)[case.pool.depth + 1 - levels :]
    return weights_ns(job, (*ways, *[MILLION] * levels)[:levels])


def quality_of(plan: Plan, case: Case, job: Job | None) -> PlanQuality:
    """What is known of how good a plan is."""
    weights = weights_of(case, job, len(plan.levels))
    objective = sum(w * n for w, n in zip(weights, plan.touched, strict=True))
    bound = sum(w * n for w, n in zip(weights, plan.fewest, strict=True))
    share = plan.step_ns_least * MILLION // plan.step_ns if plan.step_ns else 0
    return PlanQuality(
        rule=plan.rule,
        objective=objective,
        bound=bound,
        unit="groups" if job is None else "ns",
        status="optimal" if objective == bound else "feasible",
        gap_ppm=(objective - bound) * MILLION // objective,
        step_ns=plan.step_ns,
        step_ns_least=plan.step_ns_least,
        mfu_ppm=plan.mfu_ppm,
        bound_share_ppm=min(MILLION, share),
    )


def degrees_of(layout: Layout) -> Degrees:
    """Degrees as a submission names them: what must go or stay together does so.

    Submissions number ranks as Megatron-LM does (schemas/layout.py). Where a job does otherwise,
    its replicas are what counts: blocks of ranks in a row where data parallelism is outermost, else
    all of it.
    """
    order = [dim for dim, degree in layout.dense if degree > 1]
    usual = [dim for dim in ("TP", "CP", "DP", "PP") if dim in order]
    if order == usual:
        return Degrees(
            tp=layout.degree("TP"),
            cp=layout.degree("CP"),
            pp=layout.degree("PP"),
            ep=-(-layout.expert_parallel * layout.expert_tensor // layout.degree("TP")),
        )
    outermost: Collection[str] = ("DPR",) if layout.sharded else ("DP",)
    whole = bool(order) and order[-1] not in outermost
    if whole or layout.expert_parallel > 1:
        return Degrees(tp=layout.gpu_count)
    return Degrees(tp=prod(degree for dim, degree in layout.dense if dim not in outermost))
