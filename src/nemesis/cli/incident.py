"""`nemesis incident`: all incidents, or the story of one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import print_json, say

if TYPE_CHECKING:
    from nemesis.views.incidents import Incident, Incidents


def incident(
    id: Annotated[str, typer.Argument(help="An incident or the beginning of its id.")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what broke, how that is known, what was decided and what became of it."""
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
    from nemesis.views.incidents import Incidents, first_seen, found

    incidents = Incidents()
    async with await open_log(cell, server, context, credentials) as log:
        async for record in matching(log, "nemesis.events.>"):
            incidents.see(record)
        if not id:
            return incidents, None
        one = found(incidents, id)
        record_seen = await log.get(one.first_seq)
        one.first_seen = first_seen(record_seen) if record_seen is not None else None
    return incidents, one


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
