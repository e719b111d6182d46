"""`nemesis replay`: verifies a recording, or says what today's code would do instead."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.output import Progress, print_json, say

if TYPE_CHECKING:
    from nemesis.replay.reader import Recording
    from nemesis.replay.recording import Header
    from nemesis.replay.verify import ProcessorReport, Report
    from nemesis.replay.what_if import Changes


def replay(
    file: Annotated[Path, typer.Argument(help="A recording made by `nemesis record`.")],
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
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Draw every conclusion of a recording again and compare it byte for byte.

    Needs no server. Exit status: 0 equal; 1 a difference, or a file that is damaged or no
    recording; 2 usage, no such file; 3 something in it could not be verified by this release.
    """
    if (settings or policy) and not compare:
        raise typer.BadParameter("--settings and --policy go with --compare")
    _check_processors(processor or [])
    from nemesis.replay.reader import Recording

    recording = Recording(file)
    if compare:
        _compare(recording, settings or [], policy, json=json)
        return
    from nemesis.replay.verify import verify
    from nemesis.replay.versions import maker

    progress = Progress(recording.header.lines)
    report = verify(
        recording,
        maker(recording.header.nemesis_version),
        only=processor or [],
        progress=progress.at,
    )
    progress.end()
    if json:
        print_json(report)
    else:
        _print_report(recording.header, report)
    raise typer.Exit({"equal": 0, "different": 1}.get(report.verdict, 3))


def _check_processors(names: list[str]) -> None:
    from nemesis.processors.catalogue import CATALOGUE

    for name in names:
        if name not in CATALOGUE:
            known = ", ".join(sorted(CATALOGUE))
            raise typer.BadParameter(f"no processor {name!r}, there are: {known}")


def _compare(
    recording: "Recording", settings: list[str], policy: Path | None, *, json: bool
) -> None:
    from nemesis.processors.catalogue import CATALOGUE
    from nemesis.replay.what_if import compare, parse_policy, parse_settings

    progress = Progress(recording.header.lines)
    changes = compare(
        recording,
        CATALOGUE,
        settings=parse_settings(settings),
        policy=parse_policy(policy) if policy is not None else None,
        progress=progress.at,
    )
    progress.end()
    if json:
        print_json(changes)
    else:
        _print_changes(changes)


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
