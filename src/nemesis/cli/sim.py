"""`nemesis sim`: what would follow if this broke, offline and in a second or two."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from nemesis.sim.faults.scenario import Scenario
    from nemesis.sim.faults.schedule import Span
    from nemesis.sim.topology.cluster import Cluster
    from nemesis.sim.what_if import WhatIf


def sim(
    *,
    scenario: Annotated[
        str, typer.Option(help="What breaks: a name of `nemesis demo --list`, or a .toml file.")
    ] = "",
    trace: Annotated[
        Path | None, typer.Option(help="In its place, a trace of real faults, replayed.")
    ] = None,
    rates: Annotated[
        str, typer.Option(help="In its place, faults as often as published, for example llama3.")
    ] = "",
    from_day: Annotated[float, typer.Option(min=0.0, help="Of the trace.")] = 0.0,
    days: Annotated[float, typer.Option(min=0.001, help="Of the trace, or at the rates.")] = 1.0,
    faster: Annotated[
        float, typer.Option(min=1.0, help="Press the time between faults together.")
    ] = 100.0,
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file in place of the built-in one.")
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help="Another file of the simulator's parameters.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the targets and every reading.")] = 7,
    defects: Annotated[
        bool, typer.Option("--defects", help="Lose evidence at the rates of the parameters.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="Write the ledger: what was really broken.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write the recording: NAME.ndjson.zst, or .ndjson.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write what a person would have of it: a folder for `nemesis triage`."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    json: JsonOption = False,
) -> None:
    """Break a simulated cluster offline and print what NEMESIS concludes.

    "Which of my alerts would fire if leaf 3 dropped?" Needs no server and waits for nothing: a
    minute of the cluster takes a second or two. `nemesis demo` shows the same in real time;
    `nemesis simulate` breaks a simulated cluster on a log that runs. Exit status: 0 what the
    scenario asserts holds, or, where it asserts nothing, everything was found and answered; 1 it
    does not; 2 a file that cannot be run.
    """
    from nemesis.sim.faults.schedule import Span
    from nemesis.sim.outputs import expect_writable
    from nemesis.sim.params import load_params
    from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster
    from nemesis.sim.what_if import leave_bundle, what_if

    if sum(map(bool, (scenario, trace, rates))) != 1:
        raise typer.BadParameter("expected one of --scenario, --trace and --rates")
    expect_writable(record, ledger, force=force)
    described = load_cluster(cluster or DEFAULT)
    span = Span(from_day=from_day, days=days, faster=faster)
    planned, skipped = _planned(described, scenario, span, trace=trace, rates=rates, seed=seed)
    assumed = load_params(params) if params else load_params()
    if bundle is not None:
        leave_bundle(described, planned, assumed, bundle, seed=seed, defects=defects)
    found = what_if(described, planned, assumed, seed=seed, defects=defects)
    _keep(found, record, ledger)
    if json:
        print_json(_document(found))
    else:
        _tell(described, planned, found)
        _tell_skipped(skipped)
    raise typer.Exit(0 if found.holds else 1)


def _planned(
    cluster: "Cluster", scenario: str, span: "Span", *, trace: Path | None, rates: str, seed: int
) -> "tuple[Scenario, dict[str, int]]":
    """What breaks, and how much of what was asked for no kind of fault stands for."""
    from nemesis.sim.faults.scenario import scenario_named
    from nemesis.sim.faults.schedule import scheduled

    if scenario:
        return scenario_named(scenario), {}
    schedule = scheduled(cluster, span, trace=trace, rates=rates, seed=seed)
    return schedule.scenario, dict(schedule.skipped)


def _tell_skipped(skipped: dict[str, int]) -> None:
    for what, count in sorted(skipped.items()):
        say(f"not simulated: {count} x {what}, no kind of fault stands for it")


def _keep(found: "WhatIf", record: Path | None, ledger: Path | None) -> None:
    from nemesis.sim.recorded import write_recording
    from nemesis.sim.truth.ledger_file import write_ledger

    if record is not None:
        write_recording(record, found.run.records, force=True)
    if ledger is not None:
        write_ledger(ledger, found.ledger)


def _tell(cluster: "Cluster", scenario: "Scenario", found: "WhatIf") -> None:
    """The story in the order of simulated time, then what held."""
    from nemesis.sim.show import Show

    opened = found.ledger.opened
    say(
        f"{cluster.cluster.name}: {opened.nodes_count} nodes, {opened.gpus_count} GPUs; scenario "
        f"{scenario.name}: {scenario.title}; seed {opened.seed}, parameters "
        f"{opened.params_sha256[:12]}; all simulated"
    )
    show = Show(cluster, opened.start_ns, cell="")
    told: list[tuple[int, int, Any]] = [(each.at_ns, 0, each) for each in found.ledger.truths]
    told += [(each.at_ns, 1, each) for each in found.run.facts]
    for _, is_fact, each in sorted(told, key=lambda entry: entry[:2]):
        for line in show.fact(each) if is_fact else show.truth(each):
            say(line.flat().plain)
    for fault in found.ledger.faults:
        if fault.attributable is not None:
            known = "names the culprit" if fault.attributable else "does not name the culprit"
            say(f"what the log was given of {fault.culprit} {known}")
    for line in show.score(found.score):
        say(line.flat().plain)
    counts = ", ".join(f"{name} {count}" for name, count in found.concluded.items())
    say(f"concluded: {counts}")
    for each in found.held:
        say(f"{'holds ' if each.holds else 'BROKEN'} {each.assertion} (found {each.count})")


def _document(found: "WhatIf") -> dict[str, Any]:
    return {
        "holds": found.holds,
        "assertions": found.held,
        "score": found.score,
        "concluded": found.concluded,
        "ledger": [found.ledger.opened, *found.ledger.truths, found.ledger.closed],
        "facts": [
            {"seq": fact.seq, "fact": fact.kind, "at_ns": fact.at_ns, "data": fact.data}
            for fact in found.run.facts
        ],
    }
