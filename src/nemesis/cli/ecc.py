"""`nemesis ecc`: train the model that foresees failures of GPUs, and say how good it is."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nemesis.cli.output import JsonOption, print_json, say

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
    channels: Annotated[int, typer.Option(min=4, max=64, help="Width of the network.")] = 32,
    batches: Annotated[int, typer.Option(min=3, help="At most.")] = 1_500,
    lives: Annotated[int, typer.Option(min=1, help="Of every kind.")] = 60,
    seed: Annotated[int, typer.Option(min=1, help="Of weights and batches.")] = 1,
    json: JsonOption = False,
) -> None:
    """Train the failure model on simulated GPUs (needs torch, an extra: `train`).

    The run can be interrupted and taken up by the same command; it ends with `model.msgpack` and
    a model card in the folder. Exit status: 0 trained; 2 no torch, or an option that cannot be.
    """
    import msgspec

    from nemesis.sim.prediction.precursors import Mix, load_precursors
    from nemesis.sim.prediction.train import CARD
    from nemesis.sim.prediction.train import train as run
    from nemesis.sim.prediction.training import Plan

    try:
        which: Mix = msgspec.convert(mix, Mix)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"{mix!r}: expected honest or seed", param_hint="--mix") from error
    plan = Plan(channels=channels, batches=batches, exact_from=batches * 2 // 3, seed=seed)
    _, card = run(
        folder,
        plan,
        load_precursors(),
        mix=which,
        each=lives,
        quiet=2 * lives,
        told=lambda line: typer.echo(line, err=True),
    )
    if json:
        print_json(card)
    else:
        say(f"loss {card.loss:.5f} after {card.batches} batches; {folder / CARD} says how")


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
