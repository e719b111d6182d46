"""The numbers of every metric in the table, by label values, and which incident was the last."""

from bisect import bisect_left
from itertools import accumulate
from typing import Final

import msgspec

from nemesis.views.exporter.catalogue import BY_NAME, METRICS, SECONDS

INCIDENT_CHARS_MAX: Final = 64
"""An exemplar's labels may have 128 characters in all (OpenMetrics 1.0)."""

Values = tuple[str, ...]


class Example(msgspec.Struct, frozen=True):
    """The incident that a count was last raised for."""

    incident: str
    value: float
    at_ns: int


class Spread(msgspec.Struct):
    """A histogram: counts by bucket, the last one without an upper bound."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    sum: float = 0.0
    examples: dict[int, Example] = {}
    """By bucket."""

    def cumulative(self) -> list[int]:
        """As it is exported: how many were at most so long."""
        return list(accumulate(self.counts))


class Series:
    """Every number, from 0 on: a series that is there before its first event loses none."""

    def __init__(self) -> None:
        self.numbers: Final[dict[str, dict[Values, float]]] = {
            metric.name: dict.fromkeys(metric.combinations(), 0.0)
            for metric in METRICS
            if metric.type != "histogram"
        }
        self.spreads: Final = {m.name: Spread() for m in METRICS if m.type == "histogram"}
        self.examples: Final[dict[tuple[str, Values], Example]] = {}

    def add(
        self, name: str, *labels: str, by: float = 1.0, incident: str = "", at_ns: int = 0
    ) -> None:
        """Raise a count; `incident` and when it happened become its exemplar."""
        assert by >= 0, f"{name} only grows"
        values = _values(name, labels)
        self.numbers[name][values] = self.numbers[name].get(values, 0.0) + by
        if incident and by:
            self.examples[name, values] = Example(incident[:INCIDENT_CHARS_MAX], by, at_ns)

    def set(self, name: str, *labels: str, to: float) -> None:
        """What a gauge shows now."""
        self.numbers[name][_values(name, labels)] = to

    def observe(self, name: str, seconds: float, *, incident: str = "", at_ns: int = 0) -> None:
        """One more duration."""
        spread = self.spreads[name]
        bucket = bisect_left(SECONDS, seconds)
        spread.counts[bucket] += 1
        spread.sum += seconds
        if incident:
            spread.examples[bucket] = Example(incident[:INCIDENT_CHARS_MAX], seconds, at_ns)


def _values(name: str, labels: Values) -> Values:
    known = BY_NAME[name].labels
    return tuple(label.value(text) for label, text in zip(known, labels, strict=True))
