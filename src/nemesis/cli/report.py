"""`nemesis report`: one incident for whoever was not there, from the log, the archive or a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.report.gather import Report


def report(
    source: Annotated[str, typer.Argument(help="An incident, or a recording of one.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained page there.")
    ] = None,
    incident: Annotated[str, typer.Option(help="Which one, where a recording holds several.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the page.")] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Tell an incident: verdict, evidence, time line, decisions, cost, what to do. As Markdown.

    A file is read without a server. An incident is read from the log, and what the log no longer
    has of it from the archive.
    """
    path = Path(source)
    if path.exists():
        found = _of_file(path, incident)
    else:
        found = run_on_loop(_of_log(source, cell, server, context, credentials))
    if html is not None:
        from nemesis.views.report.page import page
        from nemesis.views.report.place import place_page

        place_page(page(found), html, force=force)
    if json:
        print_json(found)
    elif html is not None:
        say(f"wrote {html}: {found.incident}, {found.title}")
    else:
        from nemesis.views.report.text import text

        for line in text(found):
            say(line)


async def _of_log(
    id: str, cell: str, server: str, context: str, credentials: Path | None
) -> "Report":
    from nemesis.views.archived import tell
    from nemesis.views.report.gather import report as report_of

    async with await open_log(cell, server, context, credentials) as log:
        one, source = await tell(log, id)
    return report_of(one, source=source, replay=[f"nemesis replay {one.id}"])


def _of_file(path: Path, id: str) -> "Report":
    from nemesis.replay.reader import Recording
    from nemesis.views.incidents import Incidents, NoIncidentError, first_seen, found
    from nemesis.views.report.gather import report as report_of

    recording = Recording(path)
    incidents = Incidents(recording.records())
    name = id or recording.header.incident
    if not name and len(incidents.by_id) != 1:
        named = ", ".join(incidents.by_id) or "none"
        raise NoIncidentError(
            f"{path} holds {len(incidents.by_id)} incidents: {named}",
            hint="name one with --incident",
        )
    one = found(incidents, name or next(iter(incidents.by_id)))
    seen = next((each for each in recording.records() if each.seq == one.first_seq), None)
    one.first_seen = first_seen(seen) if seen is not None else None
    return report_of(one, source=str(path), replay=[f"nemesis replay {path}"])
