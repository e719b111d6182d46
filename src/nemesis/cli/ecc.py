"""`nemesis ecc`: train the model that foresees failures of GPUs, and say how good it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.sim.prediction.judge import Named
    from nemesis.sim.prediction.precursors import Mix

ecc = typer.Typer(no_args_is_help=True, help="Train and judge the failure model.")


@ecc.callback()
def _group() -> None:
    """Train and judge the failure model."""


@ecc.command()
def train(
    folder: Annotated[Path, typer.Argument(help="Where the run is kept; taken up if it is there.")],
    mix: Annotated[str, typer.Option(help="honest, or seed: every failure announces itself.")] = (
        "honest"
    ),
    network: Annotated[
        str, typer.Option(help="tcn: the model; gru: a baseline that learns as it does.")
    ] = "tcn",
    channels: Annotated[int, typer.Option(min=4, max=64, help="Width of the network.")] = 32,
    batches: Annotated[int, typer.Option(min=3, help="At most.")] = 2_700,
    lives: Annotated[int, typer.Option(min=1, help="Of every kind.")] = 120,
    disturbed: Annotated[
        float, typer.Option(min=0, max=1, help="Share of cuts shown as of another family.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=1, help="Of weights and batches.")] = 1,
    json: JsonOption = False,
) -> None:
    """Train the failure model on simulated GPUs (needs torch, an extra: `train`).

    The run can be interrupted and taken up by the same command; it ends with `model.msgpack` and
    a model card in the folder. Exit status: 0 trained; 2 no torch, or an option that cannot be.
    """
    from nemesis.sim.prediction.precursors import load_precursors
    from nemesis.sim.prediction.train import CARD
    from nemesis.sim.prediction.train import train as run
    from nemesis.sim.prediction.training import Kind, Plan

    plan = Plan(
        network=_one_of(network, Kind, "--network"),
        channels=channels,
        batches=batches,
        exact_from=batches * 2 // 3,
        disturbed=disturbed,
        seed=seed,
    )
    _, card = run(
        folder,
        plan,
        load_precursors(),
        mix=_mix(mix),
        each=lives,
        quiet=2 * lives,
        told=lambda line: typer.echo(line, err=True),
    )
    if json:
        print_json(card)
    else:
        say(f"loss {card.loss:.5f} after {card.batches} batches; {folder / CARD} says how")


@ecc.command()
def calibrate(
    model: Annotated[Path, typer.Argument(help="model.msgpack of a run.")],
    folder: Annotated[Path, typer.Argument(help="Where to write it anew, with its card.")],
    lives: Annotated[int, typer.Option(min=1, help="Of every kind.")] = 240,
    quiet: Annotated[int, typer.Option(min=1, help="Lives in which nothing happens.")] = 2_400,
    json: JsonOption = False,
) -> None:
    """Fit the chances of a trained model anew, to more simulated GPUs; its weights stay.

    It takes a few minutes and no torch. Exit status: 0 written; 2 not a model of `train`.
    """
    from nemesis.sim.prediction.precursors import load_precursors
    from nemesis.sim.prediction.train import MODEL
    from nemesis.sim.prediction.train import calibrate as run

    _, card = run(
        _model(model).model,
        folder,
        load_precursors(),
        each=lives,
        quiet=quiet,
        told=lambda line: typer.echo(line, err=True),
    )
    if json:
        print_json(card)
    else:
        say(f"calibrated on {lives} lives of every kind and {quiet} quiet ones: {folder / MODEL}")


def _one_of(name: str, names: Any, option: str) -> Any:
    import msgspec

    try:
        return msgspec.convert(name, names)
    except msgspec.ValidationError as error:
        expected = " or ".join(get_args(names))
        raise typer.BadParameter(f"{name!r}: expected {expected}", param_hint=option) from error


def _mix(name: str) -> "Mix":
    from nemesis.sim.prediction.precursors import Mix

    found: Mix = _one_of(name, Mix, "--mix")
    return found


@ecc.command()
def repeats(
    trace: Annotated[Path, typer.Argument(help="fault_trace.json of InfiniteHBD-Trace.")],
    json: JsonOption = False,
) -> None:
    """The hazard rule on real faults: how likely is another uncorrected error of the same node?

    Exit status: 0 counted; 2 not the trace.
    """
    import msgspec

    from nemesis.sim.prediction.repeats import WINDOWS_DAYS, double_bit_errors, intervals
    from nemesis.sim.prediction.repeats import repeats as count

    errors = double_bit_errors(trace)
    rows: list[dict[str, Any]] = []
    for days in WINDOWS_DAYS:
        each = count(errors, days)
        row: dict[str, Any] = msgspec.to_builtins(each)
        for name, between in intervals(errors, days).items():
            row |= {name: getattr(each, name), f"{name}_interval": between}
        rows.append(row)
    if json:
        print_json(rows)
        return
    for row in rows:
        precision, recall = (_percent(row, name) for name in ("precision", "recall"))
        say(
            f"within {row['window_days']} days another one on {row['right_count']} of "
            f"{row['alarms_count']} nodes, {precision}, foreseeing {recall} of all; on any node "
            f"{100 * row['base']:.1f} %"
        )


def _percent(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{100 * row[name]:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


_Model = Annotated[Path | None, typer.Option("--model", help="model.msgpack; else the shipped.")]


@ecc.command()
def evaluate(
    log: Annotated[
        Path | None, typer.Argument(help="A recording; none: simulated GPUs that it never saw.")
    ] = None,
    model: _Model = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The run's truth; else later Xids are the labels.")
    ] = None,
    mix: Annotated[str, typer.Option(help="honest, or seed: every failure announces itself.")] = (
        "honest"
    ),
    lives: Annotated[int, typer.Option(min=1, help="Of every kind, in each split.")] = 40,
    quiet: Annotated[int, typer.Option(min=1, help="Lives in which nothing happens.")] = 400,
    seed: Annotated[int, typer.Option(min=2, help="Of the lives; 0 and 1 were learnt from.")] = 2,
    gru: Annotated[Path | None, typer.Option(help="Folder of `train --network gru`.")] = None,
    missed: Annotated[
        float | None,
        typer.Option(help="Node-hours that a missed failure costs; else the policy's."),
    ] = None,
    needless: Annotated[float | None, typer.Option(help="And a move that was not needed.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots here.")] = None,
    json: JsonOption = False,
) -> None:
    """Judge a model on simulated GPUs that it never saw, or on a recorded log, beside baselines.

    On simulated ones it takes minutes, most of them for drawing them; each step is told.

    Exit status: 0 judged; 2 no model or log, or an option that cannot be.
    """
    from msgspec.structs import replace

    from nemesis.cli.ecc_words import told_of
    from nemesis.sim.prediction.alarms import Costs
    from nemesis.sim.prediction.judge import Asked, judge

    given = {"missed": missed, "needless": needless}
    asked = Asked(
        mix=_mix(mix),
        each=lives,
        quiet=quiet,
        seed=seed,
        gru=gru,
        log=log,
        ledger=ledger,
        costs=replace(Costs(), **{name: own for name, own in given.items() if own is not None}),
    )
    found = judge(_model(model), asked, told=lambda line: typer.echo(line, err=True))
    if html is not None:
        from nemesis.sim.prediction.page import written

        html.write_text(written(found), encoding="utf-8")
    if json:
        print_json(found)
        return
    for line in told_of(found):
        say(line)
    if html is not None:
        say(f"wrote {html}")


@ecc.command()
def explain(
    log: Annotated[Path | None, typer.Argument(help="A recording; none: a simulated GPU.")] = None,
    model: _Model = None,
    gpu: Annotated[str, typer.Option(help="Of the log: its component, as gpu/n1/0000:1b:00.")] = "",
    kind: Annotated[str, typer.Option(help="Of a simulated GPU: its kind of life.")] = "hbm-ramp",
    mix: Annotated[str, typer.Option(help="honest or seed.")] = "honest",
    seed: Annotated[int, typer.Option(min=2, help="Of the simulated GPU.")] = 2,
    minutes: Annotated[
        int | None, typer.Option(help="From the first step; else where the chance is highest.")
    ] = None,
    head: Annotated[int, typer.Option(min=0, max=3, help="Horizon: 0.5, 1, 2 or 3 h.")] = 2,
    json: JsonOption = False,
) -> None:
    """Take one score apart: which channels and which minutes moved it, by exact occlusion.

    Exit status: 0 explained; 2 no such GPU or time, no model, no log.
    """
    from nemesis.cli.ecc_words import told_of_score
    from nemesis.sim.prediction.judge import Point, score_of

    point = Point(log=log, gpu=gpu, kind=kind, mix=_mix(mix), seed=seed, minutes=minutes, head=head)
    found = score_of(_model(model), point)
    if json:
        print_json(found)
        return
    for line in told_of_score(found):
        say(line)


def _model(path: Path | None) -> "Named":
    from nemesis.sim.prediction.judge import named

    if path is not None and not path.is_file():
        raise typer.BadParameter(f"{path}: no such file", param_hint="--model")
    return named(path)
