"""`nemesis demo`: a simulated cluster breaks, NEMESIS recovers it, the ledger keeps the score."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nemesis.cli.demo_train import train
from nemesis.cli.interrupts import run_on_loop

if TYPE_CHECKING:
    from nemesis.sim.cell import Options
    from nemesis.sim.run import Outcome


class DemoMode(StrEnum):
    """What a demo's policy may do."""

    SHADOW = "shadow"
    APPROVE = "approve"
    ACT = "act"


demo = typer.Typer(invoke_without_command=True, help="Break a cluster and watch it recover.")
demo.command()(train)


@demo.callback()
def simulated(
    context: typer.Context,
    scenario: str = typer.Option(
        "gpu-off-bus", help="What breaks: a name of `--list`, or a file ending in .toml."
    ),
    seed: int = typer.Option(7, min=0, help="Draws the target and every reading."),
    speed: float = typer.Option(1.0, min=0.1, max=10.0, help="Simulated seconds in a real one."),
    copies: int = typer.Option(1, min=1, max=4, help="Of the processors and of the actor."),
    without: list[str] = typer.Option(
        [],
        help="Of attribution, ecc_model, ecc_rules, goodput, healer, incident, intake, scheduler, "
        "job-actor, archivist.",
    ),
    mode: DemoMode = typer.Option(DemoMode.ACT, help="Of the policy; approve waits for you."),
    duration: float = typer.Option(0.0, min=0.0, help="Simulated seconds; 0: until it is over."),
    cluster: Path | None = typer.Option(None, help="A cluster file in place of the built-in one."),
    ledger: Path | None = typer.Option(
        None, help="Write what was really broken, for `nemesis score` beside a recording."
    ),
    follow: bool = typer.Option(False, "--follow", help="After the score, go on until Ctrl-C."),
    list_: bool = typer.Option(False, "--list", help="Name the scenarios and leave."),
    json: bool = typer.Option(False, "--json", help="One JSON document in place of the story."),
) -> None:
    """Break a simulated cluster and watch NEMESIS recover it, in about half a minute.

    Starts a cell of its own, named demo, that is empty at each start and ends with the command.
    Exits with 0 when every fault was found and answered, nothing else was blamed and what the
    scenario expects of the run holds; else with 1.
    """
    if context.invoked_subcommand:
        return
    from nemesis.sim.faults.scenario import scenario_named, scenarios
    from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster

    described = load_cluster(cluster or DEFAULT)
    if list_:
        _list(scenarios(), json)
        return
    from nemesis.sim.cell import Options
    from nemesis.sim.outputs import expect_writable
    from nemesis.sim.params import load_params

    expect_writable(ledger, force=True)
    options = Options(
        cluster=described,
        scenario=scenario_named(scenario),
        seed=seed,
        speed=speed,
        copies=copies,
        without=_checked(without),
        duration_s=duration,
        follow=follow,
        mode=mode.value,
        weigh=load_params() if ledger else None,
        ledger=ledger,
    )
    os.umask(0o077)  # seeds, plans and journals are nobody else's
    outcome = _run_quietly(options) if json else _run_in_terminal(options)
    if json:
        import msgspec

        typer.echo(msgspec.json.encode(_document(options, outcome)).decode())
    if not outcome.score.passed:
        raise typer.Exit(1)


def _checked(without: list[str]) -> tuple[str, ...]:
    from nemesis.sim.cell import PARTS

    for part in without:
        if part not in PARTS:
            raise typer.BadParameter(f"no part {part!r}, expected one of: {', '.join(PARTS)}")
    return tuple(without)


def _run_quietly(options: "Options") -> "Outcome":

    from nemesis.sim.run import run

    return run_on_loop(run(options, lambda lines: None, lambda standing: None))


def _run_in_terminal(options: "Options") -> "Outcome":

    from rich.console import Console
    from rich.text import Text

    from nemesis.sim.run import run
    from nemesis.sim.show import Line, opening

    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal  # a file has no width

    def emit(lines: list[Line]) -> None:
        for line in lines:
            console.print(line.wrapped() if console.is_terminal else line.flat())

    for text in opening(
        options.cluster,
        options.scenario,
        seed=options.seed,
        speed=options.speed,
        mode=options.mode,
    ):
        console.print(text)
    for part in options.without:
        console.print(Text(f"without {part}: it is not started", "bold red"))
    if not console.is_terminal:
        return run_on_loop(run(options, emit, lambda standing: None))
    with console.status("starting server, processors and agents") as status:
        return run_on_loop(run(options, emit, status.update))


def _list(scenarios: tuple[Any, ...], json: bool) -> None:
    import msgspec

    if json:
        typer.echo(msgspec.json.encode([msgspec.to_builtins(each) for each in scenarios]).decode())
        return
    for each in scenarios:
        typer.echo(f"{each.name:<18} {each.title}")


def _document(options: "Options", outcome: "Outcome") -> dict[str, Any]:
    """What a run was, for programs; times in ns are simulated."""
    return {
        "scenario": options.scenario.name,
        "seed": options.seed,
        "speed": options.speed,
        "without": options.without,
        "passed": outcome.score.passed,
        "score": outcome.score,
        "ledger": outcome.truths,
        "facts": [
            {"seq": fact.seq, "fact": fact.kind, "data": fact.data}
            for fact in outcome.facts
            if fact.kind != "log_measured"
        ],
        "simulated_from_ns": outcome.start_ns,
        "ready_s": round(outcome.ready_s, 3),
        "wall_s": round(outcome.wall_s, 3),
        "part_restart_counts": outcome.part_restart_counts,
        "machine_too_slow": outcome.is_behind,
    }
