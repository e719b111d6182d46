"""Recordings dropped on the page: verified by the real code, then looked at in any moment.

A recording is folded into the same board as the live log. Going on in time folds further; going
back folds anew from the start, which is fast because the events are decoded once and samples are
kept as no more than who spoke when.
"""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.replay.reader import Recording
from nemesis.replay.verify import Report, verify
from nemesis.replay.versions import maker
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.printable import one_line
from nemesis.views.dashboard.board import Board

REPLAYS_MAX: Final = 4
FACTS_MAX: Final = 2_000_000  # of a file; verifying so many takes minutes
BYTES_MAX: Final = 4 * 2**30  # unpacked; 2 KiB a fact
KEPT_MAX: Final = 400_000  # facts that are shown; about 400 MB
STOPS_MAX: Final = 4000  # more than a scrubber has pixels


class TooLargeError(NemesisError):
    """A recording that is too much for a page."""


class NoReplayError(NemesisError):
    """A recording that nobody dropped, or that made room for others."""

    exit_code = 3


class Replay:
    """One recording."""

    def __init__(self, name: str, report: Report, items: list[Input], times_ns: list[int]) -> None:
        """`times_ns`: log time at each item."""
        self.name: Final = name
        self.report: Final = report
        self._items: Final = items
        self._times_ns: Final = times_ns
        self._by_seq: Final = {item.record.seq: item for item in items}
        self._board = self._new()
        self._seen_count = 0
        self._lock: Final = asyncio.Lock()

    def document(self) -> dict[str, Any]:
        """What it is, and the moments at which something was said."""
        report = self.report
        return {
            "name": one_line(self.name),
            "verdict": report.verdict,
            "facts_count": report.facts_count,
            "notes": [one_line(note) for note in report.notes],
            "processors": [
                {
                    "name": one_line(each.name),
                    "equal_count": each.equal_count,
                    "unverified": one_line(each.unverified),
                    "different": each.difference is not None,
                }
                for each in report.processors
            ],
            "from_ms": self._times_ns[0] // 1_000_000 if self._times_ns else 0,
            "to_ms": self._times_ns[-1] // 1_000_000 if self._times_ns else 0,
            "stops": self._stops(),
        }

    async def board_at(self, at_ms: int) -> Board:
        """The board as it stood at a log time, that moment included."""
        async with self._lock:
            await asyncio.to_thread(self._move, at_ms)
            return self._board

    def fact(self, seq: int) -> Record | None:
        """A record of the file, samples aside."""
        item = self._by_seq.get(seq)
        return item.record if item is not None else None

    def _move(self, at_ms: int) -> None:
        done = self._seen_count
        if done and self._times_ns[done - 1] // 1_000_000 > at_ms:
            self._board, self._seen_count = self._new(), 0
        while self._seen_count < len(self._items):
            if self._times_ns[self._seen_count] // 1_000_000 > at_ms:
                break
            self._board.take(self._items[self._seen_count])
            self._seen_count += 1

    def _stops(self) -> list[tuple[int, str]]:
        """(log time in ms, fact) of every event, thinned where there are too many."""
        stops = [
            (at_ns // 1_000_000, item.token)
            for at_ns, item in zip(self._times_ns, self._items, strict=True)
            if item.space == "events"
        ]
        step = max(1, -(-len(stops) // STOPS_MAX))
        return stops[::step]

    def _new(self) -> Board:
        return Board(cell=self.name)


def open_replay(path: Path, name: str) -> Replay:
    """Verify a recording and take it up.

    Raises:
        CorruptRecordingError, NewerRecordingError: not a recording, damaged, of a later release.
        TooLargeError: too many facts.
    """
    recording = Recording(path)
    if recording.header.lines > FACTS_MAX:
        raise TooLargeError(
            f"{name} says it has {recording.header.lines} facts, a page takes {FACTS_MAX}",
            hint="nemesis replay verifies it in the terminal",
        )
    if recording.header.bytes > BYTES_MAX:
        raise TooLargeError(
            f"{name} says it has {recording.header.bytes} bytes, a page takes {BYTES_MAX}",
            hint="nemesis replay verifies it in the terminal",
        )
    report = verify(recording, maker(recording.header.nemesis_version), progress=_at_most(name))
    items, times_ns = _shown(recording, name)
    return Replay(name, report, items, times_ns)


def _at_most(name: str) -> Callable[[int], None]:
    def check(count: int) -> None:
        if count > FACTS_MAX:
            raise TooLargeError(f"{name} has more than {FACTS_MAX} facts")

    return check


def _shown(recording: Recording, name: str) -> tuple[list[Input], list[int]]:
    """Events, and of telemetry all but what samples hold; with log time at each."""
    items: list[Input] = []
    times_ns: list[int] = []
    log_time_ns = 0
    for record in recording.records():
        item = Input(record)
        if item.space == "cursor":
            continue
        if item.token == "tick" and item.decoded() is not None:
            log_time_ns = max(log_time_ns, item.value.at_ns)
        if item.token == "sample" and item.decoded() is not None:
            item = Input(_without_blocks(item))
        item.decoded()
        items.append(item)
        times_ns.append(log_time_ns)
        if len(items) > KEPT_MAX:
            raise TooLargeError(f"{name} has more than {KEPT_MAX} facts to show")
    first_ns = next(filter(None, times_ns), recording.header.first_ns)
    return items, [at_ns or first_ns for at_ns in times_ns]


def _without_blocks(item: Input) -> Record:
    sample = msgspec.structs.replace(item.value, gpu=b"", nic=b"", host=b"", steps=b"")
    return msgspec.structs.replace(item.record, payload=msgspec.msgpack.encode(sample))


class Replays:
    """The latest few."""

    def __init__(self) -> None:
        self._by_id: Final[dict[str, Replay]] = {}

    def add(self, replay: Replay) -> str:
        """Keep it, in place of the oldest where there are too many; its id."""
        id = secrets.token_hex(8)
        self._by_id[id] = replay
        while len(self._by_id) > REPLAYS_MAX:
            del self._by_id[next(iter(self._by_id))]
        return id

    def get(self, id: str) -> Replay:
        """The replay of this id.

        Raises:
            NoReplayError: there is none.
        """
        if id not in self._by_id:
            raise NoReplayError("this recording is not held any more", hint="drop the file again")
        return self._by_id[id]
