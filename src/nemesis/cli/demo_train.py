"""`nemesis demo train`: real ranks learn a real text, one is broken, and the rest goes on."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from nemesis.sim.train.run import Fault, Told
    from nemesis.sim.train.text import Text

CHOICES = ("kill:2@step40", "kill:0@step40", "stop:1@step40")


def train(
    *,
    fault: Annotated[
        str, typer.Option(help="KIND:RANK@stepN, kind kill or stop; asked for on a terminal.")
    ] = "",
    alone: Annotated[
        bool, typer.Option("--alone", help="Without the same under torchrun.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a small transformer on four processes, break one, and see the loss go on.

    Everything is real: ranks over gloo, a NATS server, decisions from the log, all in a cell of
    its own, demo-train, that ends with the command. Then the same fault under torchrun, which
    starts all ranks anew from a checkpoint. Needs torch: pip install 'nemesis-gpu\\[train]'.
    Exit status: 0 both runs came to their end.
    """
    import os

    from nemesis.actors.agent.job import torch_python
    from nemesis.actors.agent.store import expect_torch
    from nemesis.sim.train.run import fault_of
    from nemesis.sim.train.text import find_text

    expect_torch(torch_python())
    wanted = fault_of(fault or _chosen(asks=not json))
    text = find_text()
    os.umask(0o077)  # seeds and logs are nobody else's
    if json:
        runs = run_on_loop(_runs(wanted, text, lambda told: None, alone=alone))
        print_json(_document(wanted, text, runs))
        return
    _show(wanted, text, alone=alone)


def _chosen(*, asks: bool) -> str:
    import sys

    if not asks or not sys.stdin.isatty():
        return CHOICES[0]
    for number, each in enumerate(CHOICES, 1):
        typer.echo(f"{number}  {each}")
    said: str = typer.prompt("Which fault", default="1")
    return CHOICES[int(said) - 1] if said in {"1", "2", "3"} else said


async def _runs(fault: "Fault", text: "Text", look: Any, *, alone: bool) -> "list[Told]":
    from nemesis.sim.train.run import with_nemesis, with_torchrun

    runs = [await with_nemesis(fault, text, look)]
    if not alone:
        runs.append(await with_torchrun(fault, text, look))
    return runs


def _show(fault: "Fault", text: "Text", *, alone: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from nemesis.sim.train.cell import CELL
    from nemesis.sim.train.show import line_of, panel, table

    console = Console(highlight=False)
    console.print(
        f"4 processes learn {text.name} ({text.bytes_count:,} bytes, sha256 {text.sha256[:12]}); "
        f"then {fault}. The page shows it live: nemesis dashboard --cell {CELL}"
    )
    told_count: dict[str, int] = {}
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def look(told: "Told") -> None:
            shown = told_count.get(told.title, 0)
            for each in told.happenings[shown:]:
                live.console.print(line_of(each))
            told_count[told.title] = len(told.happenings)
            live.update(panel(told), refresh=console.is_terminal)

        runs = run_on_loop(_runs(fault, text, look, alone=alone))
    for told in runs:
        console.print(panel(told))
    console.print(table(runs))


def _document(fault: "Fault", text: "Text", runs: "list[Told]") -> dict[str, Any]:
    return {
        "fault": fault,
        "text": {"name": text.name, "sha256": text.sha256, "bytes": text.bytes_count},
        "measured": "here and now, with everything else that runs on this machine",
        "runs": [
            {
                "under": told.title,
                "cost": told.cost,
                "happenings": told.happenings,
                "losses": told.steps.losses(),
            }
            for told in runs
        ],
    }
