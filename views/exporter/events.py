"""Counts what was concluded, decided and done.

Why from the log's first event on: a count that begins at the exporter's own start would lose what
happened while it was away, and every restart would look like a reset. Events are kept for ever, so
the same log gives the same counts. What is remembered between events is bounded: running jobs,
incidents that are open, the newest decisions.
"""

from typing import Any, Final

import msgspec

from nemesis.processors.attribution.kernel_messages import parse
from nemesis.processors.fold import Input
from nemesis.processors.incident.names import decision_named, incident_named
from nemesis.schemas import decided, done, inferred
from nemesis.views.exporter.catalogue import OTHER
from nemesis.views.exporter.series import Series

DECISIONS_MAX: Final = 4096
COSTS_MAX: Final = 4096
_SECOND_NS: Final = 1_000_000_000


class _Choice(msgspec.Struct, frozen=True):
    incident: str
    action: str


class Events:
    """Feeds the counts that come from facts."""

    def __init__(self, series: Series) -> None:
        self._series: Final = series
        self._open: Final[set[str]] = set()
        self._decisions: Final[dict[str, _Choice]] = {}
        self._accounts: Final[dict[str, inferred.GoodputAccounted]] = {}
        self._costs: Final[dict[tuple[str, str], int]] = {}

    def see(self, item: Input) -> None:
        """Count one event."""
        data = item.decoded()
        self._series.add("events", item.token)
        if data is None:
            self._series.add("events_unreadable")
            return
        decision = self._decisions.get(decision_named(data))
        incident = incident_named(data) or (decision.incident if decision else "")
        self._count(data, incident, decision)

    def see_kernel(self, item: Input) -> None:
        """Count a kernel line, where it is an Xid."""
        if b"Xid" not in item.record.payload or (line := item.decoded()) is None:
            return
        message = parse(line.text)
        if message is not None and message.kind == "xid":
            self._series.add("xid", str(message.code), by=line.repeat_count)

    def _count(self, data: Any, incident: str, decision: _Choice | None) -> None:
        add = self._series.add
        match data:
            case inferred.IncidentOpened() | inferred.IncidentClosed():
                self._incident(data, incident)
            case inferred.FaultAttributed(revision=0):
                add("verdicts", data.verdict, data.fault_class, incident=incident, at_ns=data.at_ns)
            case inferred.FaultAttributed():
                add("verdict_revisions")
            case inferred.FailurePredicted():
                add("predictions", data.band, data.fault_class, incident=incident, at_ns=data.at_ns)
            case decided.Decision() | decided.RecoveryWithheld() | done.Attempt():
                self._answer(data, incident, decision)
            case inferred.JobResumed():
                seconds = data.lost_ns / _SECOND_NS
                self._series.observe("pause_seconds", seconds, incident=incident, at_ns=data.at_ns)
            case inferred.GoodputAccounted():
                self._account(data)
            case inferred.IncidentCosted():
                self._cost(data, incident)
            case inferred.InputRejected() | inferred.InputsSuppressed():
                add("inputs_rejected", by=getattr(data, "rejected_count", 1))

    def _answer(self, data: Any, incident: str, decision: _Choice | None) -> None:
        add = self._series.add
        match data:
            case decided.RecoveryDecided():
                self._remember(data, incident)
                add("decisions", data.action, data.mode, incident=incident, at_ns=data.at_ns)
            case decided.QuiesceDecided():
                self._remember(data, incident)
                add("holds", data.mode, incident=incident, at_ns=data.at_ns)
            case decided.RecoveryWithheld():
                add("recoveries_withheld", data.limit, incident=incident, at_ns=data.at_ns)
            case done.AttemptCompleted() | done.AttemptFailed() | done.AttemptOutcomeUnknown():
                self._ended(data, incident, decision)

    def _incident(
        self, data: inferred.IncidentOpened | inferred.IncidentClosed, incident: str
    ) -> None:
        series, at_ns = self._series, data.at_ns
        if isinstance(data, inferred.IncidentOpened):
            self._open.add(incident)
            series.add("incidents_opened", data.trigger, incident=incident, at_ns=at_ns)
            if data.began_ns and data.trigger != "reopened":
                seconds = max(0, at_ns - data.began_ns) / _SECOND_NS
                series.observe("detect_seconds", seconds, incident=incident, at_ns=at_ns)
        else:
            self._open.discard(incident)
            labels = (data.outcome, data.fault_class)
            series.add("incidents_closed", *labels, incident=incident, at_ns=at_ns)
            seconds = max(0, data.ended_ns - data.began_ns) / _SECOND_NS
            series.observe("incident_seconds", seconds, incident=incident, at_ns=at_ns)
        series.set("incidents_open", to=len(self._open))

    def _remember(
        self, data: decided.RecoveryDecided | decided.QuiesceDecided, incident: str
    ) -> None:
        action = data.action if isinstance(data, decided.RecoveryDecided) else ""
        self._decisions[data.decision] = _Choice(incident, action)
        if len(self._decisions) > DECISIONS_MAX:
            del self._decisions[next(iter(self._decisions))]

    def _ended(self, data: done.Attempt, incident: str, decision: _Choice | None) -> None:
        action = decision.action if decision else OTHER
        if not action:
            return  # of a hold
        match data:
            case done.AttemptCompleted():
                end = "completed"
                self._series.add("process_restarts", by=data.restarts)
            case done.AttemptFailed():
                end = "withdrawn" if data.withdrawn else "failed"
            case _:
                end = "unknown"
        self._series.add("recoveries", action, end, incident=incident, at_ns=data.at_ns)

    def _account(self, data: inferred.GoodputAccounted) -> None:
        """Accounts grow: what a job's is more than the one before is new."""
        before = self._accounts.pop(data.job, None)
        if before is not None and before.since_ns != data.since_ns:
            before = None  # another job of that name
        for part, values in self._series.numbers["goodput_seconds"].items():
            field = f"{part[0]}_ns"
            was_ns = getattr(before.parts, field, 0) if before else 0
            grown_ns = max(0, getattr(data.parts, field) - was_ns)
            self._series.numbers["goodput_seconds"][part] = values + grown_ns / _SECOND_NS
        redone = data.redone_count - (before.redone_count if before else 0)
        self._series.add("steps_redone", by=max(0, redone))
        if not data.ended:
            self._accounts[data.job] = data

    def _cost(self, data: inferred.IncidentCosted, incident: str) -> None:
        key = (incident, data.job)
        before = self._costs.pop(key, 0)
        grown = max(0, data.lost_gpu_ms - before) / 1000
        self._series.add("lost_gpu_seconds", by=grown, incident=incident, at_ns=data.at_ns)
        if not data.final:
            self._costs[key] = max(before, data.lost_gpu_ms)
            if len(self._costs) > COSTS_MAX:
                del self._costs[next(iter(self._costs))]
