"""`nemesis advise`: what a language model, and the rules, say of a job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from nemesis.actors.advisor.advice import Advice
    from nemesis.actors.advisor.key import Key
    from nemesis.actors.advisor.settings import Settings
    from nemesis.processors.advice.situation import Situation
    from nemesis.schemas.advised import AdvisedAct

JOB = "the-job"
"""What a description without a name is called."""


class NoAdvisorError(NemesisError):
    """What the advisor needs is not installed."""

    exit_code = 3


def advise(
    what: Annotated[str, typer.Argument(metavar="'SPEC'", help="TP8_NVL18+PP4_IB2")],
    *,
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file, or the name of a shape.")
    ] = None,
    model: ModelOption = "",
    gpus: GpusOption = 0,
    taken: TakenOption = None,
    setting: SettingOption = None,
    settings: Annotated[
        Path | None, typer.Option(help="What of the advisor's settings is to differ.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Ask a language model about a description; what it proposes must pass the rules.

    Without a key only the rules answer, and it says so. Exit status: 0 answered, 1 the model gave
    no whole answer, 2 a mistake in what was typed, 4 others can read the key.
    """
    if cluster is None:
        raise BadSettingError("no cluster is named", hint="--cluster superpod-h100, or a file")
    from nemesis.actors.advisor.plain import plain_words
    from nemesis.actors.advisor.settings import settings_of as advisor_settings

    told = advisor_settings(settings)
    now = _situation(what, cluster, model, gpus, taken or [], setting or [])
    words = plain_words(now, JOB)
    key, why_not = _key(told)
    advice = run_on_loop(_ask(told, key, now)) if key else None
    if json:
        print_json({"rules": words, "no_advice": why_not} | (_document(advice, told.model)))
    else:
        for line in words:
            say(line)
        if why_not:
            say(why_not)
        if advice is not None:
            _print(advice, told.model)
    if advice is not None and advice.ended != "answered":
        raise typer.Exit(1)


def _situation(
    what: str, cluster: Path, model: str, gpus: int, taken: list[str], setting: list[str]
) -> "Situation":
    """The one job that a description makes, on a cluster of which some nodes are taken."""
    from msgspec.structs import replace

    from nemesis.processors.advice.situation import Situation, Standing, case_of
    from nemesis.processors.parallelism.check import check

    job = Standing(
        job=JOB,
        spec=what,
        stage="waiting",
        gpu_count=gpus,
        model=model_of(model) if model else None,
        settings=settings_of(setting),
    )
    pool = pool_of(cluster, taken)
    if check(case_of(job, pool)).outcome == "rejected":
        job = replace(job, stage="rejected")
    return Situation(pool=pool, jobs=(job,))


def _key(settings: "Settings") -> "tuple[Key | None, str]":
    """The key, or why there is none."""
    from nemesis.actors.advisor.key import NoKeyError, key_of

    try:
        return key_of(settings.key_file), ""
    except NoKeyError as error:
        return None, f"{error.message}; {error.hint}" if error.hint else error.message


async def _ask(settings: "Settings", key: "Key", now: "Situation") -> "Advice":
    try:
        from nemesis.actors.advisor.advice import advise as asked
        from nemesis.actors.advisor.advice import model_of as advisor
    except ImportError as error:
        raise NoAdvisorError(
            f"the advisor needs {error.name}, which is not installed",
            hint="pip install 'nemesis-gpu[advisor]'",
        ) from error
    from nemesis.actors.advisor.desk import Desk

    async with advisor(settings, key) as model:
        return await asked(model, settings, Desk(now, JOB))


def _document(advice: "Advice | None", model: str) -> dict[str, Any]:
    if advice is None:
        return {"advice": None}
    meter = advice.meter
    return {
        "advice": {
            "ended": advice.ended,
            "limit": advice.limit,
            "text": advice.text,
            "acts": advice.acts,
            "calls": advice.calls,
            "model": model,
            "requests": meter.requests,
            "tokens_in": meter.tokens_in,
            "tokens_out": meter.tokens_out,
            "cost_microusd": meter.cost_microusd,
        }
    }


def _print(advice: "Advice", model: str) -> None:
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
