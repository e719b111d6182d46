"""`nemesis goodput`: where the time of each job went, and what each incident cost it."""

from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.schemas.inferred import GoodputAccounted, IncidentCosted
    from nemesis.streams.log import Log


def goodput(
    job: Annotated[str, typer.Argument(help="A job; without it, all.")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Show the newest account of each job; its parts sum to wall time. Exit 3: there is none."""
    from nemesis.views.accounts import account_document, account_lines

    async def run() -> "tuple[list[GoodputAccounted], list[IncidentCosted]]":
        async with await open_log(cell, server, context, credentials) as log:
            return await _newest(log, job)

    accounts, costs = run_on_loop(run())
    own = [[cost for cost in costs if cost.job == account.job] for account in accounts]
    if json:
        print_json({"jobs": [account_document(*each) for each in zip(accounts, own, strict=True)]})
    else:
        for each in zip(accounts, own, strict=True):
            for line in account_lines(*each):
                say(line)
    if not accounts:
        if not json:
            say(f"no account of {job or 'any job'} yet: one is told a minute after its submission")
            if job:
                say("`nemesis goodput` shows those of all jobs")
        raise typer.Exit(3)


async def _newest(log: "Log", job: str) -> "tuple[list[GoodputAccounted], list[IncidentCosted]]":
    """The last account of each job, the last cost of each incident and job, by time."""
    from nemesis.replay.slices import matching
    from nemesis.schemas.facts import decode_conclusion, event_subject
    from nemesis.streams.lookup import subjects

    wanted = (
        event_subject("goodput_accounted", job) if job else "nemesis.events.goodput_accounted.*"
    )
    found: list[GoodputAccounted] = []
    for subject in await subjects(log, wanted):
        if (record := await log.last(subject)) is not None:
            found.append(decode_conclusion("goodput_accounted", record.payload)[1])
    costs: dict[tuple[str, str], IncidentCosted] = {}
    async for record in matching(log, "nemesis.events.incident_costed.*"):
        cost = decode_conclusion("incident_costed", record.payload)[1]
        costs.pop((cost.incident, cost.job), None)
        costs[cost.incident, cost.job] = cost
    return found, list(costs.values())
