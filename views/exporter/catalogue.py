"""Every metric of the exporter: its name, type, unit and labels, and which values a label may have.

Why a table: names and labels are an interface, dashboards and alerts hang on them. The page
docs/metrics.md is made from it, and a query that names something else fails a test. A label has a
closed list of values; what is not in it counts as `other`, so nothing that happens in a cluster
makes more series than the table allows: no label names a node, a job, a GPU or an incident.
Incidents are named by exemplars. Names: prometheus.io/docs/practices/naming.
"""

from itertools import product
from typing import Final, Literal, get_args

import msgspec

from nemesis.processors.catalogue import CATALOGUE
from nemesis.processors.goodput.account import PARTS
from nemesis.schemas.codes import ACTIONS, FAULT_CLASSES, Verdict
from nemesis.schemas.decided import Mode
from nemesis.schemas.inferred import IncidentOutcome, IncidentTrigger, RiskBand
from nemesis.schemas.policy import CELL_LIMITS, JOB_LIMITS
from nemesis.schemas.registry import EVENTS
from nemesis.schemas.watched import ProbeState

OTHER: Final = "other"
PREFIX: Final = "nemesis_"
MetricType = Literal["counter", "gauge", "histogram"]

SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Upper bounds of buckets: the goals are 0.3 s, 1.5 s and 30 s, the worst is a person's night."""

LIMITS: Final = (
    *CELL_LIMITS,
    *JOB_LIMITS,
    "expired",
    "forecast_moves_max",
    "no_rung",
    "paused",
    "protected",
    "unanswered",
    "vetoed",
)
SOURCES: Final = (
    "clock",
    "dcgm",
    "ethtool",
    "inspector",
    "journal",
    "kmsg",
    "nvml",
    "proc",
    "ranks",
    "ras",
    "rdma",
    "sysfs",
)
XIDS: Final = tuple(str(code) for code in range(1, 180))
"""The codes that the driver's table has, and room for more."""
RECOVERY_RESULTS: Final = ("completed", "failed", "withdrawn", "unknown")
PRODUCER_STATUS: Final = ("reporting", "silent", "ended")
GAPS: Final = tuple(state for state in get_args(ProbeState) if state != "read")


class Label(msgspec.Struct, frozen=True):
    """A label and every value that it may have beside `other`."""

    name: str
    values: tuple[str, ...]

    def value(self, text: str) -> str:
        """What is exported for this text."""
        return text if text in self.values else OTHER


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric family."""

    name: str
    """Without the prefix, and of counters without `_total`."""
    type: MetricType
    help: str
    labels: tuple[Label, ...] = ()
    named: bool = False
    """Its exemplars name the incident."""

    @property
    def exported(self) -> str:
        """The name that a query uses."""
        return f"{PREFIX}{self.name}{'_total' if self.type == 'counter' else ''}"

    @property
    def series_max(self) -> int:
        """How many series it can have at most."""
        count = len(SECONDS) + 3 if self.type == "histogram" else 1
        for label in self.labels:
            count *= len(label.values) + 1
        return count

    def combinations(self) -> list[tuple[str, ...]]:
        """Every set of label values, `other` left out."""
        return list(product(*(label.values for label in self.labels)))


def _counter(name: str, help: str, *labels: Label, named: bool = False) -> Metric:
    return Metric(name=name, type="counter", help=help, labels=labels, named=named)


def _gauge(name: str, help: str, *labels: Label) -> Metric:
    return Metric(name=name, type="gauge", help=help, labels=labels)


def _histogram(name: str, help: str) -> Metric:
    return Metric(name=name, type="histogram", help=help, named=True)


_CLASS: Final = Label("fault_class", FAULT_CLASSES)
_ACTION: Final = Label("action", ACTIONS)
_MODE: Final = Label("mode", get_args(Mode))
_GAP: Final = (Label("source", SOURCES), Label("state", GAPS))
_PROCESSOR: Final = Label("processor", tuple(sorted(CATALOGUE)))

METRICS: Final = (
    _counter("events", "Facts concluded, decided, done or operated.", Label("fact", tuple(EVENTS))),
    _counter("events_unreadable", "Events that this release cannot decode."),
    _counter(
        "incidents_opened",
        "Incidents opened, by what opened them; an incident that opens again counts again.",
        Label("trigger", get_args(IncidentTrigger)),
        named=True,
    ),
    _counter(
        "incidents_closed",
        "Incidents closed.",
        Label("outcome", get_args(IncidentOutcome)),
        _CLASS,
        named=True,
    ),
    _gauge("incidents_open", "Incidents that are open now."),
    _counter(
        "verdicts",
        "First verdicts of incidents.",
        Label("verdict", get_args(Verdict)),
        _CLASS,
        named=True,
    ),
    _counter("verdict_revisions", "Verdicts that replaced an earlier one of the same incident."),
    _counter(
        "predictions",
        "Changes of how likely a part is to fail.",
        Label("band", get_args(RiskBand)),
        _CLASS,
        named=True,
    ),
    _counter("decisions", "Recoveries decided.", _ACTION, _MODE, named=True),
    _counter("holds", "Decisions to hold a job at its last common state.", _MODE, named=True),
    _counter(
        "recoveries_withheld",
        "Recoveries that were due and not begun, by what stands in the way.",
        Label("limit", LIMITS),
        named=True,
    ),
    _counter(
        "recoveries",
        "Recoveries that ended; action is `other` where the decision is not known any more.",
        _ACTION,
        Label("result", RECOVERY_RESULTS),
        named=True,
    ),
    _counter("process_restarts", "Processes of ranks that recoveries started anew."),
    _histogram("detect_seconds", "Log time from the first sign of an incident to its opening."),
    _histogram("incident_seconds", "Log time from the first sign of an incident to its end."),
    _histogram("pause_seconds", "Time between the last step before a recovery and the next one."),
    _counter(
        "goodput_seconds",
        "Where the time of jobs went, all jobs together.",
        Label("part", PARTS),
    ),
    _counter("steps_redone", "Steps of jobs that were, or are to be, done more than once."),
    _counter("lost_gpu_seconds", "GPU time that incidents cost, all jobs together.", named=True),
    _counter("inputs_rejected", "Observations that could not be read."),
    _counter("xid", "Xids in the nodes' kernel logs.", Label("code", XIDS)),
    _gauge("log_reachable", "1 while the log answers."),
    _gauge("log_used_bytes", "Bytes that the log holds."),
    _gauge("log_limit_bytes", "Bytes that the log may hold; 0: no limit."),
    _gauge("log_fill_ratio", "Used over limit."),
    _counter("log_records", "Facts ever appended: the last sequence."),
    _gauge("clock_age_seconds", "Since the last tick was stored; -1: there was none."),
    _gauge("processor_lag_seconds", "Log time that a processor is behind.", _PROCESSOR),
    _gauge("processor_lag_records", "Facts that a processor is behind.", _PROCESSOR),
    _gauge("exporter_lag_records", "Events that wait to be counted here."),
    _gauge(
        "producers",
        "Nodes by what was heard of their producer: within 3 minutes, not any more, told to end.",
        Label("status", PRODUCER_STATUS),
    ),
    _gauge("coverage_gaps", "Things on nodes that should be watched and are not.", *_GAP),
    _counter("coverage_gaps_opened", "How often such a gap was seen to begin.", *_GAP),
    _counter("producer_dropped_facts", "Facts that producers gave up, as they told."),
    _counter("producer_missed_lines", "Kernel lines overwritten before a producer read them."),
    _gauge("producer_waiting_facts", "Facts that producers hold and the log has not yet."),
    _gauge("producer_late_seconds", "How much later than due a poll came, the worst of all nodes."),
    _gauge("producer_cpu_ratio", "What a producer takes of one core, the worst of all nodes."),
)
BY_NAME: Final = {metric.name: metric for metric in METRICS}
SERIES_MAX: Final = sum(metric.series_max for metric in METRICS) + 1  # and build_info
