"""A log in memory for a test: facts go in, what processors say of them is written back.

After each fact the processors are put away and new ones take up their states: whatever a test
promises holds for processors that are restarted all the time.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.processor import Processor
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.observed import ClockTicked, Observation

SECOND_NS = 1_000_000_000


class LogCell:
    """What they say is written back at once, or when `flush` is called."""

    def __init__(
        self, *processors: Callable[[], Processor], start_ns: int, at_once: bool = True
    ) -> None:
        self.records: list[Record] = []
        self.said: list[Any] = []
        self.emissions: list[Emission] = []
        self.held_back: list[tuple[str, bytes]] = []
        self.at_once = at_once
        self.now_ns = start_ns
        self._processors = processors
        self._folds = [Fold(make()) for make in processors]
        self._numbers: dict[tuple[str, str], int] = {}

    @property
    def fold(self) -> Fold:
        """That of the first of them."""
        return self._folds[0]

    def put(self, subject: str, payload: bytes) -> int:
        record = Record(len(self.records) + 1, subject, 0, payload)
        self.records.append(record)
        emissions = [each for fold in self._folds for each in fold.step(Input(record))]
        self._restart()
        for emission in emissions:
            self.emissions.append(emission)
            token = emission.subject.split(".")[2]
            self.said.append(decode_conclusion(token, emission.payload)[1])
            self.held_back.append((emission.subject, emission.payload))
        if self.at_once:
            self.flush()
        return record.seq

    def _restart(self) -> None:
        states = [fold.snapshot() for fold in self._folds]
        self._folds = [Fold(make()) for make in self._processors]
        for fold, state in zip(self._folds, states, strict=True):
            fold.restore(state)
            assert fold.snapshot() == state

    def flush(self) -> None:
        while self.held_back:
            self.put(*self.held_back.pop(0))

    def event(self, data: msgspec.Struct, key: str, job: str = "") -> int:
        subject, payload = encode_conclusion(
            id=f"test/{len(self.records)}",
            source="/test",
            at_ns=self.now_ns,
            data=data,
            key=key,
            job=job,
        )
        return self.put(subject, payload)

    def operate(self, struct: type[msgspec.Struct], key: str, **fields: Any) -> int:
        """What a person does."""
        return self.event(
            struct(**{"at_ns": self.now_ns, "by": "ann", "reason": "", **fields}), key
        )

    def observe(self, kind: str, data: Observation) -> int:
        return self.put(telemetry_subject(data.node, kind), encode_observation(data))

    def stamp(self, node: str, kind: str, late_ns: int = 0) -> dict[str, Any]:
        """What an observation of a node starts with."""
        number = self._numbers[node, kind] = self._numbers.get((node, kind), 0) + 1
        return {"node": node, "start_ns": 1, "n": number, "at_ns": self.now_ns - late_ns}

    def tick_after(self, passed_ns: int) -> None:
        """One tick, so long after the last."""
        self.now_ns += passed_ns
        self.observe("tick", ClockTicked(**self.stamp("clock", "tick")))
