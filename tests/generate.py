"""Rebuilds what is generated (`make generate`): JSON Schema, AsyncAPI, the catalogue of facts,
the tables of what producers read and the exporter counts, the built-in playbooks as a policy.

Refuses where a fact would change in a way that old recordings do not survive; `--unreleased` says
that no release has written that fact yet.
"""

import ast
import sys
from pathlib import Path

import msgspec

from nemesis.processors.healer.playbooks import PLAYBOOKS
from nemesis.producers.node.field_table import field_table
from nemesis.schemas.event_catalogue import event_catalogue
from nemesis.schemas.evolution import StructDescription, broken_rules, described
from nemesis.schemas.published import asyncapi, json_schema
from nemesis.schemas.registry import EVENTS, TELEMETRY
from nemesis.views.exporter.metric_table import metric_table

ROOT = Path(__file__).parent.parent
EVOLUTION = ROOT / "schemas" / "evolution.json"
JSON_SCHEMAS = ROOT / "schemas" / "json"
ASYNCAPI = ROOT / "docs" / "asyncapi.json"
EVENTS_PAGE = ROOT / "docs" / "events.md"
FIELDS_PAGE = ROOT / "docs" / "telemetry-fields.md"
METRICS_PAGE = ROOT / "docs" / "metrics.md"
POLICY = ROOT / "docs" / "policy.json"


def field_docs() -> dict[tuple[str, str], str]:
    """The string below each field in the source, by struct and field; inherited ones too."""
    docs: dict[tuple[str, str], str] = {}
    for path in sorted((ROOT / "schemas").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            docs |= {
                (node.name, field): text for (base, field), text in docs.items() if base in bases
            }
            for field, text in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    docs[node.name, field.target.id] = " ".join(str(text.value.value).split())
    return docs


def recorded_description() -> dict[str, StructDescription]:
    """What `evolution.json` says."""
    return msgspec.json.decode(EVOLUTION.read_bytes(), type=dict[str, StructDescription])


def generated() -> dict[Path, bytes]:
    """Every generated file and what must be in it."""
    docs = field_docs()
    files = {
        JSON_SCHEMAS / f"{token}.json": pretty(json_schema(kind, docs))
        for token, kind in {**TELEMETRY, **EVENTS}.items()
    }
    files[ASYNCAPI] = pretty(asyncapi(docs))
    files[EVENTS_PAGE] = event_catalogue(docs).encode()
    files[FIELDS_PAGE] = field_table().encode()
    files[METRICS_PAGE] = metric_table().encode()
    files[EVOLUTION] = pretty(described())
    files[POLICY] = pretty({"mode": "shadow", "playbooks": PLAYBOOKS})
    return files


def pretty(document: object) -> bytes:
    """JSON that a person can read and a diff can show."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def main() -> int:
    """Write the files, unless a rule of evolution is broken."""
    held = EVOLUTION.exists() and "--unreleased" not in sys.argv
    if held and (broken := broken_rules(recorded_description(), described())):
        print("\n".join(["facts may not change like this:", *broken]), file=sys.stderr)
        return 1
    files = generated()
    for stale in set(JSON_SCHEMAS.glob("*.json")) - set(files):
        stale.unlink()
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"wrote {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
