"""One line of a kernel log, whatever wrote it: peels what was put before the kernel's own words.

A message passes through many hands (printk, /dev/kmsg, dmesg, journald, syslog, a container
runtime, grep), and each may put a prefix of its own before it. So no format is asked for: prefixes
are taken off the front one after another, and each adds what it knows, a clock, a host, a
priority. What is left is the text.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final, Literal

import msgspec

Clock = Literal["none", "day", "uptime", "year", "wall"]
"""What a time counts from: nothing known, midnight, the boot, new year, or 1970. Each is worth
more than the one before it."""

_WORTH: Final = {"none": 0, "day": 1, "uptime": 2, "year": 3, "wall": 4}
_SECOND_NS: Final = 1_000_000_000
_TIME_NS_MAX: Final = 1 << 62  # the year 2116: what claims to be later is no time
_EPOCH_S_MIN: Final = 946_684_800  # the year 2000; no machine was up for thirty years
_MONTHS: Final = "janfebmaraprmayjunjulaugsepoctnovdec"
_LEVELS: Final = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"]
DEFAULT_PRIORITY: Final = 6
YEAR_OF_YEARLESS: Final = 2000  # a leap year, so that 29 February is a date
SECONDS_MAX: Final = 1024
TEXT_CHARS_MAX: Final = 4096  # printk cuts at 1,024; a record of an eaten newline may be longer


class KernelLine(msgspec.Struct):
    """A line and what its prefixes say."""

    text: str
    host: str = ""
    priority: int = DEFAULT_PRIORITY
    clock: Clock = "none"
    time_ns: int = 0
    """By `clock`."""
    uptime_ns: int | None = None
    """Since the boot, where a line gives a wall clock and this."""
    boot_id: str = ""
    from_kernel: bool | None = None
    """Whether a prefix says that the kernel wrote it; None where none does."""

    def at(self, clock: Clock, time_ns: int) -> None:
        """Take a time, unless a better one is known or it is none that a machine could tell."""
        if not 0 <= time_ns < _TIME_NS_MAX:
            return
        if clock == "uptime":
            self.uptime_ns = time_ns
        if _WORTH[clock] > _WORTH[self.clock]:
            self.clock, self.time_ns = clock, time_ns


_Take = Callable[[re.Match[str], KernelLine], None]


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))


def _wall_ns(moment: datetime, fraction: str | None) -> int:
    whole = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * _SECOND_NS + _fraction_ns(fraction)


@lru_cache(SECONDS_MAX)
def _second_ns(second: str, zone: str) -> int:
    """Of `2026-11-03 12:00:59` in a zone; one log tells of few seconds, each again and again."""
    offset = timedelta(0)
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4] or 0))
        offset = -offset if zone[0] == "-" else offset
    year, month, day = int(second[:4]), int(second[5:7]), int(second[8:10])
    hour, minute, last = int(second[11:13]), int(second[14:16]), min(int(second[17:19]), 59)
    moment = datetime(year, month, day, hour, minute, last, tzinfo=timezone(offset))
    return _wall_ns(moment, None)


def _take_iso(match: re.Match[str], line: KernelLine) -> None:
    second = match.string[match.start(1) : match.end(6)]
    line.at("wall", _second_ns(second, (match[8] or "Z").strip()) + _fraction_ns(match[7]))


def _take_ctime(match: re.Match[str], line: KernelLine) -> None:
    month, day, hour, minute, second, year = match.groups()
    moment = datetime(
        int(year), _month(month), int(day), int(hour), int(minute), min(int(second), 59), tzinfo=UTC
    )
    line.from_kernel = True
    line.at("wall", _wall_ns(moment, None))


def _take_yearless(match: re.Match[str], line: KernelLine) -> None:
    month, day, hour, minute, second, fraction = match.groups()
    moment = datetime(
        YEAR_OF_YEARLESS,
        _month(month),
        int(day),
        int(hour),
        int(minute),
        min(int(second), 59),
        tzinfo=UTC,
    )
    line.at("year", _wall_ns(moment, fraction))


def _month(name: str) -> int:
    return _MONTHS.index(name.lower()) // 3 + 1


def _take_uptime(match: re.Match[str], line: KernelLine) -> None:
    if int(match[1]) >= _EPOCH_S_MIN:
        # UCX and others print the clock of the wall as a kernel does its uptime
        line.at("wall", int(match[1]) * _SECOND_NS + _fraction_ns(match[2]))
        return
    if len(match[2]) == 6:
        line.from_kernel = True
    line.at("uptime", int(match[1]) * _SECOND_NS + _fraction_ns(match[2]))


def _take_unix(match: re.Match[str], line: KernelLine) -> None:
    line.at("wall", int(match[1]) * _SECOND_NS + _fraction_ns(match[2]))


def _take_day(match: re.Match[str], line: KernelLine) -> None:
    hour, minute, second = (int(match[k]) for k in (1, 2, 3))
    line.at("day", (hour * 3600 + minute * 60 + second) * _SECOND_NS + _fraction_ns(match[4]))


def _take_kmsg(match: re.Match[str], line: KernelLine) -> None:
    # Documentation/ABI/testing/dev-kmsg: the syslog number is facility * 8 + level
    line.priority = int(match[1]) & 7
    line.from_kernel = int(match[1]) < 8
    line.at("uptime", int(match[2]) * 1000)


def _take_number(match: re.Match[str], line: KernelLine) -> None:
    line.priority = int(match[1]) & 7
    if int(match[1]) >= 8:
        line.from_kernel = False


def _take_level(match: re.Match[str], line: KernelLine) -> None:
    line.priority = _LEVELS.index(match[2])
    line.from_kernel = match[1] == "kern"


def _take_sender(match: re.Match[str], line: KernelLine) -> None:
    host, sender = match[1], match[2]
    if host:
        line.host = host
    line.from_kernel = sender.lower() in ("kernel", "vmunix")


def _take_rfc5424(match: re.Match[str], line: KernelLine) -> None:
    _take_iso(match, line)
    line.host = match[9]
    line.from_kernel = match[10].lower() == "kernel"


def _take_host(match: re.Match[str], line: KernelLine) -> None:
    line.host = match[1]


def _take_nothing(match: re.Match[str], line: KernelLine) -> None:
    """A prefix that says nothing about the line."""


_DATE: Final = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_HOST: Final = r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})"
_SENDER: Final = r"([A-Za-z][^\s:\[\]()]{0,62}|\([\w-]+\))(?:\[\d+\])?: "
_MONTH_DAY: Final = r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {0,2}(\d{1,2})"
_WEEKDAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_KERNEL_WORDS: Final = (
    r"(?:NVRM: |nvidia-nvswitch\d+: SXid |nvidia [0-9a-f]{4}:[0-9a-f]{2}:|mlx5_core [0-9a-f]{4}:"
    r"|pcieport [0-9a-f]{4}:|EDAC MC\d+: |\{\d+\}\[Hardware Error\]: |mce: \[Hardware Error\]: "
    r"|Out of memory: Kill|Memory cgroup out of memory: Kill|oom-kill:constraint="
    r"|INFO: task [^:]+:\d+ blocked for more than )"
)
"""Beginnings of messages that only a kernel writes: they end the search for prefixes."""

_DIGITS: Final = "0123456789"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

_PREFIXES: Final[tuple[tuple[str, str, _Take], ...]] = (
    # container runtimes: CRI (stream, F or P for a whole or partial line), compose, kubectl
    (_DIGITS, rf"{_DATE}(Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ", _take_iso),
    ("[", r"\[(?:pod|po)/[^\]\s]+\] ", _take_nothing),
    (_LETTERS, r"[\w.-]+ +\| ", _take_nothing),
    # syslog number; RFC 5424 has a version after it
    ("<", r"<(\d{1,3})>(?:1 (?=\d{4}-))?", _take_number),
    (_DIGITS, r"(\d{1,3}),\d+,(\d+),[^;]*;", _take_kmsg),
    # dmesg -x
    ("kudsal", rf"(kern|user|daemon|syslog|auth|local\d) *:({'|'.join(_LEVELS)}) *: ", _take_level),
    # dmesg, with the gap to the line before (-d) or without
    ("[", r"\[ *(\d+)\.(\d{3,9})(?: <[^>]*>)?\] ?", _take_uptime),
    # dmesg with CONFIG_PRINTK_CALLER: thread or CPU
    ("[", r"\[ *[TC]\d+\] ?", _take_nothing),
    # dmesg -T
    ("[", rf"\[{_WEEKDAY} {_MONTH_DAY} (\d\d):(\d\d):(\d\d) (\d{{4}})\] ?", _take_ctime),
    # RFC 5424 header after its time: host app procid msgid structured-data
    (
        _DIGITS,
        rf"{_DATE}(Z|[+-]\d\d:\d\d) {_HOST} ([^\s:\[\]]+) (?:-|\w+) [^\s:\[\]]+ (?:-|\[[^\]]*\]) ",
        _take_rfc5424,
    ),
    # ISO 8601: rsyslog, journalctl -o short-iso, dmesg --time-format iso, container logs
    (_DIGITS + "[", rf"\[?{_DATE}\]?( ?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?:? +", _take_iso),
    # journalctl -o short-full
    ("MTWFS", rf"{_WEEKDAY} (?=\d{{4}}-)", _take_nothing),
    # RFC 3164
    ("JFMASOND", rf"{_MONTH_DAY} (\d\d):(\d\d):(\d\d)(?:\.(\d{{1,9}}))? ", _take_yearless),
    # journalctl -o short-unix
    (_DIGITS, r"(\d{9,10})\.(\d{6}) ", _take_unix),
    (_DIGITS, r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? +", _take_day),
    # dmesg -H and -e, relative to a line before
    ("[", rf"\[(?: *\+\d+\.\d+|{_MONTH_DAY} \d\d:\d\d)\] ?", _take_nothing),
    # quoted in a mail
    (">", r"> ?", _take_nothing),
    ("k", r"()(kernel)(?:\[\d+\])?: ?", _take_sender),
    (_DIGITS + _LETTERS, rf"{_HOST} (kernel)(?:\[\d+\])?: ?", _take_sender),
)
"""(first characters, pattern, what it says); tried in this order."""

_BY_FIRST: Final[Mapping[str, tuple[tuple[re.Pattern[str], _Take], ...]]] = {
    first: tuple(
        (re.compile(pattern), take) for firsts, pattern, take in _PREFIXES if first in firsts
    )
    for first in f"{_DIGITS}{_LETTERS}[<>"
}
PREFIXES: Final = tuple(re.compile(" *" + pattern) for _, pattern, _ in _PREFIXES)
"""How a line begins that `peel` takes something off."""
_AFTER_TIME: Final = re.compile(rf"{_HOST} (?!{_KERNEL_WORDS}){_SENDER}")
_BEFORE_TIME: Final = re.compile(
    rf"{_HOST}: (?=\[ *\d+\.\d|\[?{_WEEKDAY} |kernel: |\d{{4}}-\d\d-\d\dT|{_KERNEL_WORDS})"
)
_GREP: Final = re.compile(r"(?:[^\s:]*[/.][^\s:]*:)?(?:\d+[:-])?(?=\[|<\d|[A-Z][a-z]{2} [ \d]\d )")
_START: Final = re.compile(_KERNEL_WORDS)
_LATER: Final = re.compile(rf"(?<![\w/]){_KERNEL_WORDS}")
_PAINT: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
KERNELS: Final = (
    _START,
    re.compile(r"kernel|vmunix", re.IGNORECASE),
    re.compile(r"kern *:"),
    re.compile(rf"\[{_WEEKDAY} "),
    re.compile(r"\[ *\d+\.\d{6}"),
    re.compile(r",\d+,\d+,[^;]*;"),
)
"""A line without colours that has none of these is not the kernel's for certain."""
_STEPS_MAX: Final = 20
_PEELED_FIRST: Final = frozenset(f"{_DIGITS}{_LETTERS}[<>")


def parse_line(raw: str) -> KernelLine | None:
    """The message in a line, or None for a blank line and for a remark that starts with #."""
    text = _unpainted(raw).strip("\r\n\ufeff ")
    if not text or text.startswith("#"):
        return None
    line = KernelLine("")
    if (grep := _GREP.match(text)) is not None:
        text = text[grep.end() :]
    timed = False
    for _ in range(_STEPS_MAX):
        if _START.match(text):
            line.from_kernel = True
            break
        text, went_on = _peeled(text, line, timed)
        if not went_on:
            break
        timed = line.clock != "none"
    # what may stand before the words makes a search slow, and most lines have none of them
    maybe = line.from_kernel is not False and _START.search(text) is not None
    if maybe and (found := _LATER.search(text)) is not None:
        text, line.from_kernel = text[found.start() :], True
    line.text = text.strip()[:TEXT_CHARS_MAX]
    return line if line.text else None


def peel(raw: str) -> KernelLine:
    """What is left of any line without colours and what clocks, runtimes and syslog put before it.

    Unlike `parse_line` it takes nobody's name for a host.
    """
    line = KernelLine("")
    text = _unpainted(raw).strip("\r\n\ufeff")
    for _ in range(_STEPS_MAX):
        stripped = text.lstrip(" ")
        if not stripped or stripped[0] not in _PEELED_FIRST:
            break
        rest, went_on = _peeled(stripped, line, timed=False, hosts=False)
        if not went_on:
            break
        text = rest
    line.text = text[:TEXT_CHARS_MAX]
    return line


def _unpainted(raw: str) -> str:
    return _PAINT.sub("", raw).replace("\0", "") if "\x1b" in raw or "\0" in raw else raw


def _peeled(text: str, line: KernelLine, timed: bool, *, hosts: bool = True) -> tuple[str, bool]:
    """The text without its first prefix, and whether it had one."""
    for pattern, take in _BY_FIRST.get(text[:1], ()):
        if (match := pattern.match(text)) is not None:
            try:
                take(match, line)
            except (ValueError, OverflowError):
                return text, False  # looks like a time and is none: 99:99:99
            return text[match.end() :], True
    if timed and not line.host and not line.from_kernel:
        match = _AFTER_TIME.match(text)
        if match is not None:
            _take_sender(match, line)
            return text[match.end() :], True
    if hosts and not line.host and (match := _BEFORE_TIME.match(text)) is not None:
        _take_host(match, line)
        return text[match.end() :], True
    return text, False
