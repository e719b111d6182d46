"""`nemesis schema`: what facts there are and what is in them."""

from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from nemesis.schemas.registry import FactKind

schema = typer.Typer(no_args_is_help=True, help="What facts there are and what is in them.")


@schema.command("list")
def list_facts(json: JsonOption = False) -> None:
    """List every fact: its name, kind, owner, and how long it is kept."""
    kinds = _kinds()
    if json:
        print_json([_row(kind) for kind in kinds.values()])
        return
    for kind in kinds.values():
        kept = "for ever" if kind.kept_for_ever else "by age"
        summary = (kind.struct.__doc__ or "").strip().split("\n")[0]
        typer.echo(f"{kind.token:<24} {kind.certainty:<9} {kind.owner:<22} {kept:<9} {summary}")


@schema.command()
def show(
    name: Annotated[str, typer.Argument(help="fault_attributed, FaultAttributed, or policy.")],
    json: JsonOption = False,
) -> None:
    """Print the JSON Schema of a fact; `policy`: of what the healer may do, with defaults."""
    import msgspec

    if name in ("policy", "Policy"):
        from nemesis.schemas.policy import Policy

        encoded = msgspec.json.encode(msgspec.json.schema(Policy))
        typer.echo(msgspec.json.format(encoded, indent=-1 if json else 2).decode())
        return

    from nemesis.schemas.errors import UnknownFactError
    from nemesis.schemas.published import published_schema

    for kind in _kinds().values():
        if name in (kind.token, kind.struct.__name__, kind.type):
            text = published_schema(kind)
            typer.echo(text if not json else msgspec.json.format(text, indent=-1))
            return
    raise UnknownFactError(f"no fact {name[:60]!r}", hint="`nemesis schema list` lists them")


def _kinds() -> "dict[str, FactKind]":
    from nemesis.schemas.registry import EVENTS, TELEMETRY

    return {**TELEMETRY, **EVENTS}


def _row(kind: "FactKind") -> dict[str, object]:
    return {
        "fact": kind.token,
        "struct": kind.struct.__name__,
        "certainty": kind.certainty,
        "owner": kind.owner,
        "kept_for_ever": kind.kept_for_ever,
        "since": kind.since,
    }
