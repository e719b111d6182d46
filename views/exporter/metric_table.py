"""The page of every metric, made from the table."""

from nemesis.views.exporter.catalogue import METRICS, SERIES_MAX, Metric

_SHOWN_MAX = 12


def metric_table() -> str:
    """The page, as markdown."""
    lines = [
        "# Metrics of the exporter",
        "",
        "Made by `python -m tests.generate` from views/exporter/catalogue.py. What they are for,",
        "alerts and the dashboard: [monitoring.md](monitoring.md).",
        "",
        f"At most {SERIES_MAX:,} series, whatever happens in a cluster: what a label's list does",
        "not hold is `other`. Exemplars (OpenMetrics) name the newest incident of a count.",
        "",
        "| metric | type | labels | exemplar | what |",
        "|---|---|---|---|---|",
        "| `nemesis_build_info` | gauge | `version` | | Which release this is. |",
    ]
    lines += [_row(metric) for metric in METRICS]
    lines += ["", "## Values of labels", "", "| label | values |", "|---|---|"]
    labels = {label.name: label.values for metric in METRICS for label in metric.labels}
    lines += [f"| `{name}` | {_values(values)} |" for name, values in sorted(labels.items())]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label.name}`" for label in metric.labels)
    named = "incident" if metric.named else ""
    return f"| `{metric.exported}` | {metric.type} | {labels} | {named} | {metric.help} |"


def _values(values: tuple[str, ...]) -> str:
    if len(values) > 2 * _SHOWN_MAX and all(value.isdecimal() for value in values):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(f"`{value}`" for value in values)
