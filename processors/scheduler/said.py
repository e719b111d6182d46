"""What the scheduler says, as facts: one sentence each that a person understands."""

from collections.abc import Collection

from nemesis.processors.scheduler.explain import Why
from nemesis.processors.scheduler.placing import Place, degrees_of
from nemesis.processors.scheduler.queue import Start
from nemesis.processors.scheduler.state import Running, Waiting
from nemesis.schemas.advised import AdviceGiven, AdviceJudged, AdvisedAct
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.node_ranges import format_nodes
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import (
    JobFinding,
    JobPlaced,
    JobQueued,
    JobRejected,
    JobReleased,
)


def rejected(
    fact: Fact, job: JobSubmitted, seq: int, findings: tuple[JobFinding, ...]
) -> Conclusion:
    """It can never run so."""
    first = findings[0]
    advice = f"; {first.legal}" if first.legal else ""
    data = JobRejected(
        at_ns=now_of(fact),
        reason=f"{first.code}: {first.text}{advice}",
        job=job.job,
        findings=findings,
    )
    return _said(fact, data, job.job, seq)


def queued(fact: Fact, waiting: Waiting, position: int, why: Why) -> Conclusion:
    """It waits, and why."""
    data = JobQueued(
        at_ns=now_of(fact),
        reason=why.reason,
        job=waiting.job.job,
        code=why.code,
        position=position,
        blocked=why.blocked,
        helps=why.helps,
        start_ns_expected=why.start_ns,
    )
    return _said(fact, data, waiting.job.job, waiting.seq)


def placed(fact: Fact, waiting: Waiting, start: Start, proposal: str) -> Conclusion:
    """It begins, on these nodes; `proposal`: the request that was answered last."""
    place, job = start.place, waiting.job
    degrees = degrees_of(start.case.layout)
    data = JobPlaced(
        at_ns=now_of(fact),
        reason=_place_words(place, start.backfilled),
        job=job.job,
        nodes=format_nodes(place.nodes),
        ranks_per_node=place.ranks_per_node,
        job_revision=waiting.seq,
        spares=place.spares,
        tp=degrees.tp,
        pp=degrees.pp,
        cp=degrees.cp,
        ep=degrees.ep,
        world_min=job.world_min,
        on_log_loss=job.on_log_loss,
        grace_ns=job.grace_ns,
        quality=place.quality,
        proposal=place.advice or (proposal if place.quality.rule == "solver" else ""),
        backfilled=start.backfilled,
        relaxed=place.relaxed,
    )
    return _said(fact, data, job.job, waiting.seq)


def released(
    fact: Fact, name: str, held: Running | None, why: str, *, requeued: bool = False
) -> Conclusion:
    """It gave back what it had."""
    nodes = held.nodes if held is not None else ()
    data = JobReleased(
        at_ns=now_of(fact),
        reason=why,
        job=name,
        nodes=format_nodes(nodes),
        requeued=requeued,
        held_ns=max(0, now_of(fact) - held.since_ns) if held is not None else 0,
    )
    return _said(fact, data, name, fact.seq)


def advised(fact: Fact, advice: AdviceGiven, acts: tuple[AdvisedAct, ...]) -> Conclusion:
    """What the rules say of what was proposed."""
    refused = [act for act in acts if act.rule]
    words = [f"{_counted(len(acts) - len(refused), 'proposal')} of {len(acts)} passed the rules"]
    words += [f"{act.kind} is refused by {act.rule}: {act.refusal}" for act in refused]
    data = AdviceJudged(
        at_ns=now_of(fact),
        reason="; ".join(words),
        advice=advice.advice,
        job=advice.job,
        acts=acts,
    )
    return _said(fact, data, advice.job, fact.seq)


def _place_words(place: Place, backfilled: bool) -> str:
    quality = place.quality
    words = [_counted(len(place.nodes), "node"), f"found by {quality.rule}"]
    if quality.status == "optimal":
        whose = ", says the solver" if quality.bound_by == "solver" else ""
        words.append(f"none is better{whose}")
    else:
        words.append(f"at most {quality.gap_ppm / 10_000:.1f} % above the best")
    if quality.step_ns:
        words.append(
            f"a step of {quality.step_ns / 1e9:.3f} s and {quality.mfu_ppm / 10_000:.1f} % of the "
            f"peak predicted, {quality.bound_share_ppm / 10_000:.1f} % of the best speed"
        )
    if place.advice:
        words.append(f"as advised in {place.advice}")
    if place.spares:
        near = ", near it for want of others" if place.spares_near else ""
        words.append(f"{_counted(len(place.spares), 'spare')}{near}")
    if place.relaxed:
        words.append(f"without {' and '.join(place.relaxed)}")
    if backfilled:
        words.append("before its turn, delaying nobody")
    return "; ".join(words)


def _counted(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what + 's'}"


def _said(
    fact: Fact,
    data: JobPlaced | JobQueued | JobRejected | JobReleased | AdviceJudged,
    job: str,
    seq: int,
) -> Conclusion:
    cause: Collection[int] = sorted({seq, fact.seq})
    return Conclusion(data=data, key=job, cause=tuple(cause), job=job)


def now_of(fact: Fact) -> int:
    """Log time; before the first tick, what the fact itself says."""
    return fact.log_time_ns or fact.at_ns
