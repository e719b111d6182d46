"""A report as Markdown: for a terminal, a ticket, a chat."""

from collections.abc import Iterator

from nemesis.schemas.envelope import rfc3339
from nemesis.views.report.gather import Cost, Report
from nemesis.views.report.spans import after, span

_MS_PER_HOUR = 3_600_000


def text(report: Report) -> list[str]:
    """Lines."""
    return list(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"# {report.title}"
    yield ""
    yield f"Incident {report.incident}, {rfc3339(report.began_ns)}: {report.outcome}."
    if report.reason:
        sure = f" ({report.confidence_ppm / 10_000:.0f} % sure)" if report.confidence_ppm else ""
        yield f"{report.reason}{sure}"
    if report.outcome_reason:
        yield report.outcome_reason
    yield from _list("What to do next", report.to_do)
    if report.evidence:
        yield from ("", "## Evidence", "")
        for each in report.evidence:
            yield f"- {each.says} ({each.fact})"
            if each.text:
                yield f"  > {each.text}"
    yield from _list("Innocent", report.victims)
    yield from ("", "## Time line", "")
    for moment in report.moments:
        ago = after(moment.at_ns - report.began_ns)
        yield f"- {ago} {moment.fact} [{moment.seq}]: {moment.text}"
    yield from _decisions(report)
    yield from _list("What it cost", list(map(_cost, report.costs)))
    yield from _list("Belongs to it", report.grouped)
    yield from _list("Notes", report.notes)
    yield from _list("Prove it", [f"`{each}`" for each in report.replay])


def _decisions(report: Report) -> Iterator[str]:
    if report.steps:
        yield from ("", "## Decisions", "")
    for step in report.steps:
        yield f"- {step.decision}: {step.what} ({step.mode}). {step.reason}"
        yield from (f"  - cheaper, not taken: {each}" for each in step.refused)
        yield from (f"  - became: {each}" for each in step.became)


def _cost(cost: Cost) -> str:
    hours = cost.lost_gpu_ms / _MS_PER_HOUR
    parts = ", ".join(f"{name} {span(ns)}" for name, ns in cost.parts_ns.items())
    return f"{cost.job}: {span(cost.lost_ns)}, {hours:.2f} GPU hours ({parts})"


def _list(title: str, items: list[str]) -> Iterator[str]:
    if items:
        yield from ("", f"## {title}", "")
        yield from (f"- {each}" for each in items)
