"""`nemesis ecc`: train the model that foresees failures of GPUs, and say how good it is."""

from pathlib import Path
from typing import Annotated

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
