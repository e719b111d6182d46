"""What readers of text share: a line without its prefixes, and what a reader makes of it.

A reader is handed every line of a file and answers with observations that lack what only the whole
bundle can say: a node where the line names none, a time, a number. The line's own number goes with
each, so that a verdict can cite it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from nemesis.producers.readers.kernel_line import Clock, peel
from nemesis.schemas.observed import Observation

_DIGITS: Final = "0123456789"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HOST: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
# what launchers and runtimes put before the lines of a rank: torch's own, torchrun --tee, Ray,
# a scheduler's `rank=3 node=x`
_RANK_PREFIXES: Final = (
    ("[", r"\[(?:rank|default)(?P<rank>\d{1,7})\]:?\s?"),
    ("(", r"\((?:[\w.]+ )?pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[\w.-]+))?\)\s"),
    # mpirun --tag-output; of srun --label the number is a task, which is a node as often as a rank
    ("[", r"\[\d{1,6},(?P<rank>\d{1,7})\]<std(?:out|err|diag)>:\s?"),
    (
        _DIGITS,
        r"\d{1,6}: (?=\[(?:rank|default|[WEI])|Traceback|(?:\w+\.)*\w+(?:Error|Exception)\b)",
    ),
    ("rR", r"(?:rank|RANK)[=: ](?P<rank>\d{1,7})[:,]?\s+"),
    ("nh", rf"(?:node|host|hostname)[=:](?P<host>{_HOST})[:,]?\s+"),
    # a syslog line: host, program, process
    (_DIGITS + _LETTERS, rf"(?P<host>{_HOST}) [\w./@-]+\[(?P<pid>\d{{1,9}})\]: "),
)
"""(first characters, pattern)."""
_BY_FIRST: Final[Mapping[str, tuple[re.Pattern[str], ...]]] = {
    first: tuple(re.compile(pattern) for firsts, pattern in _RANK_PREFIXES if first in firsts)
    for first in f"{_DIGITS}{_LETTERS}[("
}
RANK_PREFIXES: Final = tuple(re.compile(" *" + pattern) for _, pattern in _RANK_PREFIXES)
"""How a line begins that `text_line` takes one of these off."""
_PREFIXES_MAX: Final = 6


class TextLine(msgspec.Struct):
    """A line and what its prefixes say."""

    number: int
    raw: str
    """As it lies in the file, without its line break."""
    text: str
    """Without prefixes; leading blanks are kept, they carry the structure of reports."""
    host: str = ""
    rank: int = -1
    pid: int = 0
    clock: Clock = "none"
    time_ns: int = 0


class Note(msgspec.Struct):
    """An observation that a reader made, before the bundle has placed it."""

    number: int
    observation: Observation
    """Its `node` is empty where nothing names one; its `at_ns` is 0."""
    clock: Clock = "none"
    time_ns: int = 0


class Reader(ABC):
    """Reads one format line by line; a new one is made for each file.

    While it is not busy, a line in which none of its patterns is tells it nothing, and it may not
    be shown one (line_gate.py).
    """

    starts: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """How a line that it wants begins."""
    holds: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """What a line that it wants has somewhere."""
    known: bool = False
    """A line of its format was met, even where it told nothing worth a fact."""

    @property
    def busy(self) -> bool:
        """Whether it wants every line now, whatever is in it."""
        return False

    @abstractmethod
    def take(self, line: TextLine) -> Iterable[Note]:
        """What this line completes; lines come in order, some may be missing."""

    def end(self) -> Iterable[Note]:
        """What only the end of the file completes."""
        return ()


def text_line(number: int, raw: str) -> TextLine:
    """A line without its prefixes."""
    peeled = peel(raw)
    line = TextLine(
        number,
        raw,
        peeled.text,
        host=peeled.host,
        clock=peeled.clock,
        time_ns=peeled.time_ns,
    )
    for _ in range(_PREFIXES_MAX):
        if not _take_prefix(line):
            break
    return line


def _take_prefix(line: TextLine) -> bool:
    text = line.text.lstrip(" ")
    for pattern in _BY_FIRST.get(text[:1], ()):
        match = pattern.match(text)
        if match is None:
            continue
        found = match.groupdict()
        if found.get("rank"):
            line.rank = int(found["rank"])
        if found.get("host"):
            line.host = found["host"]
        if found.get("pid"):
            line.pid = int(found["pid"])
        line.text = text[match.end() :]
        return True
    return False


def note(line: TextLine, observation: Observation) -> Note:
    """A note of this line, at its time."""
    return Note(line.number, observation, line.clock, line.time_ns)
