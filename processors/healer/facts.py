"""The facts that the healer says, built from what it knows, and their sentences.

Saying a decision takes a number and marks it as not read back; nothing else changes here.
"""

from collections.abc import Collection, Mapping
from typing import Final

from nemesis.processors.healer.forecasts import worth_ppm
from nemesis.processors.healer.ladder import Choice, Fault
from nemesis.processors.healer.playbooks import RANK_OF, triage_recovery
from nemesis.processors.healer.state import PARTS_MAX, HealerState, JobState, bounded, ranks_of
from nemesis.schemas.codes import Action
from nemesis.schemas.components import node_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.policy import Policy
from nemesis.schemas.rank_ranges import format_ranks

_ADVICE: Final[Mapping[Action, str]] = {
    "none": "nothing is done",
    "watch": "it is watched",
    "cordon_node": "cordon_node at the next checkpoint is for a person to do",
}


def hold(state: HealerState, job: JobState, fault: Fault, fact: Fact) -> Conclusion:
    """The hold of a job's survivors, said at once."""
    name = _next_name(job)
    acts = state.policy.mode == "act" and not is_paused(state, job, ())
    name_of_job = job.submitted.job
    if fault.dead:
        broken = f"Rank {format_ranks(fault.dead)} of {name_of_job} is lost: hold the others"
    elif job.broken and fault.fault_class == "unknown":
        broken = f"Ranks of {name_of_job} lost their group: hold whoever lives"
    else:
        broken = f"{fault.fault_class} at {fault.target}: hold the ranks of {name_of_job}"
    held = QuiesceDecided(
        at_ns=fact.log_time_ns,
        reason=(
            f"{broken} at once, before their collectives time out, while cause and extent are"
            " being found."
        ),
        decision=name,
        incident=job.incident,
        mode="act" if acts else "shadow",
        deadline_ns=fact.log_time_ns + state.policy.hold_timeout_ns,
        job=job.submitted.job,
        job_revision=job.revision,
        epoch=job.epoch,
        dead_ranks=tuple(sorted(fault.dead)),
    )
    return _said(job, held)


def recovery(
    state: HealerState,
    job: JobState,
    fault: Fault,
    choice: Choice,
    fact: Fact,
    *,
    spares: tuple[str, ...] = (),
) -> Conclusion:
    """The chosen rung as a decision; what no actor carries out is advice for a person, a shadow."""
    policy = state.policy
    mode = policy.mode_of(choice.action, by_cost=fault.by_cost) if choice.regroups else "shadow"
    wait_ns = policy.approval_timeout_ns if mode == "approve" else policy.decision_timeout_ns
    decided = RecoveryDecided(
        at_ns=fact.log_time_ns,
        reason=_sentence(policy, job, fault, choice, spares),
        decision=_next_name(job),
        incident="" if choice.returned else job.incident,
        mode=mode,
        deadline_ns=fact.log_time_ns + wait_ns,
        job=job.submitted.job,
        job_revision=job.revision,
        action=choice.action,
        target=choice.target,
        epoch=max(job.epoch, job.epoch_planned) + 1 if choice.regroups else 0,
        members=format_ranks(choice.members),
        removed_ranks=choice.removed,
        joined_nodes=choice.joined,
        rungs_refused=choice.refused,
        world=len(choice.members),
        started=format_ranks(choice.started),
        state_from=choice.state_from,
        placements=choice.placements,
        nodes_out=choice.nodes_out,
        by_cost=fault.by_cost,
        checkpoint=job.saved[1] if choice.state_from == "checkpoint" else "",
        checkpoint_step=job.saved[0] if choice.state_from == "checkpoint" else -1,
    )
    return _said(job, decided)


def _sentence(
    policy: Policy, job: JobState, fault: Fault, choice: Choice, spares: tuple[str, ...]
) -> str:
    name = job.submitted.job
    if choice.returned:
        return (
            f"Rank {format_ranks(choice.returned)} of {name} was started anew and is ready:"
            f" {len(choice.members)} ranks go on from the next boundary, with a peer's state."
        )
    if fault.predicted and not choice.regroups:
        ready = f"{spares[0]} is free to take over" if spares else "no spare node could take over"
        likely = f"{fault.fault_class} is likely at {fault.target} but has not come"
        if fault.by_cost:
            likely = f"a failure of {fault.target} is {_worth(policy, job, fault)}"
        return f"{likely}: {choice.action} for now, {ready}."
    lost = f"rank {format_ranks(fault.dead)} of {name} is lost" if fault.dead else ""
    why = {
        "unknown": lost or f"nothing is known to be wrong with {name}",
        "none": lost or f"{name} is well",
    }.get(
        fault.fault_class, f"{fault.fault_class} at {fault.target}" + (f", {lost}" if lost else "")
    )
    if fault.predicted:
        ranks = format_ranks(fault.dead)
        likely = f"{fault.fault_class} is likely at {fault.target}"
        if fault.by_cost:
            likely = f"a failure of {fault.target} is {_worth(policy, job, fault)}"
        why = f"{likely}, where rank {ranks} of {name} runs"
    if job.unattached:
        why += ", and no rank of it has called the hook, so none can regroup"
    if not choice.regroups:
        advice = _ADVICE.get(choice.action, f"{choice.action} is for a person to do")
        return f"{why}: {advice}, the job's membership stays as it is."
    parts = [f"{len(choice.members)} of {len(ranks_of(job.members))} ranks go on"]
    if choice.joined:
        parts.append(f"on {', '.join(choice.joined)} instead of {', '.join(choice.nodes_out)}")
    if choice.started:
        parts.append(f"{len(choice.started)} started anew from {_source(job, choice)}")
    return f"Because {why}: {choice.action}, {', '.join(parts)}."


def _source(job: JobState, choice: Choice) -> str:
    """Where the started ranks take their state from, and how many steps that is behind."""
    step, _ = job.saved
    if choice.state_from != "checkpoint" or step < 0:
        return choice.state_from
    again = f", {job.step - step} steps are done again" if job.step >= step else ""
    return f"the checkpoint of step {step}{again}"


def _worth(policy: Policy, job: JobState, fault: Fault) -> str:
    return (
        f"unlikely, but {fault.chance_ppm / 10_000:.1f} % are enough"
        f" where {worth_ppm(policy, job) / 10_000:.1f} % outweigh the costs of a needless move"
    )


def withhold(
    job: JobState,
    fact: Fact,
    *,
    action: Action,
    target: str,
    limit: str,
    refused: tuple[str, ...] = (),
    decision: str = "",
) -> Conclusion:
    """What was due and is not done: loud, so that a person looks."""
    why = {
        "no_rung": "nothing that would be enough is safe",
        "paused": "it is paused",
        "unanswered": f"nobody carried out {decision} in time",
        "expired": f"nobody approved {decision} in time, so it expired and nothing was done",
        "protected": f"a node that {decision} touches is protected now",
        "vetoed": "a person forbade it, or what comes before it",
    }.get(limit, f"it would exceed {limit}")
    withheld = RecoveryWithheld(
        at_ns=fact.log_time_ns,
        reason=f"{action} is due for {job.submitted.job} and {why}: a person must look.",
        incident=job.incident,
        action=action,
        target=target,
        job=job.submitted.job,
        limit=limit,
        rungs_refused=refused,
        decision=decision,
    )
    job.unread = job.unread or f"{job.submitted.job}/{job.count}"
    return _conclusion(job, withheld, job.cause or (fact.seq,))


def on_part(state: HealerState, verdict: FaultAttributed, fact: Fact) -> list[Conclusion]:
    """A fault that touches no job: advice for people, once for each new extent of it."""
    if verdict.verdict not in ("attributed", "class-only"):
        return []
    action, target = triage_recovery(verdict)
    revision, rung = state.parts.get(verdict.incident, (-1, -1))
    if verdict.revision <= revision or RANK_OF[action] <= rung:
        return []
    state.parts.pop(verdict.incident, None)
    state.parts[verdict.incident] = (verdict.revision, RANK_OF[action])
    bounded(state.parts, PARTS_MAX)
    node = node_of(target) or "cluster"
    state.part_count += 1
    decided = RecoveryDecided(
        at_ns=fact.log_time_ns,
        reason=(
            f"{verdict.fault_class} at {target or 'no part named'} touches no job:"
            " for a person to do."
        ),
        decision=f"{node}/{state.part_count}",
        incident=verdict.incident,
        mode="shadow",
        deadline_ns=fact.log_time_ns + state.policy.approval_timeout_ns,
        action=action,
        target=target,
    )
    return [Conclusion(data=decided, key=node, cause=(fact.seq,))]


def is_paused(state: HealerState, job: JobState, nodes: Collection[str]) -> bool:
    """Whether a person paused this job, everything, or one of these nodes."""
    scopes = {"ALL", f"job/{job.submitted.job}", *(f"node/{node}" for node in nodes)}
    return not scopes.isdisjoint(state.paused)


def _next_name(job: JobState) -> str:
    return f"{job.submitted.job}/{job.count + 1}"


def _said(job: JobState, decision: QuiesceDecided | RecoveryDecided) -> Conclusion:
    job.count += 1
    job.unread = decision.decision
    return _conclusion(job, decision, job.cause)


def _conclusion(
    job: JobState,
    data: QuiesceDecided | RecoveryDecided | RecoveryWithheld,
    cause: tuple[int, ...],
) -> Conclusion:
    name = job.submitted.job
    return Conclusion(data=data, key=name, cause=cause, job=name, urgent=True)
