"""What `nemesis triage --html` writes: one page for the incident channel. Every word is escaped."""

from collections.abc import Iterable, Iterator
from html import escape

from nemesis.schemas.printable import one_line
from nemesis.views.names import in_ranges
from nemesis.views.report.document import document, items, section
from nemesis.views.triage_answer import Alternative, Answer, Citation, Recovery, Triage
from nemesis.views.triage_text import headline, place

_EVIDENCE_SHOWN = 40


def page_of(triage: Triage) -> str:
    """The whole document."""
    unread = (f"{each.file}: {each.why}" for each in triage.unread)
    sections = [
        *_sections(triage),
        *(section(_said(headline(each)), "".join(_inner(each))) for each in triage.others),
        section("Not read", items(map(one_line, unread))),
        section("Notes", items(map(one_line, triage.notes))),
    ]
    title = headline(triage)
    header = f"<p>nemesis triage</p><h1>{_said(title)}</h1><p>{_pills(triage)}</p>"
    footer = "Made by nemesis triage from the files named. What it does not name, it does not know."
    return document(title=one_line(title), header=header, sections=sections, footer=footer)


def _pills(answer: Answer) -> str:
    tone = {"attributed": "bad", "no-fault": "good"}.get(answer.verdict, "calm")
    sure = f"{round(answer.confidence * 100)} % sure"
    return (
        f'<span class="pill {tone}">{escape(answer.verdict)}</span>'
        f'<span class="pill calm">{escape(answer.fault_class)}</span>'
        f'<span class="pill calm">{sure}</span>'
    )


def _sections(answer: Answer) -> Iterator[str]:
    yield f"<section>{_verdict(answer)}</section>"
    yield section("What to do", _recovery(answer.recovery))
    yield section("Evidence", _evidence(answer.evidence))
    yield section("Considered and ruled out", _ruled_out(answer.ruled_out))
    yield section("What would settle it", items(map(one_line, answer.missing)))


def _inner(answer: Answer) -> Iterator[str]:
    """Another incident, in one section."""
    yield _verdict(answer)
    yield _recovery(answer.recovery)
    yield _evidence(answer.evidence)
    yield _ruled_out(answer.ruled_out)
    yield items(map(one_line, answer.missing))


def _verdict(answer: Answer) -> str:
    rows = [
        ("culprit", _names(f"{each.id} {each.label}".strip() for each in answer.culprits)),
        ("innocent", _names(in_ranges(answer.victims))),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows if text)
    return f'<p class="lead">{_said(answer.reason)}</p>' + (f"<dl>{terms}</dl>" if terms else "")


def _names(names: Iterable[str]) -> str:
    return "<br>".join(f"<code>{_said(each)}</code>" for each in names)


def _recovery(recovery: Recovery) -> str:
    rows = [
        ("do", f"<strong>{_said(f'{recovery.action} {recovery.target}'.strip())}</strong>"),
        ("because", _said(recovery.reason)),
        ("do not", _said(recovery.avoid)),
    ]
    return "<dl>" + "".join(f"<dt>{n}</dt><dd>{text}</dd>" for n, text in rows if text) + "</dl>"


def _evidence(cited: Iterable[Citation]) -> str:
    shown = list(cited)[:_EVIDENCE_SHOWN]
    quoted = "".join(
        f"<li>{_said(each.says)}"
        + (f"<pre>{_said(each.text.strip())}</pre>" if each.text else "")
        + f'<div class="dim small mono">{_said(place(each.file, each.line))}</div></li>'
        for each in shown
    )
    return f"<ol>{quoted}</ol>" if quoted else ""


def _ruled_out(others: Iterable[Alternative]) -> str:
    return items(
        one_line(f"{each.says}: {each.because}")
        + (f" ({one_line(place(each.file, each.line))})" if each.file else "")
        for each in others
    )


def _said(text: str) -> str:
    return escape(one_line(text))
