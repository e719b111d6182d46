"""Promises of faults that hardly anything tells of: a route, a host and a context that are lost."""

from pathlib import Path

import msgspec
import pytest

from nemesis.schemas.observed import CollectiveRecorded, FabricSampled, ProcessExited
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.offline import START_NS
from nemesis.sim.simulation import Simulation
from tests.clusters import cluster
from tests.kind_runs import CLUSTER, SILENCE_S, kind_run, planned_of

SECOND = 1_000_000_000


def test_a_lost_route_stops_the_job_until_it_is_mended(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(planned_of("route-lost"), lasts_s=9.0)
    simulation = Simulation(
        CLUSTER,
        plan_faults(CLUSTER, [plan], seed=7),
        seed=7,
        folder=tmp_path,
        start_ns=START_NS,
    )
    steps = []
    for second in (4, 11, 16):
        simulation.advance(START_NS + second * SECOND, lambda node: True)
        steps.append(simulation.job.step)
    assert 0 < steps[0] == steps[1] < steps[2]


def test_the_two_ends_of_a_lost_route_are_loud_and_the_switch_between_them_is_guilty() -> None:
    truth = kind_run("route-lost").truth
    assert truth.culprit.startswith("switch/")
    assert len([each for each in truth.innocent if each.startswith("nic/")]) == 2
    assert not any(each.decisive for each in truth.evidence)


def test_a_switch_that_counts_what_it_drops_can_be_named() -> None:
    plan = msgspec.structs.replace(planned_of("route-lost"), counted=True)
    (fault,) = plan_faults(CLUSTER, [plan], seed=7)
    (decisive,) = [each for each in fault.evidence if each.decisive]
    assert fault.culprit == f"switch/{decisive.by}"
    assert decisive.component.startswith(f"port/{decisive.by}/")


def test_no_route_is_lost_where_ranks_meet_over_nvlink_alone() -> None:
    of = cluster("gb200-nvl72", 18, {"nodes_per_leaf": 6})
    with pytest.raises(BadScenarioError, match="exchanges no gradients with another node"):
        plan_faults(of, [planned_of("route-lost")], seed=7)


def test_a_host_that_hangs_keeps_its_links_and_ends_no_process() -> None:
    run = kind_run("host-hang", after_s=SILENCE_S)
    node = run.truth.node
    after = [each for at, each in run.observations if at > run.truth.at_ns + SECOND]
    assert not [each for each in after if each.node == node or isinstance(each, ProcessExited)]
    nics = tuple(nic.switch_port for nic in CLUSTER.nics_of(node))
    polls = [each for each in after if isinstance(each, FabricSampled)]
    ports = [port for each in polls for port in each.ports if port.port in nics]
    assert ports
    assert all(port.up for port in ports)


def test_a_context_in_error_stands_behind_its_peers_and_its_process_lives() -> None:
    run = kind_run("context-error")
    (culprit,) = {number for number in run.truth.lost_ranks}
    told = [each for _, each in run.observations]
    assert not [each for each in told if isinstance(each, ProcessExited)]
    dumps = [each for each in told if isinstance(each, CollectiveRecorded)]
    enqueued = {each.rank: max(g.last_enqueued for g in each.groups) for each in dumps}
    assert enqueued[culprit] < min(v for rank, v in enqueued.items() if rank != culprit)


def test_what_a_program_does_not_print_is_not_expected() -> None:
    plan = msgspec.structs.replace(planned_of("context-error"), prints=False)
    (fault,) = plan_faults(CLUSTER, [plan], seed=7)
    assert "log" not in {each.told for each in fault.evidence}
