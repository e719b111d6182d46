"""`nemesis ecc`: train the model that foresees failures of GPUs, and say how good it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
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
    from nemesis.sim.prediction.precursors import load_precursors
    from nemesis.sim.prediction.train import CARD
    from nemesis.sim.prediction.train import train as run
    from nemesis.sim.prediction.training import Plan

    plan = Plan(channels=channels, batches=batches, exact_from=batches * 2 // 3, seed=seed)
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


def _mix(name: str) -> "Mix":
    import msgspec

    from nemesis.sim.prediction.precursors import Mix

    try:
        known: Mix = msgspec.convert(name, Mix)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(
            f"{name!r}: expected honest or seed", param_hint="--mix"
        ) from error
    return known


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


@ecc.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="model.msgpack of a run.")],
    mix: Annotated[str, typer.Option(help="honest, or seed: every failure announces itself.")] = (
        "honest"
    ),
    lives: Annotated[int, typer.Option(min=1, help="Of every kind, in each split.")] = 20,
    seed: Annotated[int, typer.Option(min=2, help="Of the lives; 0 and 1 were learnt from.")] = 2,
    json: JsonOption = False,
) -> None:
    """Judge a model on simulated GPUs that it never saw, beside thresholds and simple models.

    Exit status: 0 judged; 2 not a model, or an option that cannot be.
    """
    from nemesis.processors.ecc_model.model import load_model
    from nemesis.sim.prediction.evaluation import evaluate as judge
    from nemesis.sim.prediction.precursors import load_precursors

    if not model.is_file():
        raise typer.BadParameter(f"{model}: no such file", param_hint="MODEL")
    found = judge(
        load_model(model.read_bytes()),
        load_precursors(),
        mix=_mix(mix),
        each=lives,
        quiet=5 * lives,
        seed=seed,
    )
    if json:
        print_json(found)
        return
    say(
        f"simulated, mix {found.mix}, {found.lives_count} lives; recall of failures is at most "
        f"{100 * found.recall_ceiling:.1f} %"
    )
    for each in found.figures:
        low, high = each.pr_auc_interval
        told = "".join(
            f"; precision {tier.wanted:.2f}: recall {100 * tier.recall:.1f} %"
            for tier in each.at_precision
        )
        say(
            f"{each.split:11}{each.scorer:11} PR-AUC {each.pr_auc:.4f} ({low:.4f} to {high:.4f}), "
            f"F1 {each.f1:.3f}{told}"
        )
