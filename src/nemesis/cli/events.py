"""`nemesis events`: what was concluded and done. `nemesis telemetry cat`: what was seen."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.processors.fold import Input
    from nemesis.schemas.facts import Record
    from nemesis.streams.log import Log


class NothingFoundError(NemesisError):
    """Nothing in the log is what was asked for."""

    exit_code = 3


telemetry = typer.Typer(no_args_is_help=True, help="What producers saw.")

SinceOption = Annotated[str, typer.Option(help="Begin in the past: 10m, 2h or a time.")]
UntilOption = Annotated[
    str, typer.Option(help="End at this time, in the same forms; waits for nothing.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow/--no-follow", help="Wait for more at the log's end.")
]
JsonlOption = Annotated[bool, typer.Option("--jsonl", help="One JSON document a line.")]


def events(
    since: SinceOption = "",
    until: UntilOption = "",
    fact: Annotated[list[str] | None, typer.Option(help="Only this fact; repeatable.")] = None,
    job: Annotated[str, typer.Option(help="Only of this job.")] = "",
    incident: Annotated[str, typer.Option(help="Only of this incident, from its start.")] = "",
    follow: FollowOption = True,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    jsonl: JsonlOption = False,
) -> None:
    """Show events as they come; with --since, --until or --no-follow those of the past."""
    _check_tokens(fact or [], "events")

    async def run() -> None:
        from nemesis.processors.fold import Input
        from nemesis.views.incidents import Incidents

        incidents = Incidents()
        count = 0
        async with await open_log(cell, server, context, credentials) as log:
            on = follow and not until
            start = 1 if incident else await _start(log, since, follow=on)
            async for record in _records(log, start, "nemesis.events.>", until, follow=on):
                item = Input(record)
                entry = incidents.see(record)
                wanted = (not fact or item.token in fact) and (not job or _job_of(item) == job)
                if incident and (entry is None or not entry.incident.startswith(incident)):
                    wanted = False
                if wanted:
                    count += 1
                    _show(record, jsonl=jsonl, line=_event_line)
        if not count and (incident or job or fact):
            raise NothingFoundError("no such event", hint="`nemesis incident` lists incidents")

    _run(run())


@telemetry.command("cat")
def telemetry_cat(
    node: Annotated[str, typer.Option(help="Only of this node.")] = "",
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable.")] = None,
    since: SinceOption = "",
    until: UntilOption = "",
    follow: FollowOption = True,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    jsonl: JsonlOption = False,
) -> None:
    """Show what producers saw, one line each; --jsonl shows every channel of every device."""
    _check_tokens(kind or [], "telemetry")

    async def run() -> None:
        from nemesis.schemas.tokens import token_of

        subject = f"nemesis.telemetry.{token_of(node) if node else '*'}.*"
        async with await open_log(cell, server, context, credentials) as log:
            count = 0
            on = follow and not until
            start = await _start(log, since, follow=on)
            async for record in _records(log, start, subject, until, follow=on):
                if not kind or record.subject.rpartition(".")[2] in kind:
                    count += 1
                    _show(record, jsonl=jsonl, line=_telemetry_line)
        if not count and (node or kind):
            of = f" of node {node!r}" if node else ""
            raise NothingFoundError(f"no telemetry{of}", hint="`nemesis status` names the nodes")

    _run(run())


def _run(work: Any) -> None:
    run_on_loop(work)


async def _start(log: "Log", since: str, *, follow: bool) -> int:
    from nemesis.replay.slices import seq_since

    if since:
        return await seq_since(log, since)
    return (await log.bounds()).last_seq + 1 if follow else 1


async def _records(
    log: "Log", start: int, subject: str, until: str, *, follow: bool
) -> AsyncIterator["Record"]:
    from nemesis.replay.slices import END_SEQ, matching, seq_since

    end = await seq_since(log, until) if until else END_SEQ
    source = log.follow(start, subject=subject) if follow else matching(log, subject, start)
    async for record in source:
        if record.seq >= end:
            return
        yield record


def _check_tokens(tokens: list[str], space: str) -> None:
    from nemesis.schemas.registry import EVENTS, TELEMETRY

    known = EVENTS if space == "events" else TELEMETRY
    for token in tokens:
        if token not in known:
            raise typer.BadParameter(f"no fact {token!r}, there are: {', '.join(sorted(known))}")


def _show(record: "Record", *, jsonl: bool, line: Any) -> None:
    from nemesis.processors.fold import Input
    from nemesis.views.shown import as_document

    item = Input(record)
    if jsonl:
        print_json(as_document(item))
    else:
        say(line(item))


def _job_of(item: "Input") -> str:
    data = item.decoded()
    if data is None:
        return ""
    jobs = getattr(data, "jobs", ())
    return str(getattr(data, "job", "") or (jobs[0] if jobs else "") or item.fact(0).job)


def _event_line(item: "Input") -> str:
    from nemesis.views.shown import event_line

    return event_line(item)


def _telemetry_line(item: "Input") -> str:
    from nemesis.views.shown import telemetry_line

    return telemetry_line(item)
