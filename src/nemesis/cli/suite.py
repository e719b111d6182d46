"""`nemesis suite`: named lists of simulated incidents, run offline and scored."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.reports import RunBar, ended_with, show

if TYPE_CHECKING:
    from nemesis.sim.suite import Options
    from nemesis.sim.truth.scored import ScoredRun

suite = typer.Typer(no_args_is_help=True, help="Score NEMESIS on named lists of incidents.")
"""The commands of `nemesis suite`."""


@suite.command("list")
def list_(json: JsonOption = False) -> None:
    """Name the suites: what each breaks, and whether it is held out."""
    from nemesis.sim.truth.suites import suites

    every = suites()
    if json:
        print_json(every)
        return
    for each in every:
        marked = "held out" if each.held_out else ""
        say(f"{each.name:<26} {each.seeds_count:>4} runs  {marked:<9} {each.title}")


@suite.command("run")
def run(
    name: Annotated[str, typer.Argument(help="A name of `nemesis suite list`, or a .toml file.")],
    params: Annotated[
        Path | None, typer.Option(help="Another file of the simulator's parameters.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, max=100_000, help="Runs; 0: as many as the suite says.")
    ] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a CPU.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Keep the runs under this folder, not with the cells.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep recording and ledger of each run as well.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run a suite and print its score. What is done already is not run again.

    Everything is simulated in virtual time, with the real processors. Exit status: 0 whatever the
    score; 1 where the share of attributable faults lies outside its bounds; 2 no such suite.
    """
    from nemesis.sim.params import DEFAULT
    from nemesis.sim.suite import Options, folder_of
    from nemesis.sim.truth.suites import suite_named
    from nemesis.streams.server import state_folder

    chosen = suite_named(name)
    under = out or state_folder("suites")
    options = Options(
        suite=chosen,
        folder=folder_of(chosen, params or DEFAULT, under),
        seeds_count=seeds or chosen.seeds_count,
        params=params or DEFAULT,
        keep=keep,
    )
    runs = _run(options, jobs or os.cpu_count() or 1)
    document = show(runs, json=json, folder=options.folder)
    raise typer.Exit(ended_with(document))


def _run(options: "Options", jobs_count: int) -> "list[ScoredRun]":
    from nemesis.sim.suite import run_suite

    runs = []
    with RunBar(options.suite.name, options.seeds_count) as bar:
        for each in run_suite(options, jobs_count=jobs_count):
            runs.append(each)
            bar.advance()
    return runs
