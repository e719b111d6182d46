"""`nemesis advise`: what a language model, and the rules, say of a job or of a description."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.topology_check import (
    BadSettingError,
    GpusOption,
    ModelOption,
    SettingOption,
    TakenOption,
    model_of,
    pool_of,
    settings_of,
)
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemesis.actors.advisor.advice import Advice
    from nemesis.actors.advisor.asked import Came
    from nemesis.actors.advisor.asking import Model
    from nemesis.actors.advisor.key import Key
    from nemesis.actors.advisor.settings import Settings
    from nemesis.schemas.advised import AdvisedAct
    from nemesis.schemas.operated import JobSubmitted

JOB = "the-job"
"""What a description without a name is called."""
_Where = tuple[str, str, str, Path | None]


class NoAdvisorError(NemesisError):
    """What the advisor needs is not installed."""

    exit_code = 3


def advise(
    what: Annotated[
        str, typer.Argument(metavar="JOB|'SPEC'", help="A job of the log, or TP8_NVL18+PP4_IB2.")
    ],
    *,
    cluster: Annotated[
        Path | None, typer.Option(help="Of a SPEC: a cluster file, or the name of a shape.")
    ] = None,
    model: ModelOption = "",
    gpus: GpusOption = 0,
    taken: TakenOption = None,
    setting: SettingOption = None,
    settings: Annotated[
        Path | None, typer.Option(help="What of the advisor's settings is to differ.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Ask a language model about a job of the log, or with --cluster about a description.

    What it proposes must pass the rules; of a job it is written down, and the scheduler decides.
    Without a key only the rules answer, and it says so. Exit status: 0 answered, 1 the model gave
    no whole answer, 2 a mistake in what was typed, 3 no such job, 4 others can read the key.
    """
    from nemesis.actors.advisor.settings import settings_of as advisor_settings

    told = advisor_settings(settings)
    key, why_not = _key(told)
    if cluster is None:
        _check_no_spec(what)
        came = run_on_loop(_about_job((cell, server, context, credentials), what, told, key))
    else:
        job = _described(what, model, gpus, setting or [])
        came = run_on_loop(_about_spec(told, key, job, cluster, taken or []))
    if json:
        print_json(_document(came, why_not, told.model))
    else:
        _print(came, why_not, told.model)
    if came.advice is not None and came.advice.ended != "answered":
        raise typer.Exit(1)


def _check_no_spec(what: str) -> None:
    """Raises: BadSettingError, what should be the name of a job is a description."""
    from nemesis.processors.parallelism.parsing import BadSpecError, read

    try:
        read(what)
    except BadSpecError:
        return
    raise BadSettingError(
        f"{what[:60]!r} is a description, and no cluster is named",
        hint="--cluster superpod-h100, or a file",
    )


def library() -> "Callable[[Settings, Key], Model]":
    """What makes a model of settings and a key.

    Raises:
        NoAdvisorError: the client library is not installed.
    """
    try:
        from nemesis.actors.advisor.advice import model_of as advisor
    except ImportError as error:
        raise NoAdvisorError(
            f"the advisor needs {error.name}, which is not installed",
            hint="pip install 'nemesis-gpu[advisor]'",
        ) from error
    return advisor


def _described(what: str, model: str, gpus: int, setting: list[str]) -> "JobSubmitted":
    """The one job that a description makes."""
    import msgspec

    from nemesis.processors.parallelism.parsing import read
    from nemesis.schemas.operated import JobSubmitted

    read(what)
    return JobSubmitted(
        at_ns=0,
        by="you",
        reason="asked",
        job=JOB,
        nodes=(),
        spec=what,
        gpu_count=gpus,
        model=msgspec.to_builtins(model_of(model)) if model else {},
        settings=msgspec.to_builtins(settings_of(setting)),
    )


def _key(settings: "Settings") -> "tuple[Key | None, str]":
    """The key, or why there is none."""
    from nemesis.actors.advisor.key import NoKeyError, key_of

    try:
        return key_of(settings.key_file), ""
    except NoKeyError as error:
        return None, f"{error.message}; {error.hint}" if error.hint else error.message


async def _about_spec(
    settings: "Settings", key: "Key | None", job: "JobSubmitted", cluster: Path, taken: list[str]
) -> "Came":
    from nemesis.actors.advisor.asked import Came
    from nemesis.actors.advisor.desk import Desk
    from nemesis.actors.advisor.plain import moment_of, plain_words

    now = moment_of(pool_of(cluster, taken), job)
    words = plain_words(now, job)
    if key is None:
        return Came(words=words)
    async with library()(settings, key) as model:
        from nemesis.actors.advisor.advice import advise as asked

        return Came(words=words, advice=await asked(model, settings, Desk(now, job)))


async def _about_job(where: _Where, name: str, settings: "Settings", key: "Key | None") -> "Came":
    """Raises: UnknownNameError and what opening a log raises."""
    from nemesis.actors.advisor.asked import Came, about
    from nemesis.actors.advisor.worklist import worklist_of
    from nemesis.cli.cell import open_log
    from nemesis.cli.operate import unknown

    role = "actor/advisor" if key is not None else "reader"
    async with await open_log(*where, role=role) as log:
        worklist = await worklist_of(log)
        if name not in worklist.cases:
            hint = "`nemesis queue` lists jobs; of a description name a --cluster"
            raise unknown("job", name, worklist.cases, hint=hint)
        case = worklist.cases[name]
        if key is None:
            return Came(words=(case.words,))
        async with library()(settings, key) as model:
            return await about(log, model, settings, worklist, case)


def _document(came: "Came", why_not: str, model: str) -> dict[str, Any]:
    found: dict[str, Any] = {"rules": came.words, "no_advice": why_not, "advice": None}
    if came.advice is not None:
        meter = came.advice.meter
        found["advice"] = {
            "ended": came.advice.ended,
            "limit": came.advice.limit,
            "text": came.advice.text,
            "acts": came.advice.acts,
            "calls": came.advice.calls,
            "model": model,
            "requests": meter.requests,
            "tokens_in": meter.tokens_in,
            "tokens_out": meter.tokens_out,
            "cost_microusd": meter.cost_microusd,
        }
        found["judged"], found["placed_on"] = came.judged, came.placed_on
    return found


def _print(came: "Came", why_not: str, model: str) -> None:
    for line in came.words:
        say(line)
    if why_not:
        say(why_not)
    if came.advice is not None:
        _print_advice(came.advice, model)
    for act in came.judged:
        say(f"scheduler: {_act(act)}")
    if came.placed_on:
        say(f"scheduler: placed on {' '.join(came.placed_on)}")


def _print_advice(advice: "Advice", model: str) -> None:
    if advice.ended != "answered":
        say(f"no advice: {advice.ended}" + (f", {advice.limit}" if advice.limit else ""))
    elif advice.text:
        say("advice:")
    for line in advice.text.splitlines():
        say(f"  {line}")
    for act in advice.acts:
        say(f"  {_act(act)}")
    meter = advice.meter
    say(
        f"  {model}: {meter.requests} requests, {meter.tokens_in} tokens in, "
        f"{meter.tokens_out} out, {meter.cost_microusd / 1e6:.4f} USD"
    )


def _act(act: "AdvisedAct") -> str:
    what = " ".join(filter(None, (*act.nodes, act.before, act.spec)))
    came = f"refused by {act.rule}: {act.refusal}" if act.rule else "passes the rules"
    return f"{act.kind} {what or act.job}: {came}"
