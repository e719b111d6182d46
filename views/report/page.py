"""A report of an incident as one page of HTML. Every word is escaped."""

from collections.abc import Iterable
from html import escape
from typing import Final

from nemesis.schemas.envelope import rfc3339
from nemesis.views.report.document import document, items, section
from nemesis.views.report.gather import Cost, Report, Step
from nemesis.views.report.spans import after, span
from nemesis.views.report.timeline import timeline

_GOOD: Final = frozenset({"recovered", "no action", "refuted", "cleared"})
_BAD: Final = frozenset({"failed", "expired", "unknown", "withheld", "vetoed"})
_NS_PER_HOUR: Final = 3_600_000


def page(report: Report) -> str:
    """The whole document."""
    sections = [
        _verdict(report),
        section("What to do next", items(report.to_do)),
        section("Evidence", _evidence(report)),
        section("Time line", _timeline(report)),
        section("Decisions", "".join(map(_step, report.steps))),
        section("What it cost", "".join(map(_cost, report.costs))),
        section("Belongs to it", items(report.grouped)),
        section("Notes", items(report.notes)),
        section("Prove it", _commands(report.replay)),
    ]
    header = (
        f"<p>Incident <code>{escape(report.incident)}</code>,"
        f" {escape(rfc3339(report.began_ns))}</p><h1>{escape(report.title)}</h1>"
        f"<p>{_pills(report)}</p>"
    )
    return document(
        title=f"{report.incident}: {report.title}",
        header=header,
        sections=sections,
        footer=f"Made by nemesis report from {escape(report.source)}. Times are those at which the"
        " server stored each fact.",
    )


def _pills(report: Report) -> str:
    tone = "good" if report.outcome in _GOOD else "bad" if report.outcome in _BAD else "calm"
    pills = [f'<span class="pill {tone}">{escape(report.outcome)}</span>']
    if report.verdict != "none":
        pills.append(f'<span class="pill calm">{escape(report.verdict)}</span>')
    if report.late:
        pills.append('<span class="pill bad">told by facts that came late</span>')
    return "".join(pills)


def _verdict(report: Report) -> str:
    lasted = span(report.ended_ns - report.began_ns)
    rows = [
        ("culprit", "<br>".join(f"<code>{escape(each)}</code>" for each in report.culprits)),
        ("class", f"<code>{escape(report.fault_class)}</code>" if report.fault_class else ""),
        ("confidence", f"{report.confidence_ppm / 10_000:.0f} %" if report.confidence_ppm else ""),
        ("innocent", "<br>".join(f"<code>{escape(each)}</code>" for each in report.victims)),
        ("job", f"<code>{escape(report.job)}</code>" if report.job else ""),
        ("outcome", escape(report.outcome_reason or report.outcome)),
        ("took", f"{escape(lasted)} from the first sign to the last fact"),
    ]
    lead = report.reason or "No verdict was reached."
    terms = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows if text)
    return f'<section><p class="lead">{escape(lead)}</p><dl>{terms}</dl></section>'


def _evidence(report: Report) -> str:
    items = [
        f"<li>{escape(each.says)}"
        + (f"<pre>{escape(each.text)}</pre>" if each.text else "")
        + f'<div class="dim small mono">{escape(each.fact)}</div></li>'
        for each in report.evidence
    ]
    return f"<ol>{''.join(items)}</ol>" if items else ""


def _timeline(report: Report) -> str:
    rows = [
        f'<tr><td class="number dim">{number}</td>'
        f'<td class="number">{escape(after(each.at_ns - report.began_ns))}</td>'
        f'<td class="nowrap {each.lane}">{escape(each.fact.replace("_", " "))}</td>'
        f'<td>{escape(each.text)}</td><td class="number dim">{each.seq}</td></tr>'
        for number, each in enumerate(report.moments, 1)
    ]
    return (
        f'<div class="scroll" tabindex="0">{timeline(report.moments)}</div>'
        '<div class="scroll"><table><thead><tr><th class="number">#</th>'
        '<th class="number">after</th><th>fact</th><th>what</th><th class="number">sequence</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _step(step: Step) -> str:
    refused = ""
    if step.refused:
        refused = f"<dt>cheaper, not taken</dt><dd>{'<br>'.join(map(escape, step.refused))}</dd>"
    became = "<br>".join(map(escape, step.became)) or "nothing was said of it"
    return (
        f"<dl><dt><code>{escape(step.decision)}</code></dt>"
        f'<dd><strong>{escape(step.what)}</strong> <span class="dim">({escape(step.mode)})</span>'
        f"</dd><dt>because</dt><dd>{escape(step.reason)}</dd>{refused}"
        f"<dt>became</dt><dd>{became}</dd></dl>"
    )


def _cost(cost: Cost) -> str:
    rows = [
        f'<tr><td>{escape(name)}</td><td class="number">{escape(span(value))}</td></tr>'
        for name, value in cost.parts_ns.items()
    ]
    state = "" if cost.final else ' <span class="dim">so far</span>'
    return (
        f"<p><code>{escape(cost.job)}</code> lost <strong>{escape(span(cost.lost_ns))}</strong>"
        f"{state}, {cost.lost_gpu_ms / _NS_PER_HOUR:.2f} GPU hours.</p>"
        f"<table><tbody>{''.join(rows)}</tbody></table>"
    )


def _commands(commands: Iterable[str]) -> str:
    return f"<pre>{escape(chr(10).join(commands))}</pre>"
