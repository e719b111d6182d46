"""Puts today's conclusions into the golden recordings: `python -m tests.reconclude [SCENARIO...]`.

For a change of what conclusions and states say while they stay where they are: each recorded
conclusion and each hash of a state is exchanged for what today's processors make of the same
inputs, and nothing else is touched. Where today's processors conclude more, less or elsewhere, a
log that was really written would go on differently: record it anew (tests/record_scenarios.py).
"""

import sys
from collections import deque
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.replay.course import recorded_conclusion
from nemesis.replay.reader import Recording
from nemesis.replay.versions import maker
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.facts import Record
from nemesis.schemas.kept import SnapshotTaken
from tests.record_scenarios import FOLDER, SCENARIOS


class Again:
    """One processor over the recording, from the beginning of the log."""

    def __init__(self, fold: Fold, states_at: frozenset[int]) -> None:
        self._fold = fold
        self._states_at = states_at
        self._ahead: deque[Emission] = deque()
        self.states: dict[int, bytes] = {}

    def step(self, item: Input) -> None:
        """The next entry of the log."""
        self._ahead.extend(self._fold.step(item))
        if item.record.seq in self._states_at:
            self.states[item.record.seq] = self._fold.snapshot()

    def instead_of(self, record: Record, identity: str) -> Record:
        """The conclusion in place of a recorded one.

        Raises:
            SystemExit: it is another one.
        """
        own = self._ahead.popleft() if self._ahead else None
        if own is None or (own.id, own.subject) != (identity, record.subject):
            raise SystemExit(f"{identity} at {record.seq} is not concluded now: record it anew")
        return replace(record, payload=own.payload)


def again(recording: Recording) -> list[Record]:
    """The log as it would have been.

    Raises:
        SystemExit: it would have gone on differently.
    """
    plans = {plan.name: plan for plan in recording.header.processors}
    make = maker(recording.header.nemesis_version)
    folds = {
        name: Again(Fold(make(name, plan.start_version)), frozenset(seq for seq, _ in plan.states))
        for name, plan in plans.items()
    }
    log: list[Record] = []
    for record in recording.records():
        item = Input(record)
        if item.space == "cursor":
            log.append(
                _with_state(record, folds[item.name]) if item.token == "snapshot" else record
            )
            continue
        recorded = recorded_conclusion(item)
        if recorded is not None:
            item = Input(folds[recorded.name].instead_of(record, recorded.event.id))
        log.append(item.record)
        for each in folds.values():
            each.step(item)
    return log


def _with_state(record: Record, own: Again) -> Record:
    """The hash of a processor's state, as it is now."""
    taken = msgspec.msgpack.decode(record.payload, type=SnapshotTaken)
    state = own.states[taken.in_seq]
    told = replace(taken, sha256=sha256(state).hexdigest(), size_bytes=len(state))
    return replace(record, payload=msgspec.msgpack.encode(told))


def rewrite(path: Path) -> None:
    """Put today's conclusions into a recording."""
    recording = Recording(path)
    header, log, blobs = recording.header, again(recording), list(recording.blobs())
    with RecordingWriter(
        path,
        cell=header.cell,
        made_by=header.made_by,
        made_at=header.made_at,
        from_seq=header.from_seq,
        force=True,
    ) as writer:
        for record in log:
            writer.record(record)
        for _, blob in blobs:
            writer.blob(sha256(blob).hexdigest(), blob)
        writer.finish(to_seq=header.to_seq, gap_cause=header.gap_cause, incident=header.incident)


if __name__ == "__main__":
    for scenario in sys.argv[1:] or SCENARIOS:
        rewrite(FOLDER / f"{scenario}.ndjson.zst")
