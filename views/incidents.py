"""Incidents as the log tells them: what was concluded, decided and done about one fault.

A pure reader: events in, stories out. Facts belong together by the incident that they name
(processors/incident/names.py) and by what `incident_grouped` says; attempts, approvals and vetoes
name a decision, and so its incident. A decision taken before there was a verdict names the fact
that it answers: a verdict that cites this fact is about the same.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.processors.incident.names import decision_named, incident_named, incident_of
from nemesis.schemas.decided import Decision, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
)
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.inferred import (
    FailurePredicted,
    FaultAttributed,
    IncidentClosed,
    IncidentGrouped,
    IncidentOpened,
)
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed


class NoIncidentError(NemesisError):
    """The log holds no incident of that name."""

    exit_code = 3


class Entry(msgspec.Struct, frozen=True):
    """One event of an incident."""

    incident: str
    seq: int
    stored_ns: int
    """When the server stored it: one clock for all, so an effect never comes before its cause."""
    log_time_ns: int
    """What its writer took for now: log time, in whole ticks, for a conclusion."""
    fact: str
    id: str
    cause: tuple[int, ...]
    data: Any


class FirstSeen(msgspec.Struct, frozen=True):
    """The observation that an incident goes back to."""

    seq: int
    at_ns: int
    """By its producer's clock; when it was stored, where that clock is ahead of the server's."""
    fact: str
    node: str


def first_seen(record: Record) -> FirstSeen | None:
    """What a producer saw, from its record; None where it is no observation."""
    item = Input(record)
    if item.space != "telemetry" or item.decoded() is None:
        return None
    at_ns = min(item.value.at_ns, record.stored_ns)
    return FirstSeen(record.seq, at_ns, item.token, item.name)


class Incident(msgspec.Struct):
    """What is known of one incident."""

    id: str
    entries: list[Entry] = []
    first_seen: FirstSeen | None = None
    """What a producer saw of it first, once somebody has looked it up."""

    @property
    def began_ns(self) -> int:
        """When it began, as far as is known: seen by a producer, else concluded."""
        if self.first_seen is not None:
            return self.first_seen.at_ns
        return self.entries[0].stored_ns

    @property
    def duration_ns(self) -> int:
        """From its beginning to its last event."""
        return self.entries[-1].stored_ns - self.began_ns

    @property
    def first_seq(self) -> int:
        """The earliest fact that anything in it was drawn from."""
        return min(min((entry.seq, *entry.cause)) for entry in self.entries)

    @property
    def last_seq(self) -> int:
        """Its last event."""
        return max(entry.seq for entry in self.entries)

    @property
    def verdict(self) -> FaultAttributed | None:
        """The verdict that holds: the last one."""
        return next(
            (e.data for e in reversed(self.entries) if type(e.data) is FaultAttributed), None
        )

    @property
    def job(self) -> str:
        """The job that it is about, as far as it is known."""
        for entry in reversed(self.entries):
            jobs = entry.data.jobs if isinstance(entry.data, FaultAttributed) else ()
            if job := getattr(entry.data, "job", "") or next(iter(jobs), ""):
                return str(job)
        return ""

    @property
    def closed(self) -> IncidentClosed | None:
        """How it ended; None while it is open, again or still."""
        for entry in reversed(self.entries):
            if isinstance(entry.data, IncidentClosed):
                return entry.data
            if isinstance(entry.data, IncidentOpened):
                return None
        return None

    @property
    def outcome(self) -> str:
        """As it was closed; where it was not, as its last event has it."""
        if self.closed is not None:
            return self.closed.outcome.replace("_", " ")
        decided = begun = False
        for entry in reversed(self.entries):
            if isinstance(entry.data, AttemptCompleted):
                return "recovered"
            if isinstance(entry.data, AttemptFailed):
                return "failed"
            if isinstance(entry.data, AttemptOutcomeUnknown):
                return "unknown"
            if isinstance(entry.data, DecisionVetoed):
                return "vetoed"
            if isinstance(entry.data, RecoveryWithheld):
                return "expired" if entry.data.limit == "expired" else "withheld"
            if isinstance(entry.data, RecoveryDecided) and _is_to_be_done(entry.data):
                waits = entry.data.mode == "approve" and not begun
                return "waits for approval" if waits else "open"
            begun = begun or isinstance(entry.data, DecisionApproved | AttemptStarted)
            decided = decided or isinstance(entry.data, Decision)
        return "open" if decided else "no action"


def _is_to_be_done(decided: RecoveryDecided) -> bool:
    """Not only recorded, and not advice."""
    return bool(decided.members) and decided.mode != "shadow"


class Incidents:
    """All incidents of the events that passed by, in the order of their first event."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.by_id: Final[dict[str, Incident]] = {}
        self._by_decision: Final[dict[str, str]] = {}
        self._by_evidence: Final[dict[str, str]] = {}
        """The name after a producer's fact, or a member's -> the incident that it belongs to."""
        for record in records:
            self.see(record)

    def see(self, record: Record) -> Entry | None:
        """Take note of an event; its entry if it belongs to an incident."""
        return self.take(Input(record))

    def take(self, item: Input) -> Entry | None:
        """The same, for a record that others read too."""
        record = item.record
        if item.space != "events" or item.decoded() is None:
            return None
        data = item.value
        incident = self._incident_of(data)
        if not incident:
            return None
        incident = self._joined(data, self._by_evidence.get(incident, incident))
        fact = item.fact(0)
        entry = Entry(
            incident,
            record.seq,
            record.stored_ns,
            data.at_ns,
            item.token,
            fact.id,
            fact.cause,
            data,
        )
        self.by_id.setdefault(incident, Incident(incident)).entries.append(entry)
        return entry

    def _joined(self, data: Any, incident: str) -> str:
        """The name that the incident goes by once this fact has said what belongs to it."""
        if isinstance(data, FaultAttributed):
            for evidence in data.evidence:
                incident = self._join(incident_of(evidence.fact), incident)
        elif isinstance(data, IncidentGrouped):
            incident = self._join(data.member, incident)
        return incident

    def _join(self, name: str, incident: str) -> str:
        """What goes by this name belongs to the incident; of two the older keeps its name."""
        other, one = self.by_id.get(name), self.by_id.get(incident)
        if other is None or other is one:
            if name != incident:
                self._by_evidence.setdefault(name, incident)
            return incident
        if one is None:
            self._by_evidence[incident] = name
            return name
        older, younger = sorted((one, other), key=lambda each: each.entries[0].seq)
        older.entries = sorted([*one.entries, *other.entries], key=lambda entry: entry.seq)
        del self.by_id[younger.id]
        for known in (self._by_decision, self._by_evidence):
            known.update({key: older.id for key, id in known.items() if id == younger.id})
        self._by_evidence[younger.id] = older.id
        return older.id

    def forget(self, id: str) -> None:
        """Let go of an incident that is long over."""
        del self.by_id[id]
        for known in (self._by_decision, self._by_evidence):
            for name in [name for name, incident in known.items() if incident == id]:
                del known[name]

    def named(self, id: str) -> str:
        """The incident that goes by this name now."""
        name = incident_of(id)
        return self._by_evidence.get(name, name)

    def _incident_of(self, data: Any) -> str:
        name, decision = incident_named(data), decision_named(data)
        if decision and name:
            self._by_decision[decision] = name
        if isinstance(data, FailurePredicted) and data.band in ("record", "clear"):
            return name if self.named(name) in self.by_id else ""  # opens nothing
        return name or self._by_decision.get(decision, "")


def found(incidents: Incidents, id: str) -> Incident:
    """The incident of this id, or the only one whose id begins like it.

    Raises:
        NoIncidentError: there is none, or more than one.
    """
    if incidents.named(id) in incidents.by_id:
        return incidents.by_id[incidents.named(id)]
    alike = [each for each in incidents.by_id if each.startswith(id)]
    if len(alike) == 1:
        return incidents.by_id[alike[0]]
    what = f"{len(alike)} incidents begin with" if alike else "no incident"
    raise NoIncidentError(f"{what} {id!r}", hint="`nemesis incident` lists them")
