"""Promises of the intake: nothing malformed vanishes, and a flood of it stays small."""

from hashlib import sha256

import pytest

from nemesis.processors.fold import Fold, Input
from nemesis.processors.intake import HEAD_BYTES, REJECTIONS_MAX, Intake
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Record, decode_conclusion, encode_observation, telemetry_subject
from nemesis.schemas.inferred import InputRejected, InputsSuppressed
from nemesis.schemas.observed import ClockTicked, SampleTaken

SECOND_NS = 1_000_000_000


class Bench:
    """A fold of the intake, and what it said."""

    def __init__(self) -> None:
        self.fold = Fold(Intake())
        self.fold.active = True
        self.seq = 0
        self.now_ns = 0
        self.ticks = 0
        self.said: list[InputRejected | InputsSuppressed] = []
        self.causes: list[tuple[int, ...]] = []

    def put(self, subject: str, payload: bytes) -> None:
        self.seq += 1
        for emission in self.fold.step(Input(Record(self.seq, subject, 0, payload))):
            event, data = decode_conclusion(emission.subject.split(".")[2], emission.payload)
            self.said.append(data)
            self.causes.append(event.causes)

    def tick(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND_NS
        self.ticks += 1
        tick = ClockTicked(node="clock", start_ns=1, n=self.ticks, at_ns=self.now_ns)
        self.put(telemetry_subject("clock", "tick"), encode_observation(tick))


def test_what_does_not_decode_is_told_with_its_reason_hash_head_and_cause() -> None:
    bench = Bench()
    payload = b"\xc1" * 5000
    bench.put(telemetry_subject("n1", "kernel"), payload)
    (said,) = bench.said
    assert isinstance(said, InputRejected)
    assert said.reason.startswith("kernel")
    assert said.sha256 == sha256(payload).hexdigest()
    assert said.head == payload[:HEAD_BYTES]
    assert bench.causes == [(1,)]


def test_a_payload_that_speaks_for_another_node_is_rejected() -> None:
    bench = Bench()
    sample = SampleTaken(node="n2", start_ns=1, n=1, at_ns=1)
    bench.put(telemetry_subject("n1", "sample"), encode_observation(sample))
    (said,) = bench.said
    assert isinstance(said, InputRejected)
    assert "n1" in said.reason


def test_a_subject_that_is_none_is_rejected_under_a_name_that_json_can_hold() -> None:
    bench = Bench()
    bench.put("nemesis.telemetry._ed_a0_80.kernel", b"")
    bench.put("nemesis.telemetry.x", b"")
    assert [type(each) for each in bench.said] == [InputRejected, InputRejected]


def test_good_input_is_not_spoken_of() -> None:
    bench = Bench()
    sample = SampleTaken(node="n1", start_ns=1, n=1, at_ns=1)
    bench.put(telemetry_subject("n1", "sample"), encode_observation(sample))
    bench.tick(1)
    assert not bench.said


def test_after_ten_a_minute_and_node_only_their_number_is_told() -> None:
    bench = Bench()
    bench.tick(1)
    for _ in range(REJECTIONS_MAX + 7):
        bench.put(telemetry_subject("n1", "kernel"), b"\xc1")
    bench.put(telemetry_subject("n2", "kernel"), b"\xc1")
    assert len(bench.said) == REJECTIONS_MAX + 1
    bench.tick(59)
    assert len(bench.said) == REJECTIONS_MAX + 1
    bench.tick(1)
    last = bench.said[-1]
    assert isinstance(last, InputsSuppressed)
    assert (last.node, last.rejected_count) == ("n1", 7)
    bench.put(telemetry_subject("n1", "kernel"), b"\xc1")
    assert isinstance(bench.said[-1], InputRejected)


def test_a_restored_intake_goes_on_counting() -> None:
    bench = Bench()
    for _ in range(REJECTIONS_MAX):
        bench.put(telemetry_subject("n1", "kernel"), b"\xc1")
    snapshot = bench.fold.snapshot()
    bench.fold = Fold(Intake())
    bench.fold.restore(snapshot)
    assert bench.fold.snapshot() == snapshot
    bench.put(telemetry_subject("n1", "kernel"), b"\xc1")
    assert len(bench.said) == REJECTIONS_MAX


def test_settings_are_refused() -> None:
    with pytest.raises(MalformedFactError, match="no settings"):
        Intake().configure(b'{"a": 1}')
