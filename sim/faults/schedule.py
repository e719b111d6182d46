"""A schedule of faults: a real trace replayed, or arrivals drawn at published rates, as a scenario.

A day of a real cluster is mostly quiet, so time may be pressed together: rates and pauses shrink,
what a fault does to the cluster takes as long as ever. A trace is a JSON list of events as
stepfun-ai/InfiniteHBD-Trace publishes them: `node_id`, `event_time` in days, `event_type`
fault_start or fault_end, `fault_type` with Class and Desc.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Final, Literal

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.rates import DAY_S, arrivals, distribution_named
from nemesis.sim.faults.scenario import ANYTHING, Scenario
from nemesis.sim.topology.cluster import Cluster
from nemesis.streams.documents import BadDocumentError, read_document

TRACE_BYTES_MAX: Final = 64 << 20
MAPPING: Final = "infinitehbd"
"""The rates whose rows say which kinds stand for a trace's faults."""
SERVERS_COUNT: Final = 400
"""Of the trace, those that never failed included."""
BEGIN_S: Final = 10.0
"""Before the first fault: processors have seen some steps."""
SETTLE_S: Final = 90.0


class BadTraceError(NemesisError):
    """A trace that cannot be replayed."""

    exit_code = 2


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which days, and how much the time between faults is pressed together."""

    from_day: float = 0.0
    days: float
    faster: float


class _FaultType(msgspec.Struct, frozen=True):
    fault_class: str = msgspec.field(name="Class")
    desc: str = msgspec.field(name="Desc")


class TraceEvent(msgspec.Struct, frozen=True):
    """One event of a trace."""

    node_id: str
    event_time: Annotated[float, msgspec.Meta(ge=0.0)]
    """In days."""
    event_type: Literal["fault_start", "fault_end"]
    fault_type: _FaultType

    @property
    def what(self) -> str:
        """As the rows of the rates are called."""
        return f"{self.fault_type.fault_class}/{self.fault_type.desc}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of a cluster over time."""

    scenario: Scenario
    skipped: dict[str, int]
    """What no kind of fault stands for, and how often it was there."""


def read_trace(path: Path) -> list[TraceEvent]:
    """The events of a trace, by time.

    Raises:
        BadTraceError: no such file, too large, or not of this form; names the event.
    """
    try:
        raw = read_document(path, bytes_max=TRACE_BYTES_MAX)
        events = msgspec.json.decode(raw, type=list[TraceEvent])
    except BadDocumentError as error:
        raise BadTraceError(error.message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadTraceError(f"{path}: no trace: {error}") from error
    return sorted(events, key=lambda each: each.event_time)


def scheduled(
    cluster: Cluster, span: Span, *, trace: Path | None, rates: str, seed: int
) -> Schedule:
    """The faults of a trace, else at published rates.

    Raises:
        BadTraceError: a trace that cannot be read, or nothing that breaks.
        BadRatesError: no rates of that name.
    """
    if trace is not None:
        return of_trace(read_trace(trace), cluster.node_names, span, seed=seed)
    return at_rates(rates, cluster.job_nodes, span, seed=seed)


def of_trace(
    events: Sequence[TraceEvent], nodes: Sequence[str], span: Span, *, seed: int
) -> Schedule:
    """The faults of some days of a trace, on as many of its servers as there are nodes.

    Servers are drawn among all, those that never failed included, so that a node fails as often as
    a server did.

    Raises:
        BadTraceError: nothing that can be simulated falls into these days.
    """
    random = Random(f"{seed}/trace")
    servers = sorted({each.node_id for each in events})
    servers += [f"never failed {at}" for at in range(SERVERS_COUNT - len(servers))]
    random.shuffle(servers)
    home = dict(zip(servers, nodes, strict=False))
    kinds = {row.what: row.kinds for row in distribution_named(MAPPING).rows}
    planned: list[FaultPlanned] = []
    skipped: Counter[str] = Counter()
    for each in events:
        within = span.from_day <= each.event_time < span.from_day + span.days
        if not within or each.event_type != "fault_start" or each.node_id not in home:
            continue
        if not kinds.get(each.what):
            skipped[each.what] += 1
            continue
        at_s = BEGIN_S + (each.event_time - span.from_day) * DAY_S / span.faster
        planned.append(_planned(random.choice(kinds[each.what]), at_s, home[each.node_id]))
    until = span.from_day + span.days
    title = f"days {span.from_day:g} to {until:g} of a trace, {span.faster:g} times as fast"
    return Schedule(scenario=_scenario("trace", title, planned, span), skipped=dict(skipped))


def at_rates(name: str, nodes: Sequence[str], span: Span, *, seed: int) -> Schedule:
    """Faults that come as often as was published.

    Raises:
        BadRatesError: no rates of that name.
        BadTraceError: nothing came in these days.
    """
    random = Random(f"{seed}/{name}")
    came = arrivals(
        distribution_named(name),
        nodes_count=len(nodes),
        lasts_s=span.days * DAY_S,
        random=Random(f"{seed}/rates"),
    )
    planned = [
        _planned(each.kind, BEGIN_S + each.at_s / span.faster, random.choice(nodes))
        for each in came
    ]
    title = f"{span.days:g} days at the rates of {name}, {span.faster:g} times as fast"
    return Schedule(scenario=_scenario(name, title, planned, span), skipped={})


def _planned(kind: str, after_s: float, node: str) -> FaultPlanned:
    document = {"kind": kind, "after_s": round(after_s, 3), "node": node}
    fault: FaultPlanned = msgspec.convert(document, FaultPlanned)
    return fault


def _scenario(name: str, title: str, planned: Sequence[FaultPlanned], span: Span) -> Scenario:
    if not planned:
        raise BadTraceError(
            f"{title}: nothing breaks that can be simulated",
            hint="take more days, more nodes, or another seed",
        )
    return Scenario(
        name=name,
        title=title,
        faults=tuple(planned),
        expect=ANYTHING,
        duration_s=round(BEGIN_S + span.days * DAY_S / span.faster + SETTLE_S, 1),
    )
