"""A log in memory for the facts of a bundle: the same processors, without a server.

Files have no ticker, so ticks are made: at each fact's second, and after each fact often enough
that whatever a processor waits for has passed before the next one and at the end.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.processor import Processor
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    split_subject,
    telemetry_subject,
)
from nemesis.schemas.observed import ClockTicked, Observation
from nemesis.schemas.operated import ProcessorActivated
from nemesis.schemas.registry import BY_STRUCT

CLOCK: Final = "clock"
SECOND_NS: Final = 1_000_000_000
_AFTER_S: Final = (1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 900, 3600)


class MemoryLog:
    """Facts in, conclusions out."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self.conclusions: list[Any] = []
        """Payloads of every conclusion, in the order of the log."""
        self._folds: Final = [Fold(processor) for processor in processors]
        self._seq = 0
        self._time_ns = 0
        self._tick_count = 0

    def run(self, facts: Iterable[Observation]) -> None:
        """Read facts, ascending in time, to the end and past whatever is still waited for."""
        for fold in self._folds:
            self._activate(fold.processor)
        for fact in facts:
            self._pass_time_until(fact.at_ns)
            self._append(
                telemetry_subject(fact.node, BY_STRUCT[type(fact)].token), encode_observation(fact)
            )
        self._pass_time_until(self._time_ns + 2 * _AFTER_S[-1] * SECOND_NS)

    def _activate(self, processor: Processor) -> None:
        activated = ProcessorActivated(
            at_ns=0,
            by="triage",
            reason="files are read",
            name=processor.name,
            version=processor.version,
        )
        subject, payload = encode_conclusion(
            id=f"triage/{processor.name}",
            source="/triage",
            at_ns=0,
            data=activated,
            key=processor.name,
        )
        self._append(subject, payload)

    def _pass_time_until(self, at_ns: int) -> None:
        if self._time_ns:
            since_ns = self._time_ns
            for after_s in _AFTER_S:
                if since_ns + after_s * SECOND_NS < at_ns:
                    self._tick(since_ns + after_s * SECOND_NS)
        self._tick(at_ns - at_ns % SECOND_NS)

    def _tick(self, at_ns: int) -> None:
        if at_ns <= self._time_ns:
            return
        self._time_ns = at_ns
        self._tick_count += 1
        tick = ClockTicked(node=CLOCK, start_ns=1, n=self._tick_count, at_ns=at_ns)
        self._append(telemetry_subject(CLOCK, "tick"), encode_observation(tick))

    def _append(self, subject: str, payload: bytes) -> None:
        """Add a record, let every processor answer, add what they answered."""
        self._seq += 1
        item = Input(Record(self._seq, subject, 0, payload))
        emissions: list[Emission] = []
        for fold in self._folds:
            emissions.extend(fold.step(item))
        for emission in emissions:
            space, token, _ = split_subject(emission.subject)
            if space == "events":
                self.conclusions.append(decode_conclusion(token, emission.payload)[1])
            self._append(emission.subject, emission.payload)
