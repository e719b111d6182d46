"""`nemesis score`: what NEMESIS said in a run, against what was really broken in it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.output import JsonOption
from nemesis.cli.reports import RunBar, ended_with, show

if TYPE_CHECKING:
    from nemesis.sim.truth.scored import ScoredRun


def score(
    run: Annotated[
        Path,
        typer.Argument(
            help="A recording with its ledger beside it, or a folder of such or of runs."
        ),
    ],
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger, where it does not lie beside the recording.")
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help="The parameters that count today; default: the release's.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Score runs by their ledgers: rates, wrong blame, times, confusion, calibration.

    Simulated runs alone have a ledger: of a real one nobody knows the truth. Exit status: 0 scored;
    1 the score is void, because the parameters have changed since, the share of attributable
    faults lies outside its bounds, or a recording is damaged; 2 no run, or a ledger that cannot be
    read; 4 runs that were made with different parameters.
    """
    from nemesis.sim.params import DEFAULT, load_params
    from nemesis.sim.truth.suites import suites

    runs = _scored(run, ledger)
    void = ""
    assumed = load_params(params or DEFAULT)
    of_suite = {each.name: each.assumed(assumed).sha256 for each in suites()}
    for each in runs:
        today = of_suite.get(each.suite, assumed.sha256)
        if each.params_sha256 != today:
            void = f"made with parameters {each.params_sha256[:12]}, today they are {today[:12]}"
            break
    raise typer.Exit(ended_with(show(runs, json=json, void=void), void=void))


def _scored(run: Path, ledger: Path | None) -> "list[ScoredRun]":
    from nemesis.sim.recorded import read_pair, recordings_in
    from nemesis.sim.truth.ledger_file import BadLedgerError
    from nemesis.sim.truth.scored import ScoredRun, read_scored, scored

    if not run.exists():
        raise BadLedgerError(
            f"{run}: no such file or folder, expected a recording or a folder of runs",
            hint="`nemesis suite run NAME` says where its runs are kept",
        )
    if not run.is_dir():
        return [scored(*read_pair(run, ledger))]
    recordings = recordings_in(run)
    if not recordings:
        kept = read_scored(run)
        if not kept:
            raise BadLedgerError(
                f"{run}: no run, expected NAME.ndjson.zst with NAME.ledger.ndjson beside it",
                hint=_where_runs_are(run),
            )
        return kept
    found: list[ScoredRun] = []
    with RunBar("scoring", len(recordings)) as bar:
        for each in recordings:
            found.append(scored(*read_pair(each)))
            bar.advance()
    return found


def _where_runs_are(folder: Path) -> str:
    """`nemesis suite run --out FOLDER` makes a folder in it for each suite: one is scored."""
    suites = [path for path in sorted(folder.iterdir()) if any(path.glob("*.json"))]
    if suites:
        return "runs are kept in " + ", ".join(map(str, suites[:3])) + ": name one of these"
    return "`nemesis suite run NAME --keep` and `nemesis sim --record` make such"
