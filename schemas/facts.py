"""Records and facts: an entry of the log as bytes, and as what a processor is handed.

Subjects, by their second token:
`nemesis.telemetry.<node>.<kind>`, `nemesis.events.<fact>.<key>`, `nemesis.cursor.<processor>`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from nemesis.schemas.envelope import EVENT_BYTES_MAX, Event, decode_event, encode_event, rfc3339
from nemesis.schemas.errors import BadNameError, MalformedFactError, UnknownFactError
from nemesis.schemas.observed import Observation
from nemesis.schemas.registry import BY_STRUCT, EVENTS, TELEMETRY, FactKind
from nemesis.schemas.tokens import name_of, token_of

Space = Literal["telemetry", "events", "cursor"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log as it lies there."""

    seq: int
    subject: str
    stored_ns: int
    """When the server stored it: for people and for the watch, never for a processor."""
    payload: bytes


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the log, decoded: what a processor is handed."""

    seq: int
    kind: str
    """The fact's token: `kernel`, `fault_attributed`."""
    key: str
    """The node of an observation, the key of an event."""
    id: str
    at_ns: int
    """When its writer says it was seen or concluded."""
    log_time_ns: int
    """Time of the last tick before it."""
    late: bool
    """More than 30 s behind log time: it may refine or refute, it opens no decision."""
    data: Any
    """The payload, an instance of the kind's struct."""
    job: str = ""
    cause: tuple[int, ...] = ()


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What a processor answers: a payload, its key, and the sequences it was drawn from."""

    data: msgspec.Struct
    key: str
    cause: tuple[int, ...]
    job: str = ""
    urgent: bool = False
    """Fast path: committed at once instead of with the next group."""


SubjectParts = tuple[str, str, str]
_SPACES: Final[Mapping[str, Mapping[str, FactKind]]] = {"telemetry": TELEMETRY, "events": EVENTS}


def split_subject(subject: str) -> SubjectParts:
    """(space, token, name) of a subject: ("telemetry", "kernel", "n012").

    Raises:
        BadNameError: not a subject of the log.
    """
    parts = subject.split(".")
    if len(parts) == 4 and parts[0] == "nemesis":
        if parts[1] == "telemetry":
            return "telemetry", parts[3], name_of(parts[2])
        if parts[1] == "events":
            return "events", parts[2], name_of(parts[3])
    if len(parts) in (3, 4) and parts[:2] == ["nemesis", "cursor"]:
        return "cursor", ".".join(parts[3:]), name_of(parts[2])
    raise BadNameError(f"not a subject of the log: {subject[:120]!r}")


def telemetry_subject(node: str, kind: str) -> str:
    """The subject of an observation."""
    return f"nemesis.telemetry.{token_of(node)}.{kind}"


def event_subject(token: str, key: str) -> str:
    """The subject of an event."""
    return f"nemesis.events.{token}.{token_of(key)}"


def cursor_subject(processor: str) -> str:
    """The subject of a processor's position."""
    return f"nemesis.cursor.{token_of(processor)}"


EVENTS_SUBJECT: Final = "nemesis.events.>"
"""Every event, whatever its fact and key."""


def snapshot_subject(processor: str) -> str:
    """The subject of a processor's snapshots."""
    return f"{cursor_subject(processor)}.snapshot"


def observation_id(subject_token: str, data: Observation) -> str:
    """The id of a producer's fact: `<node>/<kind>/<start of the process>/<n>`."""
    return f"{data.node}/{subject_token}/{data.start_ns}/{data.n}"


_telemetry_decoders: Final = {
    token: msgspec.msgpack.Decoder(kind.struct) for token, kind in TELEMETRY.items()
}
_event_decoders: Final = {
    token: msgspec.json.Decoder(kind.struct) for token, kind in EVENTS.items()
}
_msgpack: Final = msgspec.msgpack.Encoder()
_json: Final = msgspec.json.Encoder()


def encode_observation(data: Observation) -> bytes:
    """An observation's bytes in the log."""
    return _msgpack.encode(data)


def decode_observation(token: str, payload: bytes) -> Observation:
    """The observation in these bytes.

    Raises:
        UnknownFactError: no such kind of telemetry.
        MalformedFactError: the payload does not fit; names the field and the value.
    """
    decoder = _telemetry_decoders.get(token)
    if decoder is None:
        raise UnknownFactError(f"unknown kind of telemetry: {token!r}")
    try:
        data = decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(
            _explained(token, error, payload, msgspec.msgpack.decode)
        ) from error
    assert isinstance(data, Observation)
    return data


def encode_conclusion(
    *,
    id: str,
    source: str,
    at_ns: int,
    data: msgspec.Struct,
    key: str,
    cause: str = "",
    job: str = "",
) -> tuple[str, bytes]:
    """(subject, payload) of an event that holds `data`.

    Raises:
        MalformedFactError: larger than EVENT_BYTES_MAX.
    """
    kind = BY_STRUCT[type(data)]
    payload = encode_event(
        Event(
            specversion="1.0",
            id=id,
            source=source,
            type=kind.type,
            subject=key,
            time=rfc3339(at_ns),
            datacontenttype="application/json",
            cause=cause,
            job=job,
            data=msgspec.Raw(_json.encode(data)),
        )
    )
    if len(payload) > EVENT_BYTES_MAX:
        raise MalformedFactError(
            f"{kind.token} {id} has {len(payload)} bytes, at most {EVENT_BYTES_MAX} fit into a fact"
        )
    return event_subject(kind.token, key), payload


def decode_conclusion(token: str, payload: bytes) -> tuple[Event, Any]:
    """(envelope, data) of an event.

    Raises:
        UnknownFactError: a type that this release does not know.
        MalformedFactError: the payload does not fit; names the field and the value.
    """
    decoder = _event_decoders.get(token)
    if decoder is None:
        raise UnknownFactError(f"unknown fact: {token!r}", hint="read it with a newer release")
    try:
        event = decode_event(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(_explained(token, error, payload, msgspec.json.decode)) from error
    if event.type != EVENTS[token].type:
        raise UnknownFactError(
            f"unknown version of {token}: {event.type!r}, expected {EVENTS[token].type!r}",
            hint="read it with a newer release",
        )
    try:
        return event, decoder.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(
            _explained(token, error, bytes(event.data), msgspec.json.decode)
        ) from error


def _explained(token: str, error: Exception, payload: bytes, decode: Any) -> str:
    """msgspec says what it expected and where; people also need the value that was there."""
    what, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    try:
        value = decode(payload)
        for step in path.replace("]", "").replace("[", ".").split("."):
            if step and step != "...":
                value = value[int(step)] if isinstance(value, list) else value[step]
        got = f", got {str(value)[:80]!r}" if path else ""
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        LookupError,
        TypeError,
        ValueError,
    ):
        got = ""
    return f"{token}{path}: {what}{got}"


def check_writer(name: str, data: Observation) -> None:
    """A payload speaks for the node of its subject and for no other.

    Raises:
        MalformedFactError: it names another node.
    """
    if data.node != name:
        raise MalformedFactError(f".node: expected the subject's {name!r}, got {data.node[:80]!r}")


__all__ = [
    "BadNameError",
    "Conclusion",
    "Fact",
    "Record",
    "check_writer",
    "cursor_subject",
    "decode_conclusion",
    "decode_observation",
    "encode_conclusion",
    "encode_observation",
    "event_subject",
    "observation_id",
    "snapshot_subject",
    "split_subject",
    "telemetry_subject",
]
