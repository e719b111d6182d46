"""The story of an incident in words: verdict first, then evidence, decisions, deeds, times."""

from collections.abc import Iterator
from typing import Any

import msgspec

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import Attempt, AttemptCompleted
from nemesis.schemas.envelope import rfc3339
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.operated import NoteAdded, Operation
from nemesis.views.incidents import Entry, Incident


def headline(incident: Incident) -> str:
    """One line: when, which, verdict, outcome."""
    opened = rfc3339(incident.entries[0].stored_ns)
    return f"{opened}  {incident.id}  {verdict_text(incident)}  {incident.outcome}"


def verdict_text(incident: Incident) -> str:
    """Culprit and class, or why nobody is named."""
    verdict = incident.verdict
    if verdict is None:
        return "no verdict"
    if verdict.culprits:
        named = ", ".join(culprit.label or culprit.id for culprit in verdict.culprits)
        return f"{named}: {verdict.fault_class}"
    return f"{verdict.verdict}: {verdict.fault_class}"


def story(incident: Incident) -> list[str]:
    """Lines for a terminal."""
    lines = [f"incident {incident.id}", f"verdict  {verdict_text(incident)}"]
    verdict = incident.verdict
    if verdict is not None:
        lines += list(_verdict_lines(verdict))
    lines.append(f"outcome  {incident.outcome}")
    if incident.job:
        lines.append(f"job      {incident.job}")
    lines.append("")
    lines.append(f"from {rfc3339(incident.began_ns)}, by the time at which the server stored each:")
    if (seen := incident.first_seen) is not None:
        lines.append(f"{0:+9.3f} s {seen.seq:>9} {seen.fact:<22} seen by {seen.node}, by its clock")
    lines += [_entry_line(entry, incident.began_ns) for entry in incident.entries]
    return lines


def as_document(incident: Incident) -> dict[str, Any]:
    """The same as plain values, every event whole."""
    verdict = incident.verdict
    return {
        "incident": incident.id,
        "job": incident.job,
        "outcome": incident.outcome,
        "verdict": verdict,
        "first_seq": incident.first_seq,
        "last_seq": incident.last_seq,
        "began_ns": incident.began_ns,
        "duration_ns": incident.duration_ns,
        "events": [
            {
                "seq": entry.seq,
                "stored_ns": entry.stored_ns,
                "log_time_ns": entry.log_time_ns,
                "fact": entry.fact,
                "id": entry.id,
                "cause": list(entry.cause),
                "data": msgspec.to_builtins(entry.data),
            }
            for entry in incident.entries
        ],
    }


def _verdict_lines(verdict: FaultAttributed) -> Iterator[str]:
    yield f"         {verdict.reason}"
    if verdict.confidence_ppm:
        claimed = f"; its rule claims {verdict.claimed_ppm / 10_000:.0f} %"
        known = claimed if verdict.claimed_ppm else ""
        yield f"         confidence {verdict.confidence_ppm / 10_000:.0f} %{known}"
    for each in verdict.evidence:
        yield f"evidence {each.says} ({each.fact})"
        if each.text:
            yield f"         > {each.text}"
    for victim in verdict.victims:
        yield f"innocent {victim}"
    for what in verdict.missing:
        yield f"collect  {what}"


def _entry_line(entry: Entry, began_ns: int) -> str:
    after_s = (entry.stored_ns - began_ns) / 1e9
    causes = " ".join(map(str, entry.cause))
    cause = f"  <- {causes}" if causes else ""
    return f"{after_s:+9.3f} s {entry.seq:>9} {entry.fact:<22} {deed(entry.data)}{cause}"


def deed(data: Any) -> str:
    """What an event says, in a line."""
    match data:
        case QuiesceDecided():
            return f"hold {data.job} in epoch {data.epoch} ({data.mode}): {data.reason}"
        case RecoveryDecided():
            return f"{data.action} on {data.target} ({data.mode}): {data.reason}"
        case RecoveryWithheld():
            return f"{data.action} on {data.target} withheld by {data.limit}: {data.reason}"
        case AttemptCompleted():
            return f"{data.decision} by {data.actor}, world {data.world}: {data.reason}"
        case Attempt():
            return f"{data.decision} by {data.actor}: {data.reason}"
        case NoteAdded():
            return f"{data.by}: {data.text}"
        case Operation():
            return f"{data.by}: {data.reason}"
        case _:
            return str(data.reason)
