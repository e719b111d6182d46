"""Small tables that people write: what ran where, with which releases, and how it went.

A row is words and one outcome: `n1,n2  25`, `hpcx-2.14 MLNX_OFED 5.8 ok`, `a b c  all_reduce hang`.
A line that starts with # says what follows. Rows count only where several have the same form, so
that prose is none of them.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.codes import TrialOutcome
from nemesis.schemas.observed import TrialFinished

ROWS_MAX: Final = 4096
ROWS_MIN: Final = 2
_OUTCOMES: Final[dict[str, TrialOutcome]] = {
    **dict.fromkeys(
        ("ok", "pass", "passed", "works", "working", "good", "success", "fine"), "passed"
    ),
    **dict.fromkeys(("fail", "failed", "fails", "error", "crash", "crashed", "crashes"), "failed"),
    **dict.fromkeys(("hang", "hangs", "hung", "stuck", "timeout", "deadlock"), "hung"),
}
# what a row is made of; most lines of logs hold a colon, a bracket or a slash
_PLAIN: Final = re.compile(r"[\w\s.,|+=-]+\Z")
_RATE: Final = re.compile(r"\d{1,6}(?:\.\d{1,6})?\Z")
_HOSTS: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*\d[a-z0-9._-]*\Z", re.IGNORECASE)
_RELEASE: Final = re.compile(r"(?:[A-Za-z][\w+]*?[-_=])?v?\d+(?:\.\d+)+[\w.+-]*\Z")
_NAME: Final = re.compile(r"[A-Za-z][\w+-]*\Z")
_UNIT: Final = re.compile(r"\b(GB/s|GiB/s|Gb/s|Gbps|MB/s)", re.IGNORECASE)
_KBPS: Final = {"gb/s": 1_000_000, "gib/s": 1_073_742, "gbps": 125_000, "mb/s": 1_000}
_TRIAL: Final = re.compile(r"[a-z]+(?:_[a-z]+)+\Z")
WORDS_MAX: Final = 40


class RunsTable(Reader):
    """Collects rows; at the end they are a table or nothing."""

    def __init__(self) -> None:
        self._rows: list[Note] = []
        self._unit_kbps = _KBPS["gb/s"]
        self._others = 0

    @property
    def busy(self) -> bool:
        """While so few other lines were met that the rows may yet be a table."""
        return self._others <= ROWS_MAX

    def take(self, line: TextLine) -> Iterable[Note]:
        """Nothing yet: one row is no table."""
        raw = line.raw.strip()
        if raw.startswith("#"):
            unit = _UNIT.search(raw)
            if unit:
                # GB and Gb differ by eight and people mean it
                small = unit[1] in ("Gb/s", "Gbps")
                self._unit_kbps = _KBPS["gbps" if small else unit[1].lower()]
            return ()
        row = _row(raw, self._unit_kbps) if _PLAIN.match(raw) else None
        if row is None:
            self._others += 1
        elif len(self._rows) < ROWS_MAX:
            self._rows.append(note(line, row))
        return ()

    def end(self) -> Iterable[Note]:
        """The rows, where most of the file is rows of one form."""
        if len(self._rows) < ROWS_MIN or self._others > len(self._rows):
            return ()
        self.known = True
        return self._rows


def _row(raw: str, unit_kbps: int) -> TrialFinished | None:
    words = raw.replace(",", " ").replace("|", " ").split()
    if not 2 <= len(words) <= WORDS_MAX:
        return None
    outcome = _OUTCOMES.get(words[-1].lower().strip("."))
    rate_kbps = 0
    if outcome is None:
        if not _RATE.match(words[-1]):
            return None
        outcome, rate_kbps = "measured", int(float(words[-1]) * unit_kbps)
    found = _sorted_words(words[:-1])
    if found is None:
        return None
    hosts, settings, trial = found
    if outcome == "measured" and (len(hosts) < 2 or settings):
        return None
    if not hosts and not settings:
        return None
    return TrialFinished(
        **unplaced(),
        trial=trial,
        outcome=outcome,
        components=tuple(f"node/{host}" for host in hosts),
        settings=tuple(settings),
        rate_kbps=rate_kbps,
    )


def _sorted_words(
    words: Sequence[str],
) -> tuple[list[str], list[tuple[str, str]], str] | None:
    """(hosts, settings, name of the test), or None where a word is none of these."""
    hosts: list[str] = []
    settings: list[tuple[str, str]] = []
    trial = name = ""
    for word in words:
        if _RELEASE.match(word):
            settings.append(_release(word, name))
            name = ""
        elif _TRIAL.match(word):
            trial = word
        elif _HOSTS.match(word):
            hosts.append(word)
        elif _NAME.match(word):
            name = word
        else:
            return None
    return hosts, settings, trial


def _release(word: str, before: str) -> tuple[str, str]:
    """(name, value): of `hpcx-2.14` its own name, of a bare number the word before it."""
    match = re.match(r"([A-Za-z][\w+]*?)[-_=]v?(\d.*)\Z", word)
    if match:
        return match[1], match[2]
    return before or "release", word.lstrip("v")
