"""A scenario in virtual time through the real processors: no server, no wire, no waiting.

The same simulation, encoders, folds and rules of the actor as on the wire; the log is a list. A
minute of a cluster takes a second or two, and equal arguments give an equal log, byte for byte.
What it cannot show: latency, restarts, what a server refuses. It is the tool to try rules with:

    run = run_offline(load_cluster(), scenario_named("nic-flap"), seed=7, folder=tmp_path)
    run.score, run.facts, run.records
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from nemesis.processors.catalogue import CATALOGUE, Catalogue
from nemesis.processors.fold import Fold, Input
from nemesis.replay.verify import Report, plans_of, verify_log
from nemesis.schemas.done import Attempt
from nemesis.schemas.facts import (
    Fact,
    Record,
    encode_conclusion,
    encode_observation,
)
from nemesis.sim.dry_run import weighed
from nemesis.sim.ending import Ending, judged
from nemesis.sim.events import fact_of
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.hands import NAME, Hands
from nemesis.sim.operator import beginning, messages, submissions
from nemesis.sim.params import Params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import message_of, told
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import LedgerOpened, MembershipFormed, Truth
from nemesis.sim.truth.ledger_file import Ledger, ledger_of
from nemesis.sim.truth.score import Score
from nemesis.streams.ticker import TICK_SUBJECT, tick_of

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
        submissions(cluster, START_NS),
        faults,
        seed=seed,
        folder=folder,
        start_ns=START_NS,
        params=weigh,
    )
    simulation.afflict(defects)
    log = _Log(catalogue, simulation)
    log.put(TICK_SUBJECT, encode_observation(tick_of(START_NS)))
    for subject, payload in messages(beginning(cluster, catalogue, START_NS), START_NS):
        log.put(subject, payload)
    truths: list[Truth] = []
    ending = Ending(scenario, faults)
    passed_ns = 0
    while not ending.is_over(passed_ns, truths, log.facts, simulation.standing()):
        passed_ns += quantum_ns
        log.now_ns = START_NS + passed_ns
        truths += simulation.advance(log.now_ns, lambda node: True)
        if passed_ns % SECOND_NS == 0:
            log.put(TICK_SUBJECT, encode_observation(tick_of(log.now_ns)))
        log.observe(simulation)
        log.hands.act(log.now_ns)
    standing = simulation.standing()
    return OfflineRun(
        score=judged(scenario, truths, log.facts, standing),
        truths=tuple(truths),
        facts=tuple(log.facts),
        records=tuple(log.records),
        passed_ns=passed_ns,
        standing=tuple(standing),
    )


class _Log:
    """A log in memory with the processors and the actor on it: what they say is written at once."""

    def __init__(self, catalogue: Catalogue, simulation: Simulation) -> None:
        self.now_ns = START_NS
        self.records: Final[list[Record]] = []
        self.facts: Final[list[Fact]] = []
        self.hands: Final = Hands(simulation, self._write)
        self._folds: Final = [Fold(versions[max(versions)]()) for versions in catalogue.values()]
        self._waiting: Final[deque[tuple[str, bytes]]] = deque()
        self._writes_count = 0
        self._stepping = False

    def put(self, subject: str, payload: bytes) -> None:
        """Append a message, and everything that follows from it."""
        self._waiting.append((subject, payload))
        if self._stepping:
            return
        self._stepping = True
        while self._waiting:
            subject, payload = self._waiting.popleft()
            record = Record(len(self.records) + 1, subject, self.now_ns, payload)
            self.records.append(record)
            item = Input(record)
            for fold in self._folds:
                self._waiting.extend((each.subject, each.payload) for each in fold.step(item))
            if item.space == "events" or item.token == "tick":
                self.hands.take(item)
            fact = fact_of(record, self.now_ns) if item.space == "events" else None
            if fact is not None:
                self.facts.append(fact)
        self._stepping = False

    def observe(self, simulation: Simulation) -> None:
        """Carry away what agents and collectors saw."""
        for observation in told(simulation, self.now_ns):
            message = message_of(observation)
            self.put(message.subject, message.payload)

    def _write(self, data: Attempt) -> None:
        self._writes_count += 1
        subject, payload = encode_conclusion(
            id=f"{NAME}/{self._writes_count}",
            source="/actors/job",
            at_ns=data.at_ns,
            data=data,
            key=data.decision,
            job=data.job,
        )
        self.put(subject, payload)
