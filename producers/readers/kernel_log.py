"""Reads a file as a kernel log: its lines, numbered as `str.splitlines` numbers them.

A file is a kernel log if a line in it is one for certain; nobody's file name is trusted. Text and
JSON (journald, container runtimes) may alternate. The file is streamed; what is kept is bounded.
"""

import gzip
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from nemesis.producers.readers.kernel_line import KernelLine, parse_line

SNIFF_BYTES: Final = 4 * 1024 * 1024
LINES_MAX: Final = 200_000  # kept of one file: beyond them only lines that may name a fault
LINE_BYTES_MAX: Final = 64 * 1024  # the rest of a longer line is dropped
READ_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024  # also bounds what a small .gz can become
_SIGNAL: Final = re.compile(
    rb"NVRM|nvswitch|Xid|AER|PCIe|mlx5|EDAC|Hardware Error|mce|oom|Out of memory|hung|blocked for"
    rb"|panic|Oops|BUG|nvidia|lockup|I/O error|thermal|Linux version",
    re.IGNORECASE,
)
_HOST_KEYS: Final = ("_HOSTNAME", "hostname", "host")
_TEXT_KEYS: Final = ("MESSAGE", "message", "log", "msg")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_FIELD: Final = re.compile(r"[A-Z_][A-Z0-9_]*=")


class KernelLog(msgspec.Struct):
    """The kernel's lines of one file."""

    file: str
    lines: list[tuple[int, KernelLine]]
    """(number from 1, line), in the order of the file."""
    line_count: int = 0
    """How many lines the file has, whoever wrote them."""
    dropped_count: int = 0
    """Kernel lines that were not kept."""


def read_kernel_log(path: Path, file: str) -> KernelLog | None:
    """The kernel lines of a file, or None if no line near its start is a kernel's.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    log = KernelLog(file=file, lines=[])
    certain_count = other_count = 0
    with _opened(path) as stream:
        for number, line in _parsed(_numbered_lines(stream)):
            log.line_count = number
            if line is None:
                continue
            certain_count += line.from_kernel is True
            other_count += line.from_kernel is None
            if line.from_kernel is not False:
                if len(log.lines) < LINES_MAX or (
                    len(log.lines) < 2 * LINES_MAX and _SIGNAL.search(line.text.encode())
                ):
                    log.lines.append((number, line))
                else:
                    log.dropped_count += 1
    if certain_count == 0:
        return None
    if certain_count < other_count:
        # another program's log that holds some kernel lines
        log.lines = [(number, line) for number, line in log.lines if line.from_kernel]
    _inherit(log)
    return log


def lines_at(path: Path, numbers: Collection[int]) -> dict[int, str]:
    """The text of some of a file's lines as they lie there, by number.

    Raises:
        OSError, EOFError: it cannot be read any more.
    """
    found: dict[int, str] = {}
    last = max(numbers, default=0)
    with _opened(path) as stream:
        for number, raw in _numbered_lines(stream):
            if number > last:
                break
            if number in numbers:
                found[number] = raw
    return found


def is_kernel_log(path: Path) -> bool:
    """Whether a line near the start of the file is a kernel's.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with _opened(path) as stream:
        head = stream.read(SNIFF_BYTES)
    lines = enumerate(head.decode(errors="replace").splitlines(), 1)
    return any(line is not None and line.from_kernel for _, line in _parsed(lines))


def _opened(path: Path) -> BinaryIO:
    stream = path.open("rb")
    magic = stream.read(2)
    stream.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if magic == b"\x1f\x8b" else stream


def _numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    number = read_bytes = 0
    cut = False
    while read_bytes < READ_BYTES_MAX and (raw := stream.readline(LINE_BYTES_MAX)):
        read_bytes += len(raw)
        if cut:
            cut = not raw.endswith(b"\n")
            continue
        cut = len(raw) == LINE_BYTES_MAX and not raw.endswith(b"\n")
        for text in raw.decode(errors="replace").splitlines():
            number += 1
            yield number, text


def _parsed(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, KernelLine | None]]:
    """Every line or record once, under the number of the line that holds its message."""
    record: dict[str, str] = {}
    record_at = 0
    for number, raw in lines:
        if raw.startswith("{"):
            yield number, _from_json(raw)
        elif record or raw.startswith("__CURSOR="):
            # journalctl -o export: a field a line, a blank line after each record
            if not raw.strip():
                yield record_at, _from_fields(record)
                record = {}
            elif _FIELD.match(raw):
                field, _, value = raw.partition("=")
                record[field] = value
                record_at = number if field == "MESSAGE" else record_at
        elif raw.startswith(" ") and _is_continuation(raw):
            continue
        else:
            yield number, parse_line(raw)
    if record:
        yield record_at, _from_fields(record)


def _is_continuation(raw: str) -> bool:
    """/dev/kmsg gives a record's device after it, one ` KEY=value` a line."""
    return bool(_FIELD.match(raw[1:]))


def _from_json(raw: str) -> KernelLine | None:
    try:
        record = msgspec.json.decode(raw.rstrip().rstrip(","))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return parse_line(raw)
    return _from_fields(record) if isinstance(record, dict) else None


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
