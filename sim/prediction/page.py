"""A judgement as one page that needs nothing else: tables, and plots by the plotly of the wheel."""

import json
from html import escape
from importlib.resources import files
from typing import Any, Final

from nemesis.processors.ecc_model.model import HORIZONS_S
from nemesis.sim.prediction.evaluation import LEAD_SHARES, Figure
from nemesis.sim.prediction.figures import Value
from nemesis.sim.prediction.judge import Hours, Judgement

_LIBRARY: Final = ("package_data", "plotly.min.js")
_LAYOUT: Final[dict[str, Any]] = {
    "margin": {"l": 60, "r": 20, "t": 40, "b": 50},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "legend": {"orientation": "h", "y": -0.25},
}
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
"""Of scorers in their order, the same in every plot."""
_SHOWN_PRECISION: Final = 0.01
"""Recall is drawn as far as anybody is so precise: beyond it everybody lies on the axis."""
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #bbb; padding: .2rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
.plot { height: 26rem }
.wide { overflow-x: auto }
"""


def written(found: Judgement) -> str:
    """HTML, of the first split that was judged where a plot is of one split."""
    evaluation = found.evaluation
    split = evaluation.figures[0].split
    own = [each for each in evaluation.figures if each.split == split]
    plots = {
        "precision": _precision(own),
        "reliability": _reliability(own),
        "leads": _leads(own),
    }
    if found.hours is not None:
        plots["hours"] = _hours(found.hours)
    drawn = "\n".join(f'<div class="plot" id="{name}"></div>' for name in plots)
    about = (
        f"{evaluation.lives_count} GPUs of a log"
        if evaluation.mix is None
        else f"Simulated, mix {evaluation.mix}: recall of failures is at most "
        f"{100 * evaluation.recall_ceiling:.1f} %; plots are of the split {split}"
    )
    library = files("plotly").joinpath(*_LIBRARY).read_text(encoding="utf-8")
    # a script's text must not end it; `<\/` is the same string in JavaScript
    data = json.dumps(plots).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Failure model</title>
<style>{_STYLE}</style></head><body>
<h1>Failure model {found.model_sha256[:12]}</h1>
<p>{escape(about)}.</p>
<div class="wide">{_table(evaluation.figures)}</div>
{drawn}
<script>{library}</script>
<script>
const plots = {data};
for (const [name, plot] of Object.entries(plots))
  Plotly.newPlot(name, plot.data, plot.layout, {{responsive: true, displaylogo: false}});
</script></body></html>
"""


def _table(figures: tuple[Figure, ...]) -> str:
    heads = [f"F1 at {each / 3600:g} h" for each in HORIZONS_S]
    head = ["split", "scorer", "PR-AUC at 2 h", *heads, "node-hours saved a month, by cost"]
    rows = []
    for each in figures:
        by_cost = next(told for told in each.told if told.name == "by cost")
        cells = [each.split, each.scorer, _value(each.pr_auc, 4)]
        cells += [_value(value, 3) for value in each.f1]
        cells.append(_value(by_cost.node_hours_saved_a_month, 0))
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _value(value: Value, digits: int) -> str:
    return f"{value.value:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def _plot(title: str, x: str, y: str, data: list[dict[str, Any]], **axes: Any) -> dict[str, Any]:
    layout: dict[str, Any] = {
        **_LAYOUT,
        "title": {"text": title},
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}},
        **axes,
    }
    return {"data": data, "layout": layout}


def _precision(figures: list[Figure]) -> dict[str, Any]:
    lines = [
        {
            "name": each.scorer,
            "x": [recall for recall, _ in each.curve],
            "y": [precision for _, precision in each.curve],
            **_coloured(at),
        }
        for at, each in enumerate(figures)
    ]
    points = [point for each in figures for point in each.curve]
    reached = [recall for recall, precision in points if precision >= _SHOWN_PRECISION]
    found = _plot("Precision and recall of steps, two hours", "recall", "precision", lines)
    found["layout"]["xaxis"]["range"] = [0, 1.05 * max(reached, default=1.0)]
    return found


def _coloured(at: int) -> dict[str, Any]:
    return {"line": {"color": _COLOURS[at % len(_COLOURS)]}}


def _reliability(figures: list[Figure]) -> dict[str, Any]:
    even: dict[str, Any] = {"name": "as said", "x": [0, 1], "y": [0, 1], "mode": "lines"}
    even["line"] = {"dash": "dot", "color": "#888"}
    lines = [
        {
            "name": each.scorer,
            "x": [said for _, said, _ in each.reliability],
            "y": [came for _, _, came in each.reliability],
            "mode": "lines+markers",
            **_coloured(at),
        }
        for at, each in enumerate(figures)
    ]
    title = "What came of chances of 1 % and more, two hours"
    return _plot(title, "chance", "share that failed", [even, *lines])


def _leads(figures: list[Figure]) -> dict[str, Any]:
    lines = []
    for at, each in enumerate(figures):
        told = next(told for told in each.told if told.name == "by cost")
        if told.leads_s:
            minutes = [lead / 60 for lead in told.leads_s]
            lines.append({"name": each.scorer, "x": minutes, "y": LEAD_SHARES, **_coloured(at)})
    title = "Lead time of foreseen failures, alarms by cost"
    return _plot(title, "minutes before the failure", "share with at most so much", lines)


def _hours(hours: Hours) -> dict[str, Any]:
    chances: list[dict[str, Any]] = [
        {
            "name": f"within {horizon / 3600:g} h",
            "x": hours.minutes_left,
            "y": [e / 1e6 for e in row],
        }
        for horizon, row in zip(HORIZONS_S, hours.chances_ppm, strict=True)
    ]
    inputs: list[dict[str, Any]] = [
        {"name": name, "x": hours.minutes_left, "y": row, "yaxis": "y2", "visible": "legendonly"}
        for name, row in hours.codes.items()
    ]
    return _plot(
        f"Last three hours of {hours.gpu} ({hours.kind})",
        "minutes, it fails at 0",
        "chance of failing",
        [*chances, *inputs],
        yaxis2={"title": {"text": "input, as a code"}, "overlaying": "y", "side": "right"},
        margin=_LAYOUT["margin"] | {"r": 70},
    )
