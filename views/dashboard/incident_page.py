"""An incident as the page shows it: a row of the list, and the whole story."""

from typing import Any

import msgspec

from nemesis.schemas.decided import Decision
from nemesis.schemas.inferred import FaultAttributed, IncidentCosted, IncidentOpened
from nemesis.schemas.printable import one_line
from nemesis.schemas.registry import EVENTS
from nemesis.views.incidents import Entry, Incident
from nemesis.views.stories import deed, verdict_text

CULPRITS_SHOWN = 8


def incident_row(incident: Incident) -> dict[str, Any]:
    """A line of the list; `last_seq` says whether the whole has changed."""
    verdict = incident.verdict
    costs = {e.data.job: e.data for e in incident.entries if isinstance(e.data, IncidentCosted)}
    culprits = [one_line(each.id) for each in verdict.culprits] if verdict else []
    return {
        "id": one_line(incident.id),
        "opened_ms": incident.entries[0].stored_ns // 1_000_000,
        "last_ms": incident.entries[-1].stored_ns // 1_000_000,
        "last_seq": incident.last_seq,
        "title": one_line(verdict_text(incident)),
        "fault_class": verdict.fault_class if verdict else "",
        "verdict": verdict.verdict if verdict else "",
        "culprits": culprits[:CULPRITS_SHOWN],
        "confidence_ppm": verdict.confidence_ppm if verdict else 0,
        "outcome": incident.outcome,
        "open": is_open(incident),
        "job": one_line(incident.job),
        "lost_ms": sum(cost.lost_ns for cost in costs.values()) // 1_000_000,
        "lost_gpu_ms": sum(cost.lost_gpu_ms for cost in costs.values()),
        "events_count": len(incident.entries),
    }


def is_open(incident: Incident) -> bool:
    """Whether it is not over: opened and not closed; where nobody opens and closes, by its end."""
    if incident.closed is not None:
        return False
    opened = any(isinstance(entry.data, IncidentOpened) for entry in incident.entries)
    return opened or incident.outcome not in ("recovered", "vetoed", "no action")


def incident_document(incident: Incident) -> dict[str, Any]:
    """The whole story; words of others are cleaned, numbers beyond a browser's are text."""
    verdict = incident.verdict
    return incident_row(incident) | {
        "first_seq": incident.first_seq,
        "began_ms": incident.began_ns // 1_000_000,
        "duration_ms": incident.duration_ns // 1_000_000,
        "seen": _seen(incident),
        "said": _verdict(verdict) if verdict is not None else None,
        "entries": [_entry(each) for each in incident.entries],
    }


def _seen(incident: Incident) -> dict[str, Any] | None:
    seen = incident.first_seen
    if seen is None:
        return None
    return {
        "seq": seen.seq,
        "at_ms": seen.at_ns // 1_000_000,
        "fact": seen.fact,
        "node": one_line(seen.node),
    }


def _verdict(verdict: FaultAttributed) -> dict[str, Any]:
    return {
        "reason": one_line(verdict.reason),
        "culprits": [
            {"kind": each.kind, "id": one_line(each.id), "label": one_line(each.label)}
            for each in verdict.culprits
        ],
        "victims": [one_line(each) for each in verdict.victims],
        "evidence": [
            {"fact": one_line(e.fact), "says": one_line(e.says), "text": one_line(e.text)}
            for e in verdict.evidence
        ],
        "missing": [one_line(each) for each in verdict.missing],
        "driver_action": one_line(verdict.driver_action),
        "late": verdict.late,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    kind = EVENTS.get(entry.fact)
    data = entry.data
    return {
        "seq": entry.seq,
        "stored_ms": entry.stored_ns // 1_000_000,
        "fact": entry.fact,
        "certainty": kind.certainty if kind is not None else "",
        "text": one_line(deed(data)),
        "mode": data.mode if isinstance(data, Decision) else "",
        "decision": one_line(getattr(data, "decision", "")),
        "refused": [one_line(each) for each in getattr(data, "rungs_refused", ())],
        "cause": list(entry.cause),
        "raw": pretty(entry.data),
    }


def pretty(data: Any) -> str:
    """A fact's fields for reading: JSON, one a line, with nothing that is not printed as itself."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    return "\n".join(map(one_line, text.split("\n")))
