"""`nemesis place --dry-run`: what would become of a job, asked of the state of a live cell."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import BadUsageError
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.submit import described, show
from nemesis.cli.topology_check import GpusOption, ModelOption, SettingOption, SpecArgument

EXIT_CODES = {"job_placed": 0, "job_rejected": 1, "job_queued": 3}
NAME = "trial"


def place(
    spec: SpecArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask, and change nothing.")] = False,
    model: ModelOption = "",
    gpus: GpusOption = 0,
    setting: SettingOption = None,
    team: Annotated[str, typer.Option(help="Whose share it would take.")] = "",
    priority: Annotated[int, typer.Option(min=-1000, max=1000, help="Higher goes first.")] = 0,
    runtime: Annotated[str, typer.Option(help="At most so long, as 3h.")] = "",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Show where the scheduler would put a job now, or why it would wait. Nothing is reserved.

    Exit 0: it would be placed; 1: rejected; 2: options that cannot be; 3: it would have to wait,
    or no scheduler is at work in the log.
    """
    if not dry_run:
        raise BadUsageError(
            "jobs are placed by the queue, not past it",
            hint="`nemesis submit NAME SPEC`, or --dry-run to ask only",
        )
    data = described(
        NAME, spec, model=model, gpus=gpus, setting=setting or [], team=team, priority=priority,
        runtime=runtime, world_min=1, who={"by": NAME, "reason": "asked"},
    )  # fmt: skip
    token, said = run_on_loop(_asked((cell, server, context, credentials), data))
    if json:
        print_json({"fact": token, "data": said})
    else:
        say("if it were submitted now:")
        show(NAME, token, said)
    if EXIT_CODES[token]:
        raise typer.Exit(EXIT_CODES[token])


async def _asked(where: tuple[str, str, str, Path | None], data: Any) -> tuple[str, Any]:
    from nemesis.processors.scheduler.trial import trial
    from nemesis.schemas.registry import BY_STRUCT
    from nemesis.views.scheduler import moment_at_end

    async with await open_log(*where) as log:
        said = trial(await moment_at_end(log), data)
    return BY_STRUCT[type(said)].token, said
