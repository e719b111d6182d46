"""How two payloads differ, field by field, for a person to read."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

ABSENT: Final = "(absent)"
_VALUE_CHARACTERS_MAX: Final = 160  # a terminal's two lines


class FieldDifference(msgspec.Struct, frozen=True):
    """One field that is not the same on both sides."""

    field: str
    recorded: str
    replayed: str


def differing_fields(recorded: bytes, replayed: bytes) -> list[FieldDifference]:
    """Fields that differ between two JSON documents; whole payloads where they are no JSON."""
    if recorded == replayed:
        return []
    try:
        old, new = msgspec.json.decode(recorded), msgspec.json.decode(replayed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [FieldDifference("payload", _shown(recorded), _shown(replayed))]
    found = list(_walk("", old, new))
    return found or [FieldDifference("payload", _shown(recorded), _shown(replayed))]


def _walk(path: str, old: Any, new: Any) -> Iterator[FieldDifference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _walk(f"{path}.{key}", old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for at in range(max(len(old), len(new))):
            yield from _walk(
                f"{path}[{at}]",
                old[at] if at < len(old) else ABSENT,
                new[at] if at < len(new) else ABSENT,
            )
    elif old != new or type(old) is not type(new):
        yield FieldDifference(path.lstrip("."), _shown(old), _shown(new))


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    else:
        text = value if value is ABSENT else msgspec.json.encode(value).decode()
    spare = len(text) - _VALUE_CHARACTERS_MAX
    return text if spare <= 0 else f"{text[:_VALUE_CHARACTERS_MAX]}... ({spare} more)"
