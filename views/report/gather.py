"""What a report of an incident says, as plain values, from its events alone.

Why: the page, the text and the JSON must say the same. How: everything is taken from the facts of
the incident; what to do next follows from how it ended. Words of others are cleaned here, once.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from nemesis.processors.healer.playbooks import triage_recovery
from nemesis.schemas.decided import Decision, QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import Attempt, AttemptStarted
from nemesis.schemas.inferred import (
    FaultAttributed,
    IncidentClosed,
    IncidentCosted,
    IncidentGrouped,
    JobResumed,
    TimeParts,
)
from nemesis.schemas.kept import IncidentArchived
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed, NoteAdded, Operation
from nemesis.schemas.printable import one_line
from nemesis.views.incidents import Entry, Incident
from nemesis.views.stories import deed, verdict_text

Lane = Literal["seen", "concluded", "decided", "done", "people"]
LANES: Final[tuple[Lane, ...]] = ("seen", "concluded", "decided", "done", "people")
_ANSWERS: Final = (Attempt, DecisionApproved, DecisionVetoed)
PARTS: Final = tuple(
    name
    for name in TimeParts.__struct_fields__
    if name not in ("start_ns", "productive_ns", "open_ns")
)
"""Of an incident's cost: where time was lost."""


class Quote(msgspec.Struct, frozen=True):
    """One observation and what it proves."""

    says: str
    text: str
    fact: str


class Moment(msgspec.Struct, frozen=True):
    """One thing that happened."""

    at_ns: int
    lane: Lane
    fact: str
    seq: int
    text: str
    cause: tuple[int, ...]
    decision: str = ""
    begins: bool = False
    """The beginning of an attempt, which its end belongs to."""


class Step(msgspec.Struct, kw_only=True):
    """One decision and what became of it."""

    decision: str
    what: str
    mode: str
    reason: str
    refused: list[str] = []
    became: list[str] = []


class Cost(msgspec.Struct, frozen=True):
    """What it cost one job, in nanoseconds by where the time went."""

    job: str
    lost_ns: int
    lost_gpu_ms: int
    parts_ns: dict[str, int]
    final: bool


class Report(msgspec.Struct, kw_only=True):
    """Everything that a report says."""

    incident: str
    title: str
    verdict: str
    fault_class: str
    confidence_ppm: int
    reason: str
    culprits: list[str]
    victims: list[str]
    evidence: list[Quote]
    late: bool
    outcome: str
    outcome_reason: str
    job: str
    began_ns: int
    ended_ns: int
    moments: list[Moment]
    steps: list[Step]
    costs: list[Cost]
    grouped: list[str]
    notes: list[str]
    to_do: list[str]
    replay: list[str]
    source: str
    """Where it was read: the log, the archive or a file."""


def report(incident: Incident, *, source: str, replay: list[str]) -> Report:
    """The report; `replay`: the commands that prove it."""
    verdict, closed = incident.verdict, incident.closed
    outcome = closed.outcome.replace("_", " ") if closed else incident.outcome
    moments = sorted(_moments(incident), key=lambda each: (each.at_ns, each.seq))
    said = [entry.data for entry in incident.entries]
    return Report(
        incident=one_line(incident.id),
        title=one_line(verdict_text(incident)),
        verdict=verdict.verdict if verdict else "none",
        fault_class=verdict.fault_class if verdict else "",
        confidence_ppm=verdict.confidence_ppm if verdict else 0,
        reason=one_line(verdict.reason) if verdict else "",
        culprits=[one_line(each.id) for each in verdict.culprits] if verdict else [],
        victims=[one_line(each) for each in verdict.victims] if verdict else [],
        evidence=[
            Quote(one_line(each.says), one_line(each.text), one_line(each.fact))
            for each in (verdict.evidence if verdict else ())
        ],
        late=verdict.late if verdict else False,
        outcome=outcome,
        outcome_reason=one_line(closed.reason) if closed else "",
        job=one_line(incident.job),
        began_ns=moments[0].at_ns,
        ended_ns=moments[-1].at_ns,
        moments=moments,
        steps=_steps(incident.entries),
        costs=_costs(said),
        grouped=[
            one_line(f"{d.member}: {d.reason}")
            for d in said
            if type(d) is IncidentGrouped and d.rule != "named"
        ],
        notes=[one_line(f"{d.by}: {d.text}") for d in said if type(d) is NoteAdded],
        to_do=list(_to_do(verdict, closed, said)),
        replay=replay,
        source=source,
    )


def _moments(incident: Incident) -> Iterator[Moment]:
    if (seen := incident.first_seen) is not None:
        text = one_line(f"seen by {seen.node}, by its clock")
        yield Moment(seen.at_ns, "seen", seen.fact, seen.seq, text, ())
    for entry in incident.entries:
        if isinstance(entry.data, IncidentArchived):
            continue  # the keeping of an incident is no part of it
        yield Moment(
            entry.stored_ns,
            _lane(entry.data),
            entry.fact,
            entry.seq,
            one_line(deed(entry.data)),
            entry.cause,
            decision=one_line(str(getattr(entry.data, "decision", ""))),
            begins=isinstance(entry.data, AttemptStarted),
        )


def _lane(data: Any) -> Lane:
    match data:
        case Decision() | RecoveryWithheld():
            return "decided"
        case Attempt():
            return "done"
        case Operation():
            return "people"
        case _:
            return "concluded"


def _steps(entries: list[Entry]) -> list[Step]:
    """Decisions in order, withheld ones too, each with what became of it."""
    steps: dict[str, Step] = {}
    for entry in entries:
        match data := entry.data:
            case QuiesceDecided() | RecoveryDecided():
                what = (
                    f"hold {data.job} in epoch {data.epoch}"
                    if isinstance(data, QuiesceDecided)
                    else f"{data.action} on {data.target}"
                )
                steps[data.decision] = Step(
                    decision=one_line(data.decision),
                    what=one_line(what),
                    mode=data.mode,
                    reason=one_line(data.reason),
                    refused=[one_line(each) for each in getattr(data, "rungs_refused", ())],
                )
            case RecoveryWithheld():
                steps[f"withheld {entry.seq}"] = Step(
                    decision=one_line(data.decision),
                    what=one_line(f"{data.action} on {data.target}"),
                    mode="withheld",
                    reason=one_line(data.reason),
                    refused=[one_line(each) for each in data.rungs_refused],
                    became=[one_line(f"withheld by {data.limit}")] if data.limit else [],
                )
            case Attempt() | DecisionApproved() | DecisionVetoed() | JobResumed():
                if (step := steps.get(data.decision)) is not None and entry.fact != (
                    "attempt_started"
                ):
                    step.became.append(one_line(f"{entry.fact.replace('_', ' ')}: {deed(data)}"))
            case _:
                pass
    return list(steps.values())


def _costs(said: list[Any]) -> list[Cost]:
    """By job; the last word on each holds."""
    by_job = {data.job: data for data in said if isinstance(data, IncidentCosted)}
    return [
        Cost(
            job=one_line(job),
            lost_ns=data.lost_ns,
            lost_gpu_ms=data.lost_gpu_ms,
            parts_ns={
                name.removesuffix("_ns"): value
                for name in PARTS
                if (value := getattr(data.parts, name))
            },
            final=data.final,
        )
        for job, data in sorted(by_job.items())
    ]


def _to_do(
    verdict: FaultAttributed | None, closed: IncidentClosed | None, said: list[Any]
) -> Iterator[str]:
    """What a person has to do, first things first."""
    answered = {each.decision for each in said if isinstance(each, _ANSWERS)}
    for data in said:
        if isinstance(data, RecoveryWithheld):
            limit = f" by {data.limit}" if data.limit else ""
            what = f"{data.action} on {data.target} was withheld{limit}"
            yield one_line(f"{what}: look before more is allowed")
        elif isinstance(data, RecoveryDecided) and data.decision not in answered:
            what = f"{data.action} on {data.target}"
            if data.mode == "approve" and closed is None:
                yield one_line(f"{data.decision}, {what}, waits: `nemesis approve {data.decision}`")
            elif data.mode == "shadow":
                yield one_line(f"{what} was decided in shadow, nobody carried it out")
    if verdict is None:
        return
    for missing in verdict.missing:
        yield one_line(f"collect {missing}")
    action, target = triage_recovery(verdict)
    if action not in ("none", "watch", "collect_more") and verdict.culprits:
        how = action.replace("_", " ")
        yield one_line(f"have {target} seen to ({how}) before it works for a job again")
