"""Reads a file as a kernel log: its lines, numbered as `str.splitlines` numbers them.

A file is a kernel log if a line in it is one for certain; nobody's file name is trusted. Text and
JSON (journald, container runtimes) may alternate. The file is streamed; what is kept is bounded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.readers.kernel_line import KERNELS, KernelLine, parse_line
from nemesis.producers.readers.line_gate import LineGate
from nemesis.producers.readers.needed_words import alternatives, folded, needed_words
from nemesis.producers.readers.text_lines import numbered_lines, opened

SNIFF_BYTES: Final = 4 * 1024 * 1024
WHOLE_LINES_MAX: Final = 200_000
LINES_MAX: Final = 400_000  # kept of one file
_TELLING: Final = (
    b"NVRM",
    b"SXid",
    b"AER:",
    b"PCIe Bus Error",
    b"mlx5_",
    b"EDAC",
    b"Hardware Error",
    b"oom",
    b"Out of memory",
    b"out of memory",
    b"blocked for more",
    b"nfs: server",
    b"Memory failure",
    b"segfault at",
    b"anic",
    b"Oops",
    b"lockup",
    b"I/O error",
    b"Linux version",
    b"throttled",
)
"""What a line says that may be of a fault, in a file too long to read whole."""
_HOST_KEYS: Final = ("_HOSTNAME", "hostname", "host")
_TEXT_KEYS: Final = ("MESSAGE", "message", "log", "msg")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# /dev/kmsg gives a record's device after it, one ` KEY=value` a line; JSON has brackets
_NO_MESSAGE: Final = re.compile(r" [A-Z_]+=|\s*[\[\]}],?\s*\Z")
# journalctl -o export, -o verbose, -o json-pretty: how a record begins and what a field looks like
_RECORD_START: Final = re.compile(r"__CURSOR=|(\w{3} [\d-]+ [\d:.]+ \S+) \[s=|\s*\{\s*\Z")
_RECORD: Final = re.compile(r"(?:\A|[^\S \t])[ \t]*\{")  # in JSON, a line or more
_FIELD: Final = re.compile(r'\s*(?:"([A-Z_][A-Z0-9_]*)" ?: ?(.*?),?\Z|([A-Z_][A-Z0-9_]*)=(.*))')


class KernelLog(msgspec.Struct):
    """The kernel's lines of one file."""

    file: str
    lines: list[tuple[int, KernelLine]]
    """(number from 1, line), in the order of the file."""
    skimmed: bool = False
    """The file is so long that of its later part only telling lines were read."""


def read_kernel_log(
    path: Path, file: str, on_read: Callable[[int], None] = lambda read_bytes: None
) -> KernelLog | None:
    """The kernel lines of a file, or None if no line of it is a kernel's.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    log = KernelLog(file=file, lines=[])
    certain_count = other_count = 0
    with opened(path) as stream:
        numbered = numbered_lines(
            stream, whole_count=WHOLE_LINES_MAX, then=_TELLING, on_read=on_read
        )
        for number, line in _parsed(numbered):
            log.skimmed = number > WHOLE_LINES_MAX
            if line is None or line.from_kernel is False:
                continue
            certain_count += line.from_kernel is True
            other_count += line.from_kernel is None
            log.lines.append((number, line))
            if len(log.lines) == LINES_MAX:
                break
    if certain_count == 0:
        return None
    if certain_count < other_count:
        # another program's log that holds some kernel lines
        log.lines = [(number, line) for number, line in log.lines if line.from_kernel]
    _inherit(log)
    return log


def is_kernel_log(path: Path) -> bool:
    """Whether a line near the start of the file is a kernel's.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        head = stream.read(SNIFF_BYTES)
    text = head.decode(errors="replace")
    if not _may_hold_kernels(text):
        return False
    parsed = _parsed(enumerate(text.splitlines(), 1), _may_be_kernels)
    return any(line is not None and line.from_kernel for _, line in parsed)


@cache
def _signs() -> LineGate:
    return LineGate([((), KERNELS)])


@cache
def _pieces() -> list[tuple[re.Pattern[str], frozenset[bytes]]]:
    """What shows a kernel, with words that are worth to be looked for first."""
    pieces = [each for pattern in KERNELS for each in alternatives(pattern)]
    words = [needed_words(each) or frozenset() for each in pieces]
    long = [each if min(map(len, each), default=0) > 2 else frozenset[bytes]() for each in words]
    return list(zip(pieces, long, strict=True))


def _may_hold_kernels(text: str) -> bool:
    """Whether any line or record of a text can be the kernel's: asked of all lines at once."""
    if "\x1b" in text or "\0" in text or ("{" in text and _RECORD.search(text)):
        return True
    if "__CURSOR=" in text or "[s=" in text:
        return True
    left = folded(text)
    return any(
        any(word in left for word in words) if words else pattern.search(text)
        for pattern, words in _pieces()
    )


def _may_be_kernels(raw: str) -> bool:
    """Whether a text line can be the kernel's for certain; most cannot, and need no parsing."""
    return "\x1b" in raw or "\0" in raw or bool(_signs().readers_of(raw))


def is_kernels(line: KernelLine) -> bool:
    """Whether a line of a kernel log is no other program's: its words or its clock say so."""
    return line.from_kernel is True or line.uptime_ns is not None


def _parsed(
    lines: Iterable[tuple[int, str]], wanted: Callable[[str], bool] = lambda raw: True
) -> Iterator[tuple[int, KernelLine | None]]:
    """Every line or record once, under the number of the line that holds its message.

    Of lines of text only those that are `wanted`.
    """
    record = _Record()
    for number, raw in lines:
        if record.takes(number, raw):
            continue
        if record.fields:
            yield record.number, _from_fields(record.fields)
            record = _Record()
            if record.takes(number, raw):
                continue
        if raw.startswith("{"):
            yield number, _from_json(raw)
        elif wanted(raw) and not _NO_MESSAGE.match(raw):
            yield number, parse_line(raw)
    if record.fields:
        yield record.number, _from_fields(record.fields)


class _Record:
    """A record of journald that lies over several lines: export, verbose or pretty JSON."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self.number = 0
        """Of the line that holds the message."""
        self._open = False

    def takes(self, number: int, raw: str) -> bool:
        """Whether the line is one of this record."""
        if not self._open:
            start = _RECORD_START.match(raw)
            self._open = start is not None
            if start is not None and start[1]:
                self.fields["time"] = start[1]
            field = _FIELD.match(raw) if raw.startswith("__CURSOR=") else None
            return self._open and (field is None or self._take(number, field))
        field = _FIELD.match(raw)
        if field is not None and not _RECORD_START.match(raw):
            return self._take(number, field)
        return False

    def _take(self, number: int, field: re.Match[str]) -> bool:
        name, value = field[1] or field[3], field[2] or field[4] or ""
        if field[1]:
            try:
                self.fields[name] = msgspec.json.decode(value)
            except (msgspec.DecodeError, UnicodeEncodeError):
                return True
        else:
            self.fields[name] = value
        if name == "MESSAGE":
            self.number = number
        return True


def _from_json(raw: str) -> KernelLine | None:
    try:
        record = msgspec.json.decode(raw.rstrip().rstrip(","))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return parse_line(raw)
    line = _from_fields(record) if isinstance(record, dict) else None
    if line is None:
        # a shape of somebody's own: worth a look for what only a kernel says
        found = parse_line(raw)
        line = found if found is not None and found.from_kernel else None
    return line


def _from_fields(record: Mapping[str, object]) -> KernelLine | None:
    line = _message_of(record)
    if line is None:
        return None
    for key in _HOST_KEYS:
        if isinstance(host := record.get(key), str) and _HOST.match(host):
            line.host = host
            break
    if (time_us := _number(record.get("__REALTIME_TIMESTAMP"))) is not None:
        line.at("wall", time_us * 1000)
    elif isinstance(time := record.get("time") or record.get("timestamp"), str):
        stamp = parse_line(f"{time} kernel: x")
        if stamp is not None and stamp.clock != "none":
            line.at(stamp.clock, stamp.time_ns)
    _take_journal_fields(record, line)
    return line


def _message_of(record: Mapping[str, object]) -> KernelLine | None:
    text = next((record[key] for key in _TEXT_KEYS if key in record), None)
    if isinstance(text, list):  # journald gives bytes where a message is not UTF-8
        raw = bytes(each for each in text if isinstance(each, int) and 0 <= each < 256)
        text = raw.decode(errors="replace")
    return parse_line(text) if isinstance(text, str) else None


def _take_journal_fields(record: Mapping[str, object], line: KernelLine) -> None:
    """systemd.journal-fields(7)."""
    if (uptime_us := _number(record.get("_SOURCE_MONOTONIC_TIMESTAMP"))) is not None:
        line.uptime_ns = uptime_us * 1000
    if (priority := _number(record.get("PRIORITY"))) is not None:
        line.priority = min(priority, 7)
    if isinstance(boot_id := record.get("_BOOT_ID"), str):
        line.boot_id = boot_id[:64]
    if "_TRANSPORT" in record or "SYSLOG_IDENTIFIER" in record:
        said = (record.get("_TRANSPORT"), record.get("SYSLOG_IDENTIFIER"))
        line.from_kernel = "kernel" in said


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _inherit(log: KernelLog) -> None:
    """A line without a host is the file's one host's."""
    hosts = {line.host for _, line in log.lines if line.host}
    if len(hosts) == 1:
        (host,) = hosts
        for _, line in log.lines:
            line.host = host
