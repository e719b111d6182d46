"""`nemesis incident`: all incidents, or the story of one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.replay.cases import Case
    from nemesis.views.incidents import Incident, Incidents


def incident(
    id: Annotated[str, typer.Argument(help="An incident or the beginning of its id.")] = "",
    archived: Annotated[
        bool, typer.Option("--archived", help="List what is kept for ever, and what is not yet.")
    ] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Say what broke, how that is known, what was decided and what became of it."""
    if archived:
        _list_archived(run_on_loop(_cases(id, cell, server, context, credentials)), json=json)
        return
    incidents, one = run_on_loop(_gather(id, cell, server, context, credentials))
    if one is not None:
        from nemesis.views.stories import as_document, story

        if json:
            print_json(as_document(one))
        else:
            for line in story(one):
                say(line)
        return
    _list(incidents, json=json)


async def _gather(
    id: str, cell: str, server: str, context: str, credentials: Path | None
) -> tuple["Incidents", "Incident | None"]:
    from nemesis.replay.slices import matching
    from nemesis.views.archived import tell
    from nemesis.views.incidents import Incidents

    incidents = Incidents()
    async with await open_log(cell, server, context, credentials) as log:
        if id:
            return incidents, (await tell(log, id))[0]
        async for record in matching(log, "nemesis.events.>"):
            incidents.see(record)
    return incidents, None


async def _cases(
    id: str, cell: str, server: str, context: str, credentials: Path | None
) -> list["Case"]:
    from nemesis.replay.archive import read_cases

    async with await open_log(cell, server, context, credentials) as log:
        cases = await read_cases(log)
        if id:
            return [cases.found(id)]
        return [case for case in cases.by_id.values() if case.opened_seq or case.parts]


def _list_archived(cases: list["Case"], *, json: bool) -> None:
    if json:
        print_json({"incidents": [{"incident": c.incident, "parts": c.parts} for c in cases]})
        return
    if not cases:
        say("no incidents")
    for case in cases:
        state = "open" if case.is_open else "over"
        if not case.parts:
            say(f"{case.incident}  {state}, not archived")
        for part in case.parts:
            missing = f", {part.missing_count} missing" if part.missing_count else ""
            say(
                f"{case.incident}  {state}, sequences {part.from_seq} to {part.to_seq}{missing},"
                f" {part.size_bytes} bytes, {part.object}, sha256 {part.sha256[:12]}"
            )


def _list(incidents: "Incidents", *, json: bool) -> None:
    from nemesis.views.stories import headline

    all_of_them = list(incidents.by_id.values())
    if json:
        print_json({"incidents": [_row(each) for each in all_of_them]})
        return
    if not all_of_them:
        say("no incidents")
    for each in all_of_them:
        say(headline(each))


def _row(each: "Incident") -> dict[str, Any]:
    verdict = each.verdict
    return {
        "incident": each.id,
        "opened_ns": each.entries[0].stored_ns,
        "job": each.job,
        "verdict": verdict.verdict if verdict else "",
        "fault_class": verdict.fault_class if verdict else "",
        "culprits": [culprit.id for culprit in verdict.culprits] if verdict else [],
        "outcome": each.outcome,
    }
