"""What `nemesis triage` says to a person: verdict, culprit, evidence, recovery, in that order."""

from collections.abc import Iterator

from nemesis.schemas.printable import one_line
from nemesis.views.names import in_ranges
from nemesis.views.triage_answer import Answer, Triage

_EVIDENCE_SHOWN = 12
_TEXT_CHARS = 160


def text_of(triage: Triage) -> str:
    """The whole answer."""
    lines = [*_incident(triage)]
    for other in triage.others:
        lines.append("")
        lines.extend(_incident(other, prefix="also: "))
    if triage.unread:
        lines.extend(["", "not read:"])
        lines.extend(f"  {each.file}: {each.why}" for each in triage.unread)
    if triage.notes:
        lines.extend(["", "notes:"])
        lines.extend(f"  {note}" for note in triage.notes)
    return "\n".join(map(one_line, lines))


def _incident(answer: Answer, prefix: str = "") -> Iterator[str]:
    yield prefix + headline(answer)
    if answer.reason:
        yield f"  {answer.reason}"
    for culprit in answer.culprits:
        label = f"  ({culprit.label})" if culprit.label else ""
        yield f"  culprit   {culprit.id}{label}"
    if answer.victims:
        yield f"  innocent  {', '.join(in_ranges(answer.victims))}"
    for cited in answer.evidence[:_EVIDENCE_SHOWN]:
        yield f"  evidence  {place(cited.file, cited.line)}: {cited.says}"
        if cited.text:
            yield f"            | {_cut(cited.text.strip())}"
    if (left := len(answer.evidence) - _EVIDENCE_SHOWN) > 0:
        yield f"            and {left} more (--json has them all)"
    for other in answer.ruled_out:
        where = f" ({place(other.file, other.line)})" if other.file else ""
        yield f"  not       {other.says}: {other.because}{where}"
    yield from _advice(answer)
    for each in answer.missing:
        yield f"  collect   {each}"


def _advice(answer: Answer) -> Iterator[str]:
    yield f"  do        {answer.recovery.action}{_targets(answer)}"
    if answer.recovery.reason:
        yield f"            {answer.recovery.reason}"
    if answer.recovery.avoid:
        yield f"  don't     {answer.recovery.avoid}"


def place(file: str, line: int | None) -> str:
    """Where something was read, as editors take it."""
    return file if line is None else f"{file}:{line}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else f"{text[: _TEXT_CHARS - 1]}…"


def _targets(answer: Answer) -> str:
    """The target of the action; where it is one of several culprits, it is to be done to all."""
    target = answer.recovery.target
    names = [culprit.id for culprit in answer.culprits]
    return f" {', '.join(in_ranges(names)) if target in names else target}".rstrip()


def headline(answer: Answer) -> str:
    """The verdict in one line."""
    percent = round(answer.confidence * 100)
    match answer.verdict:
        case "attributed":
            who = ", ".join(in_ranges(culprit.id for culprit in answer.culprits))
            verb = "is" if len(answer.culprits) == 1 else "are"
            return f"{answer.fault_class}: {who} {verb} at fault ({percent} % sure)"
        case "class-only":
            return f"{answer.fault_class}: the part is not named by these files ({percent} % sure)"
        case "insufficient":
            return "insufficient evidence: these files do not say what is at fault"
        case "no-fault":
            return "no fault found in these files"
