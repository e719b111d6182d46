"""A calm stretch passed at once tells what looking again and again tells, byte for byte."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.facts import Record, encode_observation
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.offline import START_NS
from nemesis.sim.offline_log import OfflineLog
from nemesis.sim.operator import beginning
from nemesis.sim.params import load_params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import told
from nemesis.sim.truth.drawn import Drawn, draw
from nemesis.sim.truth.suites import suite_named

QUANTUM_NS = 200_000_000
UNTIL_NS = START_NS + 90_000_000_000

Told = tuple[int, bytes]


def simulated(drawn: Drawn, seed: int, folder: Path) -> Simulation:
    scenario = drawn.scenario
    faults = plan_faults(drawn.cluster, scenario.faults, seed, lasts_s=scenario.duration_s)
    return Simulation(
        drawn.cluster,
        faults,
        seed=seed,
        folder=folder,
        start_ns=START_NS,
        defects=drawn.defects,
    )


def passing(simulation: Simulation, period_ns: int) -> Iterator[Told]:
    """What is told, with stretches of so long; 0: none."""
    now_ns = START_NS
    while now_ns < UNTIL_NS:
        until_ns = simulation.calm_until_ns(min(UNTIL_NS, now_ns + period_ns))
        until_ns -= (until_ns - START_NS) % QUANTUM_NS
        if until_ns > now_ns:
            now_ns = until_ns
            for at_ns, fact in simulation.pass_calm(until_ns, QUANTUM_NS):
                yield at_ns, encode_observation(fact)
        else:
            now_ns += QUANTUM_NS
            simulation.advance(now_ns, lambda node: True)
            for fact in told(simulation, now_ns):
                yield now_ns, encode_observation(fact)


@pytest.mark.parametrize(("suite", "seed"), [("quiet", 1), ("quiet", 2), ("all-classes", 4)])
def test_a_calm_stretch_passed_at_once_tells_the_same(suite: str, seed: int) -> None:
    drawn = draw(suite_named(suite), seed, load_params())
    period_ns = drawn.cluster.cluster.sample_period_ms * 1_000_000
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        looked = list(passing(simulated(drawn, seed, Path(one)), 0))
        at_once = list(passing(simulated(drawn, seed, Path(other)), period_ns))
    assert len(looked) > 100
    assert at_once == looked


@pytest.mark.parametrize("seed", [2, 3])
def test_a_log_that_passes_calm_stretches_at_once_holds_the_same(seed: int, tmp_path: Path) -> None:
    looked, at_once = (logged(seed, tmp_path / name, name == "calm") for name in ("all", "calm"))
    assert at_once == looked
    assert {"tick", "sample", "fabric"} <= {record.subject.rsplit(".", 1)[1] for record in looked}


def logged(seed: int, folder: Path, at_once: bool) -> list[Record]:
    drawn = draw(suite_named("quiet"), seed, load_params())
    period_ns = drawn.cluster.cluster.sample_period_ms * 1_000_000
    records: list[Record] = []
    simulation = simulated(drawn, seed, folder)
    log = OfflineLog(CATALOGUE, simulation, START_NS, keep=records.append)
    log.begin(beginning(drawn.cluster, CATALOGUE, START_NS))
    while log.now_ns < UNTIL_NS:
        limit_ns = min(UNTIL_NS, log.now_ns + period_ns)
        if not (at_once and log.pass_calm(limit_ns, QUANTUM_NS)):
            log.look(log.now_ns + QUANTUM_NS)
    return records


def test_a_cluster_is_calm_from_its_first_steps_on_until_something_strikes(tmp_path: Path) -> None:
    drawn = draw(suite_named("quiet"), 3, load_params())
    simulation = simulated(drawn, 3, tmp_path)
    struck_ns = START_NS + min(
        fault.began_ns + each.after_ns for fault in simulation.faults for each in fault.symptoms
    )
    now_ns, calm_ns = START_NS, [simulation.calm_until_ns(UNTIL_NS)]
    while now_ns < struck_ns - QUANTUM_NS:
        now_ns += QUANTUM_NS
        simulation.advance(now_ns, lambda node: True)
        list(told(simulation, now_ns))
        calm_ns.append(simulation.calm_until_ns(UNTIL_NS))
    assert calm_ns[0] == START_NS, "no rank has made a step"
    assert max(calm_ns) == min(UNTIL_NS, struck_ns - 1)
