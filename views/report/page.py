"""A report as one page of HTML that needs nothing else: no script, no font, no picture, no network.

A policy in the page forbids them all, so a log line cannot bring one in. Every word is escaped.
"""

import base64
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Final

from nemesis.schemas.envelope import rfc3339
from nemesis.views.report.gather import Cost, Report, Step
from nemesis.views.report.spans import after, span
from nemesis.views.report.style import STYLE
from nemesis.views.report.timeline import timeline

_GOOD: Final = frozenset({"recovered", "no action", "refuted", "cleared"})
_BAD: Final = frozenset({"failed", "expired", "unknown", "withheld", "vetoed"})
_NS_PER_HOUR: Final = 3_600_000


def page(report: Report) -> str:
    """The whole document."""
    hashed = base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    sections = [
        _verdict(report),
        _section("What to do next", _list(report.to_do)),
        _section("Evidence", _evidence(report)),
        _section("Time line", _timeline(report)),
        _section("Decisions", "".join(map(_step, report.steps))),
        _section("What it cost", "".join(map(_cost, report.costs))),
        _section("Belongs to it", _list(report.grouped)),
        _section("Notes", _list(report.notes)),
        _section("Prove it", _commands(report.replay)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(report.incident)}: {escape(report.title)}</title>"
        f"<style>{STYLE}</style></head><body><main>"
        f"<header><p>Incident <code>{escape(report.incident)}</code>,"
        f" {escape(rfc3339(report.began_ns))}</p><h1>{escape(report.title)}</h1>"
        f"<p>{_pills(report)}</p></header>"
        f"{''.join(sections)}"
        f"<footer>Made by nemesis report from {escape(report.source)}. Times are those at which the"
        " server stored each fact.</footer></main></body></html>\n"
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


def _list(items: Iterable[str]) -> str:
    inside = "".join(f"<li>{escape(each)}</li>" for each in items)
    return f"<ul>{inside}</ul>" if inside else ""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""
