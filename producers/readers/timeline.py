"""Puts the kernel lines of several files and hosts on one clock, and tells repetitions apart.

A dmesg counts from the boot and names no host, a syslog leaves the year out, a case report gives
a time of day. Files of one host are brought to one clock by the lines that they share; what no
file ties to a clock is laid so that it ends when the bundle ends, and says how far off it may be.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final

import msgspec

from nemesis.producers.readers.hosts import hosts_of_hostless
from nemesis.producers.readers.kernel_line import Clock, KernelLine
from nemesis.producers.readers.kernel_log import KernelLog
from nemesis.schemas.components import UNKNOWN_HOST

EPOCH_NS: Final = 951_782_400_000_000_000  # 2000-02-29, where no file of a bundle has a date
UNKNOWN_ERROR_NS: Final = 366 * 86_400_000_000_000
SAME_EVENT_NS: Final = 2_000_000_000  # journald and dmesg -T cut to the second, each its own way
DRIFT_VOTES_MIN: Final = 3
DRIFT_NS_MAX: Final = 900_000_000_000  # dmesg -T drifts while a host sleeps: util-linux dmesg(1)
STEP_NS: Final = 1_000  # between lines whose order alone is known
DAY_NS: Final = 86_400_000_000_000
YEAR_NS: Final = 366 * DAY_NS
ZONE_NS: Final = 14 * 3_600_000_000_000  # a syslog is in local time and does not say which
# clock: (a fall of more than this, the lap it stands for; 0: another boot). Lines of several CPUs
# may swap, but not by seconds.
_FALLS: Final[Mapping[Clock, tuple[int, int]]] = {
    "uptime": (5_000_000_000, 0),
    "day": (DAY_NS // 2, DAY_NS),
    "year": (YEAR_NS // 2, YEAR_NS),
}


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
    names = hosts_of_hostless(logs, notes)
    tracks = [track for log in logs for track in _tracks(log, names)]
    walls = [track.events[-1].at_ns for track in tracks if track.clock == "wall"]
    anchor = _Anchor(
        end_ns=max([*walls, other_end_ns]) or EPOCH_NS,
        dated=bool(walls) or other_end_ns > 0,
        alone=len(tracks) == 1,
        notes=notes,
    )
    events: list[Event] = []
    repeated_count = 0
    for host in sorted({track.host for track in tracks}):
        own = [track for track in tracks if track.host == host]
        kept: list[Event] = []
        for track in sorted(own, key=lambda track: _ORDER[track.clock]):
            anchor.move(track, kept)
            news = _without_repetitions(track, kept)
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
    clocks: Counter[Clock] = Counter(line.clock for _, line in lines if line.clock != "none")
    clock: Clock = clocks.most_common(1)[0][0] if clocks else "none"
    if clock in ("wall", "year") and _descends([e.time_ns for _, e in lines if e.clock == clock]):
        lines = lines[::-1]  # journalctl --reverse
    fall_ns, lap_ns = _FALLS.get(clock, (0, 0))
    events: list[Event] = []
    at_ns = base_ns = 0
    for number, line in lines:
        time_ns = line.time_ns + base_ns if line.clock == clock != "none" else at_ns + STEP_NS
        if fall_ns and at_ns - time_ns > fall_ns:
            step_ns = lap_ns or at_ns - time_ns + STEP_NS
            base_ns += step_ns
            time_ns += step_ns
        at_ns = max(at_ns, time_ns)
        events.append(Event(at_ns, 0, host, file, number, line))
    return _Track(host, clock, events)


def _descends(times: Sequence[int]) -> bool:
    steps = [later - earlier for earlier, later in pairwise(times)]
    falls = sum(-YEAR_NS // 2 < step < 0 for step in steps)  # a larger one is new year
    return falls > sum(step > 0 for step in steps)


class _Anchor:
    """Moves tracks to the bundle's clock; tracks of one clock keep their distance."""

    def __init__(self, *, end_ns: int, dated: bool, alone: bool, notes: list[str]) -> None:
        self._end_ns: Final = end_ns
        self._dated: Final = dated
        self._alone: Final = alone
        self._notes: Final = notes
        self._offsets: dict[tuple[Clock, str], int] = {}

    def move(self, track: _Track, known: Sequence[Event]) -> None:
        """Put a track's events at their time, with how far off it may be."""
        offset_ns, error_ns = self._place(track, *_shared_offset(track.events, known))
        for event in track.events:
            event.at_ns = max(0, event.at_ns + offset_ns)
            event.error_ns = error_ns

    def _place(self, track: _Track, shared_ns: int, vote_count: int) -> tuple[int, int]:
        last_ns = track.events[-1].at_ns
        if track.clock == "wall":
            drifts = vote_count >= DRIFT_VOTES_MIN and abs(shared_ns) < DRIFT_NS_MAX
            return (shared_ns, abs(shared_ns)) if drifts else (0, 0)
        if track.clock == "year":
            # the year in which it ends next to the rest: a journal goes on after a job's end
            laps = (self._end_ns + YEAR_NS // 2 - last_ns) // YEAR_NS if self._dated else 0
            return laps * YEAR_NS, ZONE_NS if self._dated else 0
        if vote_count:
            return shared_ns, SAME_EVENT_NS
        scope = (track.clock, track.host if track.clock == "uptime" else "")
        if track.clock != "none" and scope in self._offsets:
            return self._offsets[scope], 0 if not self._dated else UNKNOWN_ERROR_NS
        self._offsets[scope] = self._end_ns - last_ns
        if self._alone and not self._dated:
            return self._offsets[scope], 0
        file = track.events[0].file
        self._notes.append(f"{file}: no date, so its order against other files is not known")
        return self._offsets[scope], UNKNOWN_ERROR_NS


def _shared_offset(events: Sequence[Event], known: Sequence[Event]) -> tuple[int, int]:
    """How far the clock of `known` is ahead, and how many texts that occur once in both agree."""
    theirs = _once(known)
    offsets = [theirs[text] - at_ns for text, at_ns in _once(events).items() if text in theirs]
    if not offsets:
        return 0, 0
    middle = median_low(offsets)
    return middle, sum(abs(offset - middle) <= SAME_EVENT_NS for offset in offsets)


def _once(events: Sequence[Event]) -> dict[str, int]:
    counts = Counter(event.line.text for event in events)
    return {e.line.text: e.at_ns for e in events if counts[e.line.text] == 1}


def _without_repetitions(track: _Track, known: Sequence[Event]) -> list[Event]:
    """The events that no other file of this host tells; each of theirs answers for one of ours."""
    theirs: dict[str, list[int]] = {}
    for event in known:
        theirs.setdefault(event.line.text, []).append(event.at_ns)
    far_ns = UNKNOWN_ERROR_NS if track.clock == "none" else SAME_EVENT_NS
    news: list[Event] = []
    for event in track.events:
        times = theirs.get(event.line.text, [])
        near = min(times, key=lambda at_ns: abs(at_ns - event.at_ns), default=None)
        if near is not None and abs(near - event.at_ns) <= far_ns:
            times.remove(near)
        else:
            news.append(event)
    return news
