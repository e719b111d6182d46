"""What producers, tickers and operators write in fault tests."""

import msgspec

from nemesis.schemas.facts import (
    encode_conclusion,
    encode_observation,
    event_subject,
    telemetry_subject,
)
from nemesis.schemas.observed import ClockTicked, KernelLineLogged
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams.batch import Message

SECOND_NS = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND_NS


def line(n: int, text: str, *, node: str = "n001", start_ns: int = 1, at_s: float = 0) -> Message:
    """Kernel line n of one life of one producer."""
    data = KernelLineLogged(
        node=node, start_ns=start_ns, n=n, at_ns=EPOCH_NS + int(at_s * SECOND_NS), text=text
    )
    return Message(subject=telemetry_subject(node, "kernel"), payload=encode_observation(data))


def tick(second: int, *, start_ns: int = 1) -> Message:
    """The clock."""
    data = ClockTicked(
        node="clock", start_ns=start_ns, n=second + 1, at_ns=EPOCH_NS + second * SECOND_NS
    )
    return Message(subject=telemetry_subject("clock", "tick"), payload=encode_observation(data))


def activation(name: str, version: int, *, every: int = 10, number: int = 0) -> Message:
    """An operator's word on which version answers."""
    data = ProcessorActivated(
        at_ns=EPOCH_NS,
        by="test",
        reason="test",
        name=name,
        version=version,
        settings=msgspec.Raw(b'{"every":%d}' % every),
    )
    subject, payload = encode_conclusion(
        id=f"operator/{name}/{number}", source="/operator", at_ns=EPOCH_NS, data=data, key=name
    )
    assert subject == event_subject("processor_activated", name)
    return Message(subject=subject, payload=payload)
