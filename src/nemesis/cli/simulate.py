"""`nemesis simulate`: a simulated cluster on a log that runs already."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, CredsOption, ServerOption
from nemesis.cli.interrupts import run_until_told
from nemesis.cli.output import say

if TYPE_CHECKING:
    from nemesis.sim.truth.ledger import Truth


def simulate(
    *,
    scenario: Annotated[
        str, typer.Option(help="What breaks: a name of `nemesis demo --list`, or a .toml file.")
    ] = "gpu-off-bus",
    every: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which it breaks again; 0: once.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Draws the targets and every reading.")] = 7,
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file in place of the built-in one.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    credentials: CredsOption = None,
) -> None:
    """Let a simulated cluster train on a log that runs, and break it. Ctrl-C ends it.

    For services that run apart, as with `docker compose up`; `nemesis demo` starts everything
    itself. Needs the seeds of the simulated nodes, of sim and of operator, and changes that log:
    it submits a job and, where there is no policy yet, applies one that acts. Prints its ledger.
    Exit 4: nodes of these names speak already.
    """
    import logging
    import os

    import msgspec

    from nemesis.schemas.errors import NemesisError
    from nemesis.sim import attached
    from nemesis.sim.faults.scenario import scenario_named
    from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster
    from nemesis.streams import pulse
    from nemesis.streams.contexts import find
    from nemesis.streams.server import state_folder

    described = load_cluster(cluster or DEFAULT)
    target = find(server=server or None, cell=cell, credentials_folder=credentials)
    seeds = target.credentials_folder
    missing = attached.missing_seeds(seeds, described) if seeds else ["operator", "sim"]
    if missing:
        raise NemesisError(
            f"no seed of {', '.join(missing[:3])}{' and more' if missing[3:] else ''} in {seeds}",
            hint="make them with `nemesis credentials --nodes n001,... --switches leaf01,...`",
        )
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    folder = state_folder(cell)
    options = attached.Attached(
        cluster=described,
        scenario=scenario_named(scenario),
        target=target,
        folder=folder / "agents",
        seed=seed,
        every_s=every,
    )

    def on_truth(entry: "Truth") -> None:
        say(f"ledger {msgspec.json.encode(entry).decode()}")

    def on_behind() -> None:
        logging.getLogger(__name__).warning("this machine does not keep up with the simulation")

    async def run() -> None:
        work = attached.run(options, on_truth, on_behind)
        await pulse.beside(work, pulse.pulses_folder(folder), "simulator", lambda: True)

    run_until_told(run())
