"""What the world is told about facts: JSON Schema for each kind, one AsyncAPI 3 document for all.

Made from the table of facts alone. json-schema.org draft 2020-12; asyncapi.com specification 3.0.0,
whose schemas are draft-07: there a fixed list of items is spelled differently.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec

from nemesis.schemas import plans
from nemesis.schemas.envelope import EVENT_BYTES_MAX, Event
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.schemas.registry import EVENTS, SCHEMA, TELEMETRY, FactKind

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FieldDocs = Mapping[tuple[str, str], str]
"""What the source says about a field, by struct and field."""

_CHANNELS_OF_NODES: Final[Mapping[str, tuple[str, str, type[msgspec.Struct]]]] = {
    "plan": (
        "nemesis.plan.{node}",
        "A plan for a node's agent; the reply is its answer.",
        plans.Plan,
    ),
    "poll_plan": (
        "nemesis.plan.{node}.polls",
        "A node's producer is asked to poll more often for a while; nobody replies.",
        plans.PollPlan,
    ),
    "report": (
        "nemesis.report.{node}.ranks",
        "What became of a node's ranks, unasked.",
        plans.Report,
    ),
    "hello": (
        "nemesis.report.{node}.hello",
        "An agent asks for its last plans; the reply holds them.",
        plans.Hello,
    ),
}
_REPLIES: Final[tuple[type[msgspec.Struct], ...]] = (plans.PlanAnswer, plans.Plans)
_CURSORS: Final[Mapping[str, tuple[str, type[msgspec.Struct]]]] = {
    "position": ("nemesis.cursor.{processor}", ProcessorAdvanced),
    "snapshot": ("nemesis.cursor.{processor}.snapshot", SnapshotTaken),
}


def json_schema(kind: FactKind, docs: FieldDocs) -> dict[str, Any]:
    """The schema of one kind of fact as it lies in the log: envelope and all for an event."""
    parts = _components([kind.struct], "#/$defs/{name}", docs)
    payload: dict[str, Any] = parts.pop(kind.struct.__name__)
    body = payload if kind.token in TELEMETRY else _enveloped(kind, payload)
    definitions = {"$defs": parts} if parts else {}
    return {
        "$schema": DIALECT,
        "$id": f"urn:nemesis:{kind.token}:v1",
        "title": kind.struct.__name__,
        "description": payload.get("description", ""),
        "x-nemesis": {
            "subject": _address(kind).replace("{", "<").replace("}", ">"),
            "encoding": "msgpack" if kind.token in TELEMETRY else "CloudEvents JSON",
            "certainty": kind.certainty,
            "owner": kind.owner,
            "kept_for_ever": kind.kept_for_ever,
            "since": kind.since,
        },
        **{key: value for key, value in body.items() if key not in ("title", "description")},
        **definitions,
    }


def published_schema(kind: FactKind) -> str:
    """The schema of a fact as it is published with this release, with the words of its source."""
    return (files("nemesis.schemas") / "json" / f"{kind.token}.json").read_text("utf-8")


def asyncapi(docs: FieldDocs) -> dict[str, Any]:
    """Every subject, who writes it and what lies there."""
    facts = [*TELEMETRY.values(), *EVENTS.values()]
    structs: list[type[msgspec.Struct]] = [
        *(kind.struct for kind in facts),
        *(struct for _, struct in _CURSORS.values()),
        *(struct for _, _, struct in _CHANNELS_OF_NODES.values()),
        *_REPLIES,
        Event,
    ]
    schemas = _components(structs, "#/components/schemas/{name}", docs)
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for kind in facts:
        _add_fact(kind, channels, messages, operations)
    for name, (address, struct) in _CURSORS.items():
        messages[name] = _message(struct, "application/msgpack")
        channels[name] = _channel(address, _first_line(struct), name)
        operations[f"send_{name}"] = _operation("send", name)
    for name, (address, says, struct) in _CHANNELS_OF_NODES.items():
        messages[name] = _message(struct, "application/json")
        channels[name] = _channel(address, says, name)
        operations[f"send_{name}"] = _operation("send", name)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "NEMESIS",
            "version": SCHEMA,
            "description": "The log of a GPU cluster: what was observed, inferred, decided, done.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": _draft_07(schemas)},
    }


def _enveloped(kind: FactKind, payload: dict[str, Any]) -> dict[str, Any]:
    envelope: dict[str, Any] = _components([Event], "#/$defs/{name}", {})["Event"]
    properties = envelope["properties"]
    return {
        **envelope,
        "properties": {
            **properties,
            "specversion": {"const": "1.0"},
            "type": {"const": kind.type},
            "data": payload,
        },
    }


def _add_fact(
    kind: FactKind,
    channels: dict[str, Any],
    messages: dict[str, Any],
    operations: dict[str, Any],
) -> None:
    telemetry = kind.token in TELEMETRY
    name = kind.token
    schema = f"#/components/schemas/{kind.struct.__name__}"
    payload: dict[str, Any] = {"$ref": schema}
    if not telemetry:
        envelope = {"$ref": "#/components/schemas/Event"}
        own = {"type": {"const": kind.type}, "data": {"$ref": schema}}
        payload = {"allOf": [envelope, {"type": "object", "properties": own}]}
    content = "application/msgpack" if telemetry else "application/cloudevents+json"
    messages[name] = _message(kind.struct, content) | {
        "name": name if telemetry else kind.type,
        "payload": payload,
        "x-bytes-max": EVENT_BYTES_MAX,
    }
    channels[name] = _channel(_address(kind), _first_line(kind.struct), name)
    operations[f"send_{name}"] = _operation("send", name) | {
        "summary": f"{kind.certainty}, by {kind.owner}"
    }


def _message(struct: type[msgspec.Struct], content: str) -> dict[str, Any]:
    return {
        "name": struct.__name__,
        "title": struct.__name__,
        "summary": _first_line(struct),
        "contentType": content,
        "payload": {"$ref": f"#/components/schemas/{struct.__name__}"},
    }


def _channel(address: str, says: str, message: str) -> dict[str, Any]:
    parameters = [part[1:-1] for part in address.split(".") if part.startswith("{")]
    return {
        "address": address,
        "description": says,
        "parameters": {
            name: {"description": f"A {name} as a subject token."} for name in parameters
        },
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
    }


def _operation(action: str, channel: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}


def _address(kind: FactKind) -> str:
    if kind.token in TELEMETRY:
        return f"nemesis.telemetry.{{node}}.{kind.token}"
    return f"nemesis.events.{kind.token}.{{key}}"


def _components(
    structs: Sequence[type[msgspec.Struct]], ref_template: str, docs: FieldDocs
) -> dict[str, Any]:
    """Schemas by struct, with what the source says about each field."""
    _, schemas = msgspec.json.schema_components(
        [_without_raw(struct) for struct in structs], ref_template=ref_template
    )
    for struct, schema in schemas.items():
        for name, field in schema.get("properties", {}).items():
            if text := docs.get((struct, name)):
                field["description"] = text
    return schemas


def _without_raw(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """msgspec makes no schema for raw JSON as a default: say it as the value that it holds."""
    fields = msgspec.structs.fields(struct)
    if not any(isinstance(field.default, msgspec.Raw) for field in fields):
        return struct
    return msgspec.defstruct(
        struct.__name__,
        [_plain(field) for field in fields],
        kw_only=True,
        omit_defaults=True,
        rename={field.name: field.encode_name for field in fields},
        namespace={"__doc__": struct.__doc__},
    )


def _plain(field: msgspec.structs.FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    if isinstance(field.default, msgspec.Raw):
        held = bytes(field.default)
        if not held:
            return field.name, Any
        value = msgspec.json.decode(held)
        return field.name, dict[str, Any], msgspec.field(default_factory=lambda: value)
    if field.required:
        return field.name, field.type
    return field.name, field.type, field.default


def _draft_07(schema: Any) -> Any:
    """Fixed items are `items` and `additionalItems` there."""
    if isinstance(schema, list):
        return [_draft_07(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    turned = {key: _draft_07(value) for key, value in schema.items()}
    if isinstance(turned.get("prefixItems"), list):
        turned["additionalItems"] = turned.pop("items", True)
        turned["items"] = turned.pop("prefixItems")
    return turned


def _first_line(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").strip().split("\n")[0]
