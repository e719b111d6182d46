"""What would follow if this broke? A scenario offline, with what was said of it and what held.

Nothing is started and nothing is asked of a real cluster: simulation, processors and the log live
in this process, in virtual time.
"""

import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from nemesis.sim.bundle import bundle_of
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.offline import START_NS, OfflineRun, run_offline
from nemesis.sim.params import Params
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.assertions import Held, held
from nemesis.sim.truth.defects import draw_defects, told
from nemesis.sim.truth.ledger_file import Ledger, opening
from nemesis.sim.truth.score import Score


class WhatIf(msgspec.Struct, kw_only=True, frozen=True):
    """What followed."""

    run: OfflineRun
    ledger: Ledger
    held: tuple[Held, ...]
    """The scenario's assertions."""

    @property
    def score(self) -> Score:
        """Against the ledger."""
        return self.run.score

    @property
    def concluded(self) -> dict[str, int]:
        """How often each conclusion was drawn."""
        return dict(sorted(Counter(each.kind for each in self.run.facts).items()))

    @property
    def holds(self) -> bool:
        """What was asserted; where nothing was, that everything was found and answered."""
        if self.held:
            return all(each.holds for each in self.held) and not self.score.broken
        return self.score.passed


def what_if(
    cluster: Cluster, scenario: Scenario, params: Params, *, seed: int, defects: bool = False
) -> WhatIf:
    """Run it; `defects`: with evidence lost, late or missing at the rates of the parameters.

    Raises:
        BadScenarioError: a target that the cluster does not have.
    """
    symptoms = _defects(cluster, scenario, params, seed) if defects else ()
    with tempfile.TemporaryDirectory() as plans:
        run = run_offline(
            cluster, scenario, seed=seed, folder=Path(plans), defects=symptoms, weigh=params
        )
    ledger = run.ledger(
        opening(
            cluster,
            scenario,
            seed=seed,
            start_ns=START_NS,
            params_sha256=params.sha256,
            defects=told(symptoms),
        )
    )
    real = [each for each in ledger.faults if each.components] or ledger.faults
    began_ns = min((each.began_ns for each in real), default=START_NS)
    onset_ns = min((each.at_ns for each in real), default=START_NS)
    return WhatIf(
        run=run,
        ledger=ledger,
        held=tuple(held(scenario.assertions, run.facts, began_ns=began_ns, onset_ns=onset_ns)),
    )


def leave_bundle(
    cluster: Cluster,
    scenario: Scenario,
    params: Params,
    folder: Path,
    *,
    seed: int,
    defects: bool = False,
) -> None:
    """Write what a person would have of the same incident, if NEMESIS had not been there.

    Raises:
        BadScenarioError: a target that the cluster does not have.
        FolderNotEmptyError: something is in the folder.
        CannotWriteError: the folder cannot be made, or the disk is full.
    """
    symptoms = _defects(cluster, scenario, params, seed) if defects else ()
    bundle_of(cluster, scenario, params, folder, seed=seed, start_ns=START_NS, defects=symptoms)


def _defects(
    cluster: Cluster, scenario: Scenario, params: Params, seed: int
) -> tuple[Symptom, ...]:
    strikes_s = min(each.after_s for each in scenario.faults)
    return draw_defects(cluster, params.defects, seed=seed, strikes_s=strikes_s)
