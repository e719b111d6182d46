"""The series as `prometheus_client` writes them: OpenMetrics where asked for, else plain text."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Timestamp

from nemesis import __version__
from nemesis.views.exporter.catalogue import METRICS, PREFIX, SECONDS, Metric
from nemesis.views.exporter.series import Example, Series

_SECOND_NS: Final = 1_000_000_000


def page(series: Series, accept: str) -> tuple[str, bytes]:
    """(content type, text) of all series, in the format that an Accept header asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(series))
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


class _Families(Collector):
    def __init__(self, series: Series) -> None:
        self._series = series

    def collect(self) -> Iterable[Family]:
        version = InfoMetricFamily(f"{PREFIX}build", "Which release this is.")
        version.add_metric([], {"version": __version__})
        yield version
        for metric in METRICS:
            yield self._family(metric)

    def _family(self, metric: Metric) -> Family:
        name, labels = f"{PREFIX}{metric.name}", [label.name for label in metric.labels]
        if metric.type == "histogram":
            return self._histogram(metric)
        numbers = sorted(self._series.numbers[metric.name].items())
        if metric.type == "gauge":
            gauge = GaugeMetricFamily(name, metric.help, labels=labels)
            for values, number in numbers:
                gauge.add_metric(values, number)
            return gauge
        counter = CounterMetricFamily(name, metric.help, labels=labels)
        for values, number in numbers:
            example = self._series.examples.get((metric.name, values))
            counter.add_metric(values, number, exemplar=_exemplar(example))
        return counter

    def _histogram(self, metric: Metric) -> Family:
        spread = self._series.spreads[metric.name]
        family = HistogramMetricFamily(f"{PREFIX}{metric.name}", metric.help)
        bounds = [*map(str, SECONDS), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for at, (bound, count) in enumerate(zip(bounds, spread.cumulative(), strict=True)):
            named = _exemplar(spread.examples.get(at))
            buckets.append((bound, count, named) if named else (bound, count))
        family.add_metric([], buckets, spread.sum)
        return family


def _exemplar(example: Example | None) -> Exemplar | None:
    if example is None:
        return None
    at = Timestamp(*divmod(example.at_ns, _SECOND_NS))
    return Exemplar({"incident": example.incident}, example.value, at)
