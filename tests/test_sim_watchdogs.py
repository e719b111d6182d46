"""Promises of watchdogs: who waits in vain says so aloud, and the ledger calls him innocent."""

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from nemesis.schemas.observed import LogLineWritten
from nemesis.sim.dry_run import weighed
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.jobs.watchdogs import LINES_PER_NODE_MAX
from nemesis.sim.params import load_params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import told
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.drawn import fault_of

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND


def cluster(timeout_s: float) -> Cluster:
    """Two nodes of eight, all in a job with this timeout."""
    job = replace(load_cluster().job, nodes=2, world_min=8, timeout_s=timeout_s)
    return replace(load_cluster(), jobs=(job,))


def hang(of: Cluster) -> list[Fault]:
    """A GPU's system processor hangs, and with it rank 11."""
    return plan_faults(of, [replace(fault_of("gsp-hang"), after_s=5.0, rank=11)], 1)


def said(folder: Path, of: Cluster, *, seconds: int) -> list[LogLineWritten]:
    simulation = Simulation(of, hang(of), seed=7, folder=folder, start_ns=START)
    seen: list[LogLineWritten] = []
    for second in range(1, seconds + 1):
        now_ns = START + second * SECOND
        simulation.advance(now_ns, lambda node: True)
        facts = told(simulation, now_ns)
        seen += [each for each in facts if isinstance(each, LogLineWritten)]
    return seen


def test_who_waits_in_vain_says_so_and_who_is_waited_for_does_not(tmp_path: Path) -> None:
    seen = said(tmp_path, cluster(10.0), seconds=90)
    caught = {each.rank for each in seen if "Watchdog caught collective" in each.text}
    assert caught == set(range(16)) - {11}
    assert not any(each.text.startswith("[rank") for each in seen)
    assert {each.source for each in seen} == {"torch"}
    assert min(each.at_ns for each in seen) >= START + 15 * SECOND


def test_an_agent_forwards_a_burst_and_drops_the_rest(tmp_path: Path) -> None:
    seen = said(tmp_path, cluster(10.0), seconds=40)
    counts = Counter(each.node for each in seen)
    assert len(counts) == 2
    assert max(counts.values()) <= LINES_PER_NODE_MAX


def test_before_the_timeout_nobody_says_anything(tmp_path: Path) -> None:
    assert said(tmp_path, cluster(600.0), seconds=60) == []


def test_victims_of_a_hang_that_speak_are_innocent_in_the_ledger(tmp_path: Path) -> None:
    of = cluster(10.0)
    (fault,) = weighed(
        of,
        hang(of),
        (),
        load_params(),
        seed=7,
        folder=tmp_path,
        start_ns=START,
        quantum_ns=SECOND,
    )
    loud = {f"rank/llama/{rank}" for rank in range(16) if rank != 11}
    assert loud <= set(fault.innocent)
    assert "rank/llama/11" not in fault.innocent
    assert loud <= {each.component for each in fault.chain}
    assert [each.after_ns for each in fault.chain] == sorted(each.after_ns for each in fault.chain)
