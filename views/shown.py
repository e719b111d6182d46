"""Facts for people: one line each, blocks of integers as names and numbers."""

import struct
from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.channels import (
    ABSENT,
    GPU_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.envelope import rfc3339
from nemesis.schemas.observed import SampleTaken

_BLOCKS: Final = (
    ("gpu", "gpu_count", GPU_CHANNELS),
    ("nic", "nic_count", NIC_CHANNELS),
    ("host", "", HOST_CHANNELS),
    ("steps", "step_count", STEP_CHANNELS),
)
_INT_BYTES: Final = 8


def as_document(item: Input) -> dict[str, Any]:
    """A record as plain values: sequence, subject, and what it says or why it does not decode."""
    record = item.record
    document: dict[str, Any] = {
        "seq": record.seq,
        "subject": record.subject,
        "stored": rfc3339(record.stored_ns),
    }
    if item.decoded() is None:
        return document | {"error": item.error}
    if item.space == "events":
        return document | {"event": msgspec.Raw(record.payload)}
    value: dict[str, Any] = msgspec.to_builtins(item.value)
    if isinstance(item.value, SampleTaken):
        value |= {name: blocks for name, blocks in sample_blocks(item.value).items() if blocks}
    return document | {"data": value}


def sample_blocks(sample: SampleTaken) -> dict[str, list[dict[str, int | None]]]:
    """Each block as one mapping a device, from channel to number; None where it was not read."""
    blocks: dict[str, list[dict[str, int | None]]] = {}
    for name, count_field, channels in _BLOCKS:
        raw: bytes = getattr(sample, name)
        count = getattr(sample, count_field) if count_field else min(len(raw), 1)
        blocks[name] = _rows(raw, count, channels)
    return blocks


def event_line(item: Input) -> str:
    """When the server stored an event, its sequence, fact, key and reason."""
    record = item.record
    data = item.decoded()
    if data is None:
        return f"{_clock(record.stored_ns)} {record.seq:>9} {item.token:<22} ? {item.error}"
    said = getattr(data, "reason", "") or getattr(data, "text", "")
    return (
        f"{_clock(record.stored_ns)} {record.seq:>9} {item.token:<22} {item.name:<14} {said}"
    ).rstrip()


def telemetry_line(item: Input) -> str:
    """Time, sequence, node, kind and the fields that are not at their default."""
    record = item.record
    data = item.decoded()
    start = f"{_clock(record.stored_ns)} {record.seq:>9} {item.name:<10} {item.token:<10}"
    if data is None:
        return f"{start} ? {item.error}"
    if isinstance(data, SampleTaken):
        return f"{start} {_sample_text(data)}".rstrip()
    fields: dict[str, Any] = msgspec.to_builtins(data)
    for name in ("node", "start_ns", "n", "at_ns"):
        fields.pop(name, None)
    return f"{start} " + " ".join(f"{name}={_text(value)}" for name, value in fields.items())


def _rows(raw: bytes, count: int, channels: tuple[str, ...]) -> list[dict[str, int | None]]:
    if count == 0 or len(raw) % (count * _INT_BYTES):
        return []
    numbers = struct.unpack(f"<{len(raw) // _INT_BYTES}q", raw)
    width = len(numbers) // count
    # a newer producer's channels are appended: they have numbers here and no names
    names = [*channels, *(f"channel_{at}" for at in range(len(channels), width))][:width]
    return [
        {
            name: None if value == ABSENT else value
            for name, value in zip(names, numbers[row * width : (row + 1) * width], strict=True)
        }
        for row in range(count)
    ]


def _sample_text(sample: SampleTaken) -> str:
    parts: list[str] = []
    for name, rows in sample_blocks(sample).items():
        for at, row in enumerate(rows):
            shown = " ".join(f"{key}={value}" for key, value in row.items() if value)
            parts.append(f"{name}{at if name != 'host' else ''}[{shown}]")
    return " ".join(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clock(at_ns: int) -> str:
    return rfc3339(at_ns)[11:23]
