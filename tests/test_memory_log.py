"""Promises of the log that triage keeps in memory."""

from collections.abc import Sequence

import msgspec

from nemesis.producers.readers.memory_log import MemoryLog
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import KernelLineLogged

HOUR_NS = 3_600_000_000_000
START_NS = 1_786_418_062_000_000_000


class _Patient:
    """Says what it read an hour after it read it, and reads what it said."""

    name = "attribution"
    version = 1
    reads: tuple[str, ...] = ("kernel", "tick", "fault_attributed")

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Fact]] = []
        self.log_times: list[int] = []
        self.heard: list[Fact] = []

    def configure(self, settings: bytes) -> None:
        assert settings == b"{}"

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        self.log_times.append(fact.log_time_ns)
        if fact.kind == "kernel":
            assert not fact.late
            self.waiting.append((fact.log_time_ns + HOUR_NS, fact))
        if fact.kind == "fault_attributed":
            self.heard.append(fact)
        due = [each for at_ns, each in self.waiting if at_ns <= fact.log_time_ns]
        self.waiting = [pair for pair in self.waiting if pair[1] not in due]
        return [
            Conclusion(
                data=FaultAttributed(
                    at_ns=fact.log_time_ns,
                    reason=each.data.text,
                    incident=each.id,
                    revision=0,
                    verdict="insufficient",
                    fault_class="unknown",
                ),
                key="x",
                cause=(each.seq,),
            )
            for each in due
        ]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.log_times)

    def restore(self, snapshot: bytes) -> None:
        self.log_times = msgspec.msgpack.decode(snapshot)


def line(n: int, at_ns: int) -> KernelLineLogged:
    return KernelLineLogged(node="n1", start_ns=1, n=n, at_ns=at_ns, text=f"line {n}")


def test_whatever_a_processor_waits_for_has_passed_at_the_end() -> None:
    log = MemoryLog([_Patient()])
    log.run([line(1, START_NS), line(2, START_NS + 5_500_000_000)])
    said = [each.reason for each in log.conclusions]
    assert said == ["line 1", "line 2"]


def test_log_time_follows_the_facts_and_never_falls() -> None:
    processor = _Patient()
    MemoryLog([processor]).run([line(1, START_NS), line(2, START_NS + 30 * 24 * HOUR_NS)])
    assert processor.log_times == sorted(processor.log_times)
    assert processor.log_times[0] == START_NS
    assert len(processor.log_times) < 100


def test_conclusions_are_read_by_the_processors_too() -> None:
    processor = _Patient()
    MemoryLog([processor]).run([line(1, START_NS)])
    assert [fact.data.reason for fact in processor.heard] == ["line 1"]
    assert processor.heard[0].cause
