"""Leaves out what a host's kernel printed before it was started anew, where the job began later.

Why: a journal reaches back for months, and a GPU that was lost and replaced in spring is not why a
job died in summer. How: a job whose dated lines all lie after a start of the host did not see what
was printed before that start. A journal whose boot is the answer to the fault itself is kept: the
job's lines begin before it.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.producers.readers.text_file import TextFile
from nemesis.producers.readers.timeline import UNKNOWN_ERROR_NS, Event
from nemesis.schemas.observed import LogLineWritten

_STARTED: Final = "Linux version "  # the first words of every kernel, init/version-timestamp.c


def without_earlier_boots(
    events: Sequence[Event], texts: Sequence[TextFile], notes: list[str]
) -> list[Event]:
    """The events, in their order, without those of boots that were over before the job began."""
    began_ns = min(
        (
            text.oldest_ns
            for text in texts
            if text.oldest_ns and any(isinstance(n.observation, LogLineWritten) for n in text.notes)
        ),
        default=0,
    )
    started_ns: dict[str, int] = {}
    for each in events:
        if not each.line.text.startswith(_STARTED) or each.error_ns >= UNKNOWN_ERROR_NS:
            continue
        if each.at_ns + each.error_ns < began_ns:
            started_ns[each.host] = each.at_ns
    kept = [each for each in events if each.at_ns >= started_ns.get(each.host, 0)]
    if len(kept) < len(events):
        hosts = sorted({each.host for each in events if each.at_ns < started_ns.get(each.host, 0)})
        count = len(events) - len(kept)
        notes.append(
            f"{count} lines of {', '.join(hosts)} are of an earlier boot, before the job began"
        )
    return kept
