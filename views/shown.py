"""Facts for people: one line each, blocks of integers as names and numbers."""

import struct
from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas.blocks import BLOCKS
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.decided import PolicyRefused
from nemesis.schemas.envelope import rfc3339
from nemesis.schemas.observed import DeviceStateRead, SampleTaken

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
    if isinstance(item.value, SampleTaken | DeviceStateRead):
        value |= {name: blocks for name, blocks in blocks_of(item.value).items() if blocks}
    return document | {"data": value}


def blocks_of(fact: SampleTaken | DeviceStateRead) -> dict[str, list[dict[str, int | None]]]:
    """Each block as one mapping a device, from channel to number; None where it was not read."""
    blocks: dict[str, list[dict[str, int | None]]] = {}
    for name, (count_field, channels) in BLOCKS[type(fact)].items():
        raw: bytes = getattr(fact, name)
        count = getattr(fact, count_field) if count_field else min(len(raw), 1)
        blocks[name] = _rows(raw, count, channels)
    return blocks


def event_line(item: Input) -> str:
    """When the server stored an event, its sequence, fact, key and reason."""
    record = item.record
    data = item.decoded()
    if data is None:
        return f"{_clock(record.stored_ns)} {record.seq:>9} {item.token:<22} ? {item.error}"
    said = getattr(data, "reason", "") or getattr(data, "text", "")
    if isinstance(data, PolicyRefused):
        said = f"{said} {data.broken}"
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
    if isinstance(data, DeviceStateRead):
        return f"{start} {_state_text(data)}".rstrip()
    fields: dict[str, Any] = msgspec.to_builtins(data)
    for name in ("node", "start_ns", "n", "at_ns"):
        fields.pop(name, None)
    return f"{start} " + " ".join(f"{name}={_text(value)}" for name, value in fields.items())


def _rows(raw: bytes, count: int, channels: tuple[str, ...]) -> list[dict[str, int | None]]:
    if not raw or count == 0 or len(raw) % (count * _INT_BYTES):
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
    """GPUs: power, temperature, load, ECC errors; NICs that are up; the step of its ranks."""
    blocks = blocks_of(sample)
    gpus, nics, steps = blocks["gpu"], blocks["nic"], blocks["steps"]
    parts: list[str] = []
    if gpus:
        power = _range(gpus, "power_mw", 1000)
        load = _range(gpus, "utilization_ppm", 10_000)
        parts.append(f"{len(gpus)} GPUs {power:>7} W {_range(gpus, 'temp_c'):>5} C {load:>6} %")
        corrected = _total(gpus, "dram_ce_count", "sram_ce_count")
        uncorrected = _total(gpus, "dram_ue_count", "sram_ue_count")
        parts.append(f"ECC {corrected} corrected {uncorrected} not")
    if nics:
        parts.append(f"NICs up {_total(nics, 'port_up')}/{len(nics)}")
    if steps:
        parts.append(f"step {_range(steps, 'step')}")
    return "  ".join(parts)


def _state_text(state: DeviceStateRead) -> str:
    """GPUs: PCIe and NVLink; NICs: what was lost."""
    blocks = blocks_of(state)
    gpus, nics = blocks["gpu"], blocks["nic"]
    parts: list[str] = []
    if gpus:
        parts.append(f"{len(gpus)} GPUs PCIe x{_range(gpus, 'pcie_width')}")
        parts.append(f"NVLinks up {_range(gpus, 'nvlink_up_count')}")
    if nics:
        parts.append(f"NIC discards {_total(nics, 'discard_count', 'tx_discard_count')}")
    return "  ".join(parts)


def _range(rows: list[dict[str, int | None]], channel: str, unit: int = 1) -> str:
    """Least and greatest of a channel; `-` where no device could be read."""
    values = [value // unit for row in rows if (value := row.get(channel)) is not None]
    if not values:
        return "-"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def _total(rows: list[dict[str, int | None]], *channels: str) -> int:
    return sum(row.get(channel) or 0 for row in rows for channel in channels)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clock(at_ns: int) -> str:
    return rfc3339(at_ns)[11:23]
