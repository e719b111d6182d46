"""A scenario in virtual time through the real processors: no server, no wire, no waiting.

The same simulation, encoders, folds and rules of the actor as on the wire; the log is a list. A
minute of a cluster takes a second or two, and equal arguments give an equal log, byte for byte.
What it cannot show: latency, restarts, what a server refuses. It is the tool to try rules with:

    run = run_offline(load_cluster(), scenario_named("nic-flap"), seed=7, folder=tmp_path)
    run.score, run.facts, run.records
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from nemesis.processors.catalogue import CATALOGUE, Catalogue
from nemesis.replay.verify import Report, plans_of, verify_log
from nemesis.schemas.facts import (
    Fact,
    Record,
)
from nemesis.sim.dry_run import weighed
from nemesis.sim.ending import Ending, judged
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.offline_log import OfflineLog
from nemesis.sim.operator import beginning
from nemesis.sim.params import Params
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import LedgerOpened, MembershipFormed, Truth
from nemesis.sim.truth.ledger_file import Ledger, ledger_of
from nemesis.sim.truth.score import Score

START_NS: Final = 1_800_000_000_000_000_000
"""When every run begins: 2027-01-15."""
QUANTUM_NS: Final = 50_000_000
SECOND_NS: Final = 1_000_000_000


class OfflineRun(msgspec.Struct, kw_only=True, frozen=True):
    """What came of a run."""

    score: Score
    truths: tuple[Truth, ...]
    facts: tuple[Fact, ...]
    """Everything in the log but telemetry, in its order."""
    records: tuple[Record, ...]
    """The whole log."""
    passed_ns: int
    """How long it took, simulated."""
    standing: tuple[MembershipFormed, ...] = ()
    """How each job stood at the end."""

    @property
    def ended_ns(self) -> int:
        """When it ended, simulated time."""
        return START_NS + self.passed_ns

    def ledger(self, opened: LedgerOpened) -> Ledger:
        """What the run really was."""
        last = [each for each in self.standing if each not in self.truths]
        return ledger_of(opened, (*self.truths, *last), self.ended_ns)

    def replay(self, catalogue: Catalogue = CATALOGUE) -> Report:
        """Fold the log again, and compare every conclusion byte for byte."""
        plans = plans_of(self.records)
        return verify_log(self.records, plans, {}, lambda name, version: catalogue[name][version]())


def run_offline(
    cluster: Cluster,
    scenario: Scenario,
    *,
    seed: int,
    folder: Path,
    catalogue: Catalogue = CATALOGUE,
    quantum_ns: int = QUANTUM_NS,
    defects: Sequence[Symptom] = (),
    weigh: Params | None = None,
) -> OfflineRun:
    """Run a scenario to its end; agents keep their plans in `folder`, which must be empty.

    `quantum_ns`: how often agents look at their node; a second must be a multiple of it.
    `defects`: of the evidence; `weigh`: by these, say of each fault whether it is attributable, and
    simulate by them.

    Raises:
        BadScenarioError: a target that the cluster does not have.
    """
    faults = plan_faults(cluster, scenario.faults, seed, lasts_s=scenario.duration_s)
    if weigh is not None:
        faults = weighed(
            cluster,
            faults,
            defects,
            weigh,
            seed=seed,
            folder=folder / "dry-run",
            start_ns=START_NS,
            quantum_ns=quantum_ns,
        )
    simulation = Simulation(
        cluster,
        faults,
        seed=seed,
        folder=folder,
        start_ns=START_NS,
        defects=defects,
        params=weigh,
    )
    records: list[Record] = []
    log = OfflineLog(catalogue, simulation, START_NS, keep=records.append)
    log.begin(beginning(cluster, catalogue, START_NS))
    truths: list[Truth] = []
    ending = Ending(scenario, faults)
    while not ending.is_over(log.now_ns - START_NS, truths, log.facts, simulation.standing()):
        truths += log.look(log.now_ns + quantum_ns)
    standing = simulation.standing()
    return OfflineRun(
        score=judged(scenario, truths, log.facts, standing),
        truths=tuple(truths),
        facts=tuple(log.facts),
        records=tuple(records),
        passed_ns=log.now_ns - START_NS,
        standing=tuple(standing),
    )
