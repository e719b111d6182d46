"""Promises of a processor at its place in the log: what was said before, what is never lost."""

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.lives import LIVES_MAX
from nemesis.schemas.envelope import EVENT_BYTES_MAX
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.observed import KernelLineLogged
from nemesis.schemas.operated import ProcessorActivated
from tests.faults.processors import Counting


class Reader:
    """A fold of a counting processor that is handed what a node's producer writes."""

    def __init__(self) -> None:
        self.counting = Counting()
        self.fold = Fold(self.counting)
        self.fold.active = True
        self.seq = 0

    def hand(self, subject: str, payload: bytes) -> list[Emission]:
        self.seq += 1
        return self.fold.step(Input(Record(self.seq, subject, 0, payload)))

    def line(self, text: str, *, start_ns: int = 1, n: int = 1) -> list[Emission]:
        data = KernelLineLogged(node="n1", start_ns=start_ns, n=n, at_ns=5, text=text)
        return self.hand(telemetry_subject("n1", "kernel"), encode_observation(data))

    def activation(self, name: str, key: str) -> None:
        data = ProcessorActivated(at_ns=1, by="a", reason="r", name=name, version=2)
        self.hand(*encode_conclusion(id="a", source="/a", at_ns=1, data=data, key=key))


def test_what_a_producer_sends_twice_counts_once_however_often_it_was_started() -> None:
    reader = Reader()
    for start_ns in (10, 20, 15):
        for n in (1, 2, 2, 1):
            reader.line("x", start_ns=start_ns, n=n)
    assert reader.counting.state.count == 6


def test_a_producer_that_started_before_all_that_are_remembered_only_repeats() -> None:
    reader = Reader()
    for start_ns in range(10, 10 + LIVES_MAX):
        reader.line("x", start_ns=start_ns)
    reader.line("x", start_ns=9)
    assert reader.counting.state.count == LIVES_MAX
    reader.line("x", start_ns=99)
    reader.line("x", start_ns=10, n=2)  # the oldest made room for the newest
    assert reader.counting.state.count == LIVES_MAX + 1


def test_a_conclusion_that_no_log_can_hold_is_replaced_by_one_that_says_so() -> None:
    (emission,) = Reader().line(f"large {EVENT_BYTES_MAX}")
    assert emission.subject == "nemesis.events.conclusion_undeliverable.counting"
    event, data = decode_conclusion("conclusion_undeliverable", emission.payload)
    assert event.causes == (1,)
    assert (data.name, len(data.sha256)) == ("counting", 64)
    assert str(EVENT_BYTES_MAX) in data.error


def test_an_activation_whose_key_is_not_the_processor_that_it_names_activates_nobody() -> None:
    reader = Reader()
    reader.activation("echoing", "counting")
    assert (reader.fold.active, reader.fold.superseded_by) == (True, None)
    reader.activation("counting", "counting")
    assert (reader.fold.active, reader.fold.superseded_by) == (False, 2)
