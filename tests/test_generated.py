"""Promises of what is generated: it is fresh, it is valid, and no fact changed behind its back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.schemas.evolution import broken_rules, described
from nemesis.schemas.published import DIALECT, published_schema
from nemesis.schemas.registry import EVENTS, TELEMETRY
from tests.commands import nemesis
from tests.generate import ASYNCAPI, JSON_SCHEMAS, ROOT, generated, recorded_description

KINDS = {**TELEMETRY, **EVENTS}


def test_no_fact_changed_in_a_way_that_old_recordings_do_not_survive() -> None:
    assert broken_rules(recorded_description(), described()) == []


@pytest.mark.parametrize("path", sorted(generated()), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_generated_file_is_fresh(path: Path) -> None:
    assert path.read_bytes() == generated()[path], "run `make generate`"


def test_no_schema_is_left_of_a_fact_that_is_gone() -> None:
    assert {path.stem for path in JSON_SCHEMAS.glob("*.json")} == set(KINDS)


@pytest.mark.parametrize("token", KINDS)
def test_the_schema_of_a_fact_names_every_field_of_it(token: str) -> None:
    kind = KINDS[token]
    schema: dict[str, Any] = msgspec.json.decode(published_schema(kind))
    assert schema["$schema"] == DIALECT
    assert schema["title"] == kind.struct.__name__
    payload = schema if token in TELEMETRY else schema["properties"]["data"]
    names = [field.encode_name for field in msgspec.structs.fields(kind.struct)]
    assert list(payload["properties"]) == names
    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_every_reference_in_the_asyncapi_document_leads_somewhere() -> None:
    document: dict[str, Any] = msgspec.json.decode(ASYNCAPI.read_bytes())
    assert document["asyncapi"] == "3.0.0"
    found = list(references(document))
    assert len(found) > 100
    for reference in found:
        at: Any = document
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]
        assert at


def test_every_fact_has_a_channel_with_its_subject() -> None:
    document: dict[str, Any] = msgspec.json.decode(ASYNCAPI.read_bytes())
    for token in TELEMETRY:
        assert document["channels"][token]["address"] == f"nemesis.telemetry.{{node}}.{token}"
    for token in EVENTS:
        channel = document["channels"][token]
        assert channel["address"] == f"nemesis.events.{token}.{{key}}"
        assert set(channel["parameters"]) == {"key"}


def test_the_asyncapi_document_speaks_draft_07_where_an_array_is_fixed() -> None:
    document: dict[str, Any] = msgspec.json.decode(ASYNCAPI.read_bytes())
    digest = document["components"]["schemas"]["GroupDigest"]
    assert isinstance(digest["items"], list)
    assert "prefixItems" not in ASYNCAPI.read_text()


def references(value: Any) -> Iterator[str]:
    """Every `$ref` below a value."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_schemas_can_be_listed_and_shown() -> None:
    listed = nemesis("schema", "list")
    assert listed.returncode == 0
    assert "fault_attributed" in listed.stdout
    assert len(msgspec.json.decode(nemesis("schema", "list", "--json").stdout)) == len(KINDS)
    for name in ("fault_attributed", "FaultAttributed", "dev.nemesis.fault_attributed.v1"):
        shown = msgspec.json.decode(nemesis("schema", "show", name, "--json").stdout)
        assert shown["title"] == "FaultAttributed"
    missing = nemesis("schema", "show", "NoSuchFact")
    assert missing.returncode == 3
    assert missing.stderr == "nemesis: no fact 'NoSuchFact'; `nemesis schema list` lists them\n"
