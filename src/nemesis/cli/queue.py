"""`nemesis queue`: who waits for nodes, why, and who has which."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.views.queue import Queue, Row


def queue(
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Show which jobs wait for nodes, why and what would help, and where the others run.

    Exit 3: no job waits or runs.
    """
    found = run_on_loop(_read(cell, server, context, credentials))
    rows = found.listed()
    if json:
        print_json({"jobs": rows, "log_time_ns": found.log_time_ns})
    else:
        for row in rows:
            _show(row, found.log_time_ns)
    if not rows:
        if not json:
            say("no job waits or runs")
        raise typer.Exit(3)


async def _read(cell: str, server: str, context: str, credentials: Path | None) -> "Queue":
    from nemesis.processors.fold import Input
    from nemesis.replay.slices import matching
    from nemesis.schemas.facts import EVENTS_SUBJECT
    from nemesis.streams.ticker import TICK_SUBJECT
    from nemesis.views.queue import Queue

    found = Queue()
    async with await open_log(cell, server, context, credentials) as log:
        async for record in matching(log, EVENTS_SUBJECT):
            found.take(Input(record))
        tick = await log.last(TICK_SUBJECT)
        if tick is not None:
            found.take(Input(tick))
    return found


def _show(row: "Row", now_ns: int) -> None:
    from nemesis.cli.operate import until

    since = until(row.since_ns, now_ns)
    who = f"{row.team}, priority {row.priority}" if row.priority else row.team
    if row.state == "runs":
        mfu_ppm = row.quality.mfu_ppm if row.quality is not None else 0
        told = f"  {mfu_ppm / 10_000:.1f} % MFU predicted" if mfu_ppm else ""
        say(f"{row.job:<16} runs   {since}  {who}  {','.join(row.nodes)}{told}")
        return
    say(f"{row.job:<16} waits  {since}  {who}  {row.spec}")
    say(f"  {row.why or 'not looked at yet'}")
    if row.start_ns_expected > now_ns:
        say(f"  expected to start in {until(now_ns, row.start_ns_expected)}")
    for each in row.helps:
        say(f"  would help: {each}")
