"""What replay must know of each processor before it folds: gathered while the log passes by.

A fact is skipped or lost for a processor by a later fact, the hash of a state lies behind the
state. So someone has to look ahead once: the writer of a recording does, and puts the result into
its header.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from nemesis.replay.recording import ProcessorPlan
from nemesis.schemas.errors import BadNameError, MalformedFactError, UnknownFactError
from nemesis.schemas.facts import Record, decode_conclusion, split_subject
from nemesis.schemas.kept import (
    FactSkipped,
    InputLost,
    ProcessorAdvanced,
    ProcessorStarted,
    SnapshotTaken,
)
from nemesis.schemas.operated import ProcessorActivated

_positions: Final = msgspec.msgpack.Decoder(ProcessorAdvanced)
_snapshots: Final = msgspec.msgpack.Decoder(SnapshotTaken)


class Planner:
    """Gathers plans from records in order."""

    def __init__(self, *, from_beginning: bool) -> None:
        self._from_beginning: Final = from_beginning
        self._plans: Final[dict[str, ProcessorPlan]] = {}
        self._by_token: Final[dict[str, Callable[[Any], None]]] = {
            "processor_activated": self._on_activated,
            "processor_started": self._on_started,
            "fact_skipped": self._on_skipped,
            "input_lost": self._on_lost,
        }

    def start(
        self, name: str, in_seq: int, version: int, sha256: str, *, handed_over: bool
    ) -> None:
        """Replay of this processor starts after `in_seq` from the state with this hash."""
        plan = self._plan(name)
        plan.start_handed_over = handed_over
        plan.start_seq, plan.start_version, plan.start_sha256 = in_seq, version, sha256
        plan.startable = True
        plan.answered_seq = max(plan.answered_seq, in_seq)

    def see(self, record: Record) -> None:
        """Take note of one record; what does not decode says nothing about a processor."""
        try:
            space, token, name = split_subject(record.subject)
            if space == "cursor":
                self._on_cursor(name, token, record.payload)
            elif space == "events" and token in self._by_token:
                self._by_token[token](decode_conclusion(token, record.payload)[1])
        except (BadNameError, MalformedFactError, UnknownFactError, msgspec.DecodeError):
            return

    def plans(self) -> list[ProcessorPlan]:
        """By name."""
        return [self._plans[name] for name in sorted(self._plans)]

    def _plan(self, name: str) -> ProcessorPlan:
        if name not in self._plans:
            self._plans[name] = ProcessorPlan(name=name, startable=self._from_beginning)
        return self._plans[name]

    def _on_cursor(self, name: str, token: str, payload: bytes) -> None:
        plan = self._plan(name)
        if token == "":
            plan.answered_seq = max(plan.answered_seq, _positions.decode(payload).in_seq)
        elif token == "snapshot":
            taken = _snapshots.decode(payload)
            if taken.in_seq > plan.start_seq:
                plan.states.append((taken.in_seq, taken.sha256))

    def _on_activated(self, activated: ProcessorActivated) -> None:
        plan = self._plan(activated.name)
        if plan.start_version == 0 and plan.start_seq == 0:
            plan.start_version = activated.version

    def _on_started(self, started: ProcessorStarted) -> None:
        if started.how == "reread" or started.missed_count:
            self._plan(started.name).rereads.append(started.in_seq)

    def _on_skipped(self, skipped: FactSkipped) -> None:
        self._plan(skipped.name).skips[skipped.seq] = skipped.error

    def _on_lost(self, lost: InputLost) -> None:
        self._plan(lost.name).lost.append((lost.from_seq, lost.to_seq))
