"""`nemesis replay`: verifies a recording, or says what today's code would do instead."""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    open_log,
    shown_name,
)
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, Progress, print_json, say

if TYPE_CHECKING:
    from nemesis.replay.archive import Piece
    from nemesis.replay.recording import Header
    from nemesis.replay.verify import ProcessorReport, Report
    from nemesis.replay.what_if import Changes


_INCIDENT: Final = re.compile(r"i-[0-9a-f]+\Z")


def replay(
    source: Annotated[
        str, typer.Argument(help="A recording, or an incident of the log or the archive: i-….")
    ],
    processor: Annotated[
        list[str] | None, typer.Option("--processor", help="Only this one; may be repeated.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Run today's code instead, list what changes.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--settings", metavar="NAME=JSON", help="With --compare: other settings."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="With --compare: another policy, a JSON file.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Draw every conclusion of a recording again and compare it byte for byte.

    A file needs no server; an incident is taken from the log while it is there, else from the
    archive. Exit status: 0 equal; 1 a difference, or a file that is damaged or no
    recording; 2 usage, no such file; 3 something in it could not be verified by this release.
    """
    if (settings or policy) and not compare:
        raise typer.BadParameter("--settings and --policy go with --compare")
    _check_processors(processor or [])

    def run(file: Path) -> tuple[int, "Header", "Report | Changes"]:
        if compare:
            return _compare(file, settings or [], policy)
        return _verify(file, processor or [])

    if Path(source).exists() or not _INCIDENT.match(source):
        code, header, found = run(Path(source))
        _show(header, found, json=json)
        raise typer.Exit(code)
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        out = Path(folder) / f"{source}.ndjson.zst"
        pieces = run_on_loop(_pieces(source, out, cell, server, context, credentials))
        answers = [run(piece.path) for piece in pieces]
    if json and len(answers) > 1:
        print_json({"incident": source, "parts": [found for _, _, found in answers]})
    else:
        for piece, (_, header, found) in zip(pieces, answers, strict=True):
            if not json:
                say(f"{source}, from the {piece.source}:")
            _show(header, found, json=json)
    codes = [code for code, _, _ in answers]
    raise typer.Exit(1 if 1 in codes else max(codes))


async def _pieces(
    incident: str, out: Path, cell: str, server: str, context: str, credentials: Path | None
) -> list["Piece"]:
    from nemesis.replay.archive import bring, read_cases

    async with await open_log(cell, server, context, credentials) as log:
        case = (await read_cases(log)).found(incident)
        return await bring(log, case, out, cell=shown_name(cell, server, context))


def _verify(file: Path, processors: list[str]) -> tuple[int, "Header", "Report"]:
    """Exit status, what was read, what came of it."""
    from nemesis.cli.models import catalogue
    from nemesis.replay.reader import Recording
    from nemesis.replay.verify import verify
    from nemesis.replay.versions import maker

    recording = Recording(file)
    progress = Progress(recording.header.lines)
    report = verify(
        recording,
        maker(recording.header.nemesis_version, catalogue()),
        only=processors,
        progress=progress.at,
    )
    progress.end()
    return {"equal": 0, "different": 1}.get(report.verdict, 3), recording.header, report


def _check_processors(names: list[str]) -> None:
    from nemesis.processors.catalogue import CATALOGUE

    for name in names:
        if name not in CATALOGUE:
            known = ", ".join(sorted(CATALOGUE))
            raise typer.BadParameter(f"no processor {name!r}, there are: {known}")


def _compare(
    file: Path, settings: list[str], policy: Path | None
) -> tuple[int, "Header", "Changes"]:
    from nemesis.cli.models import catalogue
    from nemesis.replay.reader import Recording
    from nemesis.replay.what_if import compare, parse_policy, parse_settings

    recording = Recording(file)
    progress = Progress(recording.header.lines)
    changes = compare(
        recording,
        catalogue(),
        settings=parse_settings(settings),
        policy=parse_policy(policy) if policy is not None else None,
        progress=progress.at,
    )
    progress.end()
    return 0, recording.header, changes


def _show(header: "Header", found: "Report | Changes", *, json: bool) -> None:
    from nemesis.replay.verify import Report

    if json:
        print_json(found)
    elif isinstance(found, Report):
        _print_report(header, found)
    else:
        _print_changes(found)


def _print_report(header: "Header", report: "Report") -> None:
    say(
        f"{report.verdict}: read {report.facts_count} facts of cell {header.cell},"
        f" sequences {header.from_seq} to {header.to_seq}"
    )
    for each in report.processors:
        say(f"  {each.name:<14} {_summary(each)}")
    for note in report.notes:
        say(f"  note: {note}")
    first = report.first
    if first is not None and first.difference is not None:
        found = first.difference
        say(f"first difference, {first.name} on input {found.seq}: {found.kind} {found.id}")
        for field in found.fields:
            say(f"  {field.field}")
            say(f"    recorded  {field.recorded}")
            say(f"    replayed  {field.replayed}")
        if not found.fields:
            say(f"    recorded  {found.recorded}")
            say(f"    replayed  {found.replayed}")
        if found.note:
            say(f"  note: {found.note}")


def _summary(each: "ProcessorReport") -> str:
    versions = " then ".join(map(str, each.versions)) or "?"
    text = f"version {versions}: {each.equal_count} conclusions equal"
    if each.states_equal_count:
        text += f", {each.states_equal_count} saved states equal"
    if each.unanswered_count:
        text += f", {each.unanswered_count} not yet written where the slice ends"
    if each.unverified:
        text += f"; not verified: {each.unverified}"
    return text + ("; then a difference" if each.difference else "")


def _print_changes(changes: "Changes") -> None:
    say(
        f"{len(changes.gone)} conclusions gone, {len(changes.new)} new,"
        f" {len(changes.changed)} changed, {changes.same_count} the same"
    )
    for sign, some in (("-", changes.gone), ("+", changes.new)):
        for each in some:
            say(f"{sign} {each.fact} {each.key} ({each.id}): {each.reason}")
    for change in changes.changed:
        say(f"~ {change.fact} {change.key} ({change.id})")
        for field in change.fields:
            say(f"    {field.field}: {field.recorded} -> {field.replayed}")
    for note in changes.notes:
        say(f"note: {note}")
