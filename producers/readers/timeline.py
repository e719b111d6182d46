"""Puts the kernel lines of several files and hosts on one clock, and tells repetitions apart.

A dmesg counts from the boot and names no host, a syslog leaves the year out, a case report gives
a time of day. Files of one host are brought to one clock by the lines that they share; what no
file ties to a clock is laid so that it ends when the bundle ends, and says how far off it may be.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from statistics import median_low
from typing import Final

import msgspec

from nemesis.producers.readers.kernel_line import Clock, KernelLine
from nemesis.producers.readers.kernel_log import KernelLog
from nemesis.schemas.components import UNKNOWN_HOST

EPOCH_NS: Final = 951_782_400_000_000_000  # 2000-02-29, where no file of a bundle has a date
UNKNOWN_ERROR_NS: Final = 366 * 86_400 * 1_000_000_000
SAME_EVENT_NS: Final = 2_000_000_000  # journald and dmesg -T cut to the second, each its own way
DRIFT_NS_MAX: Final = 900_000_000_000  # dmesg -T drifts while a host sleeps: util-linux dmesg(1)
STEP_NS: Final = 1_000  # between lines whose order alone is known
REBOOT_NS: Final = 5_000_000_000  # lines of several CPUs may swap, but not by this much
_KIND_WORD: Final = re.compile(
    r"(?:dmesg|kern|kernel|kmsg|journal|journalctl|syslog|messages|console|log|logs|txt|out|json"
    r"|jsonl|gz|dump|boot|xid|nvidia|bug|report|var|previous|current|old|new|before|after)?\d*\Z"
)


class Event(msgspec.Struct):
    """One line on the bundle's clock."""

    at_ns: int
    error_ns: int
    host: str
    file: str
    number: int
    line: KernelLine


class Timeline(msgspec.Struct):
    """Every line once, in order, and what was assumed."""

    events: list[Event]
    notes: list[str]
    repeated_count: int = 0


def arrange(logs: Sequence[KernelLog], other_end_ns: int) -> Timeline:
    """The lines of all files in one order.

    `other_end_ns`: the newest time known from files of another kind, 0 where there is none.
    """
    notes: list[str] = []
    names = _hosts_of_hostless(logs, notes)
    tracks = [track for log in logs for track in _tracks(log, names)]
    walls = [event.at_ns for track in tracks if track.clock == "wall" for event in track.events]
    end_ns = max([*walls, other_end_ns]) or EPOCH_NS
    dated = bool(walls) or other_end_ns > 0
    events: list[Event] = []
    repeated_count = 0
    for host in sorted({track.host for track in tracks}):
        own = sorted(
            (track for track in tracks if track.host == host), key=lambda t: _ORDER[t.clock]
        )
        alone = not dated and len(tracks) == 1
        kept: list[Event] = []
        for track in own:
            _anchor(track, kept, end_ns, exact=alone, notes=notes)
            news = _without_repetitions(track.events, kept)
            repeated_count += len(track.events) - len(news)
            kept.extend(news)
        events.extend(kept)
    events.sort(key=lambda event: event.at_ns)
    return Timeline(events, notes, repeated_count)


_ORDER: Final[Mapping[Clock, int]] = {"wall": 0, "year": 1, "uptime": 2, "day": 3, "none": 4}


class _Track(msgspec.Struct):
    """The lines of one host in one file, on the clock of that file."""

    host: str
    clock: Clock
    events: list[Event]


def _tracks(log: KernelLog, names: Mapping[str, str]) -> list[_Track]:
    by_host: dict[str, list[tuple[int, KernelLine]]] = {}
    for number, line in log.lines:
        host = line.host or names.get(log.file, UNKNOWN_HOST)
        by_host.setdefault(host, []).append((number, line))
    return [_track(log.file, host, lines) for host, lines in sorted(by_host.items())]


def _track(file: str, host: str, lines: list[tuple[int, KernelLine]]) -> _Track:
    clocks = Counter(line.clock for _, line in lines if line.clock != "none")
    clock: Clock = clocks.most_common(1)[0][0] if clocks else "none"
    times = [line.time_ns for _, line in lines if line.clock == clock]
    if clock in ("wall", "year") and len(times) > 1 and times[0] > times[-1]:
        lines = lines[::-1]  # journalctl --reverse
    events: list[Event] = []
    at_ns = base_ns = 0
    for number, line in lines:
        time_ns = line.time_ns + base_ns if line.clock == clock != "none" else at_ns + STEP_NS
        if clock in ("uptime", "day") and at_ns - time_ns > REBOOT_NS:
            base_ns += at_ns - time_ns + STEP_NS  # another boot, or another day
        at_ns = max(at_ns, time_ns)
        events.append(Event(at_ns, 0, host, file, number, line))
    return _Track(host, clock, events)


def _anchor(
    track: _Track, known: Sequence[Event], end_ns: int, *, exact: bool, notes: list[str]
) -> None:
    """Move a track to the bundle's clock."""
    shared_ns = _shared_offset(track.events, known)
    if track.clock == "wall":
        offset_ns = shared_ns if shared_ns is not None and abs(shared_ns) < DRIFT_NS_MAX else 0
        error_ns = abs(offset_ns)
    elif shared_ns is not None:
        offset_ns, error_ns = shared_ns, SAME_EVENT_NS
    else:
        offset_ns = end_ns - track.events[-1].at_ns
        error_ns = 0 if exact else UNKNOWN_ERROR_NS
        if not exact:
            file = track.events[0].file
            notes.append(f"{file}: no date, so its order against other files is not known")
    for event in track.events:
        event.at_ns = max(0, event.at_ns + offset_ns)
        event.error_ns = error_ns


def _shared_offset(events: Sequence[Event], known: Sequence[Event]) -> int | None:
    """How far the clock of `known` is ahead, by texts that occur once in both; None without any."""
    theirs = _once(known)
    offsets = [theirs[text] - at_ns for text, at_ns in _once(events).items() if text in theirs]
    return median_low(offsets) if offsets else None


def _once(events: Sequence[Event]) -> dict[str, int]:
    counts = Counter(event.line.text for event in events)
    return {e.line.text: e.at_ns for e in events if counts[e.line.text] == 1}


def _without_repetitions(events: list[Event], known: Sequence[Event]) -> list[Event]:
    """The events that no other file of this host tells; each of theirs answers for one of ours."""
    theirs: dict[str, list[int]] = {}
    for event in known:
        theirs.setdefault(event.line.text, []).append(event.at_ns)
    news: list[Event] = []
    for event in events:
        times = theirs.get(event.line.text)
        far_ns = SAME_EVENT_NS if event.line.clock != "none" else UNKNOWN_ERROR_NS
        near = min(times, key=lambda at_ns: abs(at_ns - event.at_ns)) if times else None
        if times and near is not None and abs(near - event.at_ns) <= far_ns:
            times.remove(near)
        else:
            news.append(event)
    return news


def _hosts_of_hostless(logs: Sequence[KernelLog], notes: list[str]) -> dict[str, str]:
    """Which host a file without any host name is of.

    Of the host whose name is in its path; else, where the bundle speaks of one host only, of that
    one, `localhost` if it has no name. Several such files whose paths differ by a name are several
    hosts', or equal PCI addresses of two hosts would be taken for one GPU.
    """
    known = {line.host for log in logs for _, line in log.lines if line.host}
    hostless = [log.file for log in logs if log.lines and not any(e.host for _, e in log.lines)]
    names: dict[str, str] = {}
    for file in hostless:
        named = sorted(known & {*_words(file), *PurePosixPath(file).parts})
        if len(named) == 1:
            names[file] = named[0]
    rest = [file for file in hostless if file not in names]
    if len(known) == 1 and len(rest) == 1:
        names[rest[0]] = next(iter(known))
    elif len(rest) > 1:
        names |= _told_apart(rest)
    for file, name in sorted(names.items()):
        notes.append(f"{file}: names no host, taken to be of {name}")
    return names


def _told_apart(files: Sequence[str]) -> dict[str, str]:
    """The name by which each path differs from the others, where it does."""
    parts = {file: PurePosixPath(file).parts for file in files}
    depth = 0
    while len({tuple(each[: depth + 1]) for each in parts.values()}) == 1:
        depth += 1
    names: dict[str, str] = {}
    for file, each in parts.items():
        telling = _words(each[depth] if depth < len(each) else each[-1])
        if telling:
            names[file] = telling[0]
    return names


def _words(path: str) -> list[str]:
    """Parts of a path that may be a name: not the kind of log, nor a rotation number."""
    words = re.split(r"[/._]", path)
    return [word for word in words if not _is_kind(word)]


def _is_kind(word: str) -> bool:
    return all(_KIND_WORD.match(part) for part in word.lower().split("-"))
