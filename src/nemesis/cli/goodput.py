"""`nemesis goodput`: where the time of each job went, and what each incident cost it.

With `--mtbf` or `--rate` it is arithmetic for a job that is only planned: no log is read.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.schemas.inferred import GoodputAccounted, IncidentCosted
    from nemesis.streams.log import Log


PLAN = "To plan a job"
AS_PLANNED = ("60s", "5m", "0s")
"""A save, a restart and a write where nobody says."""


def goodput(
    job: Annotated[str, typer.Argument(help="A job; without it, all.")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    mtbf: Annotated[
        str | None,
        typer.Option(help="Plan: the job fails this often, as 3h5m.", rich_help_panel=PLAN),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Or: failures per 1000 node-days.", rich_help_panel=PLAN)
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the job.", rich_help_panel=PLAN)] = 0,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Or a cluster file or shape that it fills.", rich_help_panel=PLAN),
    ] = None,
    save: Annotated[
        str, typer.Option(help="A save holds it up so long.", rich_help_panel=PLAN)
    ] = AS_PLANNED[0],
    restart: Annotated[
        str, typer.Option(help="From failure to work.", rich_help_panel=PLAN)
    ] = AS_PLANNED[1],
    write: Annotated[
        str, typer.Option(help="A save is safe only after so long.", rich_help_panel=PLAN)
    ] = AS_PLANNED[2],
    interval: Annotated[
        str | None, typer.Option(help="Between saves today, to compare.", rich_help_panel=PLAN)
    ] = None,
    goal: Annotated[
        float | None,
        typer.Option(min=0, max=0.999, help="Share of work to reach.", rich_help_panel=PLAN),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the newest account of each job; its parts sum to wall time. Exit 3: there is none.

    With --mtbf or --rate: how often a planned job should save, and what improvements are worth.
    """
    said = [mtbf, rate, interval, goal, cluster, gpus or None]
    if any(each is not None for each in said) or (save, restart, write) != AS_PLANNED:
        from nemesis.cli.goodput_plan import BadPlanError, cluster_size, plan_of, show_plan

        if job:
            raise BadPlanError(
                f"{job[:60]!r} beside a plan: expected a job, for its account, or --mtbf or --rate"
            )
        all_gpus, per_node = cluster_size(cluster) if cluster else (0, 8)
        plan = plan_of(
            mtbf=mtbf,
            rate=rate,
            gpus=gpus or all_gpus,
            gpus_per_node=per_node,
            save=save,
            restart=restart,
            write=write,
        )
        show_plan(plan, gpus=gpus or all_gpus, interval=interval, goal=goal, json=json)
        return
    _show_accounts(job, (cell, server, context, credentials), json=json)


def _show_accounts(job: str, where: tuple[str, str, str, Path | None], *, json: bool) -> None:
    from nemesis.views.accounts import account_document, account_lines

    async def run() -> "tuple[list[GoodputAccounted], list[IncidentCosted]]":
        async with await open_log(*where) as log:
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
