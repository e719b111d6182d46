"""`nemesis submit` and `nemesis release`: a job that the scheduler places, and its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.job import check_name
from nemesis.cli.operate import ByOption, NothingToDoError, open_as_operator, signed, unknown
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.topology_check import GpusOption, ModelOption, SettingOption, SpecArgument
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nemesis.schemas.operated import JobSubmitted
    from nemesis.streams.log import Log

ANSWER_S = 10.0
"""A scheduler that runs answers within one; nobody waits longer."""
_Where = tuple[str, str, str, Path | None]
WhyOption = Annotated[str, typer.Option("--reason", help="Why, for the record.")]
"""Unlike what is done to others' jobs, a job of one's own needs none."""
NameArgument = Annotated[str, typer.Argument(help="Its name.")]


class NoAnswerError(NemesisError):
    """Nobody said what becomes of the job."""

    exit_code = 3


def submit(
    name: Annotated[str, typer.Argument(help="Its name, another for each run.")],
    spec: SpecArgument,
    *,
    model: ModelOption = "",
    gpus: GpusOption = 0,
    setting: SettingOption = None,
    team: Annotated[str, typer.Option(help="Whose share it takes; else of who submits.")] = "",
    priority: Annotated[int, typer.Option(min=-1000, max=1000, help="Higher goes first.")] = 0,
    runtime: Annotated[str, typer.Option(help="At most so long, as 3h; lets it fill gaps.")] = "",
    world_min: Annotated[int, typer.Option(min=1, help="Fewer ranks are not worth it.")] = 1,
    by: ByOption = "",
    reason: WhyOption = "it is to run",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Let a job wait for nodes and start on them (changes the cluster).

    Exit 0: it has a place or waits, and why is said; 1: rejected, it could never run; 2: options
    that cannot be; 3: no scheduler answers.
    """
    who = signed(by, reason)
    check_name("job", name)
    if team:
        check_name("team", team)
    data = described(
        name, spec, model=model, gpus=gpus, setting=setting or [], team=team, priority=priority,
        runtime=runtime, world_min=world_min, who=who,
    )  # fmt: skip
    token, said = run_on_loop(_submit((cell, server, context, credentials), data))
    if json:
        print_json({"fact": token, "data": said})
    else:
        show(name, token, said)
    if token == "job_rejected":
        raise typer.Exit(1)


def release(
    name: NameArgument,
    *,
    requeue: Annotated[bool, typer.Option("--requeue", help="It waits for other nodes.")] = False,
    by: ByOption = "",
    reason: WhyOption = "it is not needed any more",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Give back the nodes of a job, or its place in the queue (changes the cluster).

    It is over, as by `nemesis job end`. Exit 3: no such job, it waits already, or no scheduler
    answers.
    """
    who = signed(by, reason)
    where = (cell, server, context, credentials)
    said = run_on_loop(_release(where, name, who, requeue=requeue))
    if json:
        print_json({"fact": "job_released", "data": said})
        return
    nodes = ",".join(said.nodes) or "its place in the queue"
    say(f"{name}: released {nodes}" + (", waits again" if said.requeued else ""))


def described(
    name: str,
    spec: str,
    *,
    model: str,
    gpus: int,
    setting: list[str],
    team: str,
    priority: int,
    runtime: str,
    world_min: int,
    who: dict[str, str],
) -> "JobSubmitted":
    """The submission that these options mean.

    Raises:
        BadSpecError, BadModelError, BadSettingError, BadDurationError: what is wrong with which.
    """
    import time

    import msgspec

    from nemesis.cli.durations import seconds
    from nemesis.cli.topology_check import model_of, settings_of
    from nemesis.processors.parallelism.parsing import parse
    from nemesis.schemas.operated import JobSubmitted

    parse(spec)
    return JobSubmitted(
        at_ns=time.time_ns(),
        job=name,
        nodes=(),
        spec=spec,
        gpu_count=gpus,
        model=msgspec.to_builtins(model_of(model)) if model else {},
        settings=msgspec.to_builtins(settings_of(setting)),
        team=team,
        priority=priority,
        runtime_ns=round(seconds(runtime, "--runtime") * 1e9) if runtime else 0,
        world_min=world_min,
        by=who["by"],
        reason=who["reason"],
    )


async def _submit(where: _Where, data: "JobSubmitted") -> tuple[str, Any]:
    from nemesis.actors.agent.submission import submit as told

    async with await open_as_operator(*where) as log:
        seq = await told(log, data)
        async for token, said in _answers(log, data.job, seq):
            return token, said
    raise _unanswered(f"{data.job} is in the log")


async def _release(where: _Where, name: str, who: dict[str, str], *, requeue: bool) -> Any:
    from nemesis.actors.agent.submission import end
    from nemesis.processors.fold import Input
    from nemesis.replay.slices import matching
    from nemesis.schemas.facts import EVENTS_SUBJECT
    from nemesis.schemas.scheduled import JobPlaced, JobReleased
    from nemesis.views.queue import Queue

    async with await open_as_operator(*where) as log:
        queue = Queue()
        async for record in matching(log, EVENTS_SUBJECT):
            queue.take(Input(record))
        if name not in queue.rows:
            known = ", ".join(sorted(queue.rows)) or "none"
            raise unknown("job", name, queue.rows, hint=f"waiting or running: {known}")
        row = queue.rows[name]
        if requeue and row.state == "waits":
            raise NothingToDoError(f"{name} waits already", hint="`nemesis queue` says for what")
        first = seq = await end(log, name, by=who["by"], reason=who["reason"], requeued=requeue)
        while True:
            async for _, said in _answers(log, name, seq, also=row.seq, after=first):
                if isinstance(said, JobReleased):
                    return said
                if isinstance(said, JobPlaced):  # decided before it could be taken back
                    row.seq = seq
                    seq = await end(log, name, by=who["by"], reason=who["reason"], requeued=requeue)
                    break
            else:
                raise _unanswered(f"the end of {name} is in the log")


async def _answers(
    log: "Log", job: str, seq: int, *, also: int = 0, after: int = 0
) -> "AsyncIterator[tuple[str, Any]]":
    """What the scheduler says to the fact of that sequence, or `also` to another, for a while.

    `after`: read from behind this one on, where that is not the first of the two.
    """
    import asyncio

    from nemesis.processors.fold import Input
    from nemesis.schemas.facts import event_subject
    from nemesis.views.queue import answer_to

    try:
        async with asyncio.timeout(ANSWER_S):
            async for record in log.follow((after or seq) + 1, subject=event_subject("*", job)):
                item = Input(record)
                data = item.decoded()
                if data is not None and answer_to(data, item.fact(0).cause, (seq, also)):
                    yield item.token, data
    except TimeoutError:
        return


def _unanswered(what: str) -> NoAnswerError:
    return NoAnswerError(
        f"{what}, and no scheduler said within {ANSWER_S:.0f} s what becomes of it",
        hint="`nemesis status` says what runs; `nemesis queue` shows it once one does",
    )


def show(name: str, token: str, said: Any) -> None:
    """Tell people what the scheduler said."""
    if token == "job_placed":
        say(f"{name}: placed on {','.join(said.nodes)}")
        say(f"  {said.reason}")
        if said.spares:
            say(f"  spares: {', '.join(said.spares)}")
        return
    if token == "job_rejected":
        say(f"{name}: rejected")
        for finding in said.findings:
            advice = f"; {finding.legal}" if finding.legal else ""
            say(f"  {finding.code}: {finding.text}{advice}")
        return
    say(f"{name}: waits, {said.position} before it: {said.reason}")
    for each in said.helps:
        say(f"  would help: {each}")
