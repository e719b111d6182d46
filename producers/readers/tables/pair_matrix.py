"""Matrices of rates between hosts or GPUs: one row and one column each, the diagonal aside.

NVIDIA cuda-samples p2pBandwidthLatencyTest and nvbandwidth print them of the GPUs of a host (head
`D\\D  0  1  2`, or the numbers alone); people make them of hosts. A head of names and rows that
begin with one of them are a matrix, other tables are not.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import TrialFinished

NAMES_MIN: Final = 3  # of two, neither row is the odd one
NAMES_MAX: Final = 64
_SPLIT: Final = re.compile(r"[\s,;|]+")
_HOST: Final = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[A-Za-z0-9][\w.-]{0,62}\Z")
_GPU: Final = re.compile(r"(?:GPU ?)?(\d{1,2})\Z", re.IGNORECASE)
_RATE: Final = re.compile(r"\d{1,6}(?:\.\d{1,6})?\Z")
_CORNER: Final = re.compile(r"(?:D\\D|from[\\/]to|src[\\/]dst|host|node|gpu|#|-)\Z", re.IGNORECASE)
# what a head is made of; most lines of logs hold a colon, a bracket or an equals sign
_PLAIN: Final = re.compile(r"[\w\s.,;|\\/#-]+\Z")
_TITLE: Final = re.compile(r"\b(?:(GB/s|GiB/s)|(Gb/s|Gbps|Gbit/s)|(MB/s))", re.IGNORECASE)
_LATENCY: Final = re.compile(r"\blatency\b|\(us\)", re.IGNORECASE)
_KBPS: Final = (1_000_000, 125_000, 1000)
_NOTHING: Final = ("X", "-", "N/A", "")


class PairMatrix(Reader):
    """Reads a head, then its rows."""

    starts = (_PLAIN,)
    holds = (_TITLE, _LATENCY)

    def __init__(self) -> None:
        self._names: list[str] = []
        self._unit_kbps = _KBPS[0]
        self._is_rate = True

    @property
    def busy(self) -> bool:
        """In a matrix, which any other line ends."""
        return bool(self._names)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A row of rates."""
        if self._names or _PLAIN.match(line.text):
            words = [each for each in _SPLIT.split(line.text.strip()) if each]
            if names := _names_in(words):
                self._names = names
                return ()
            if self._names and words and words[0] in self._names:
                cells = words[1:]
                if len(cells) == len(self._names) and self._is_rate:
                    found = self._row(line, words[0], cells)
                    self.known = self.known or bool(found)
                    return found
            self._names = [] if words and len(words) != len(self._names) + 1 else self._names
        self._take_title(line.text)
        return ()

    def _take_title(self, text: str) -> None:
        """What the next matrix is of."""
        lower = text.lower()
        title = _TITLE.search(text) if "/s" in lower or "gbps" in lower else None
        if title is not None:
            small = title[2] or title[0].startswith("Gb/")
            self._unit_kbps = _KBPS[1 if small else 2 if title[3] else 0]
            self._is_rate = True
        elif "latency" in lower or "(us)" in lower:
            self._is_rate = self._is_rate and _LATENCY.search(text) is None

    def _row(self, line: TextLine, name: str, cells: list[str]) -> list[Note]:
        if not all(_RATE.match(cell) or cell in _NOTHING for cell in cells):
            return []
        return [
            note(line, self._trial(line, name, other, cell))
            for other, cell in zip(self._names, cells, strict=True)
            if other != name and _RATE.match(cell)
        ]

    def _trial(self, line: TextLine, name: str, other: str, cell: str) -> TrialFinished:
        return TrialFinished(
            **unplaced(line.host),
            trial="pairs",
            outcome="measured",
            components=(_component(name), _component(other)),
            rate_kbps=int(float(cell) * self._unit_kbps),
        )


def _names_in(words: list[str]) -> list[str]:
    """The names of a head, [] where it is none: numbers must count from 0 as GPUs do."""
    names = words[1:] if words and _CORNER.match(words[0]) else words
    if not NAMES_MIN <= len(names) <= NAMES_MAX or len(set(names)) != len(names):
        return []
    gpus = [int(match[1]) for each in names if (match := _GPU.match(each))]
    if gpus == list(range(len(names))):
        return names
    return names if all(_HOST.match(each) for each in names) and not gpus else []


def _component(name: str) -> str:
    match = _GPU.match(name)
    return f"gpu//{match[1]}" if match else f"node/{name}"
