"""No blame where nothing is wrong: a share of the node-days of `python -m tests.quiet`."""

from typing import get_args

import pytest

from nemesis.sim.faults import planned_decoys
from nemesis.sim.faults.planned import FaultPlanned
from tests.quiet import quiet_days, summary, upper_per_1000
from tests.quiet_days import NODES, PER_NODE_DAY, draw_day

SEED, HOURS, DAYS = 2, 3.0, 14
"""112 node-days in fourteen pieces, of other days than those that `make campaign` runs."""


@pytest.mark.apart
@pytest.mark.parametrize("day", range(1, DAYS + 1))
def test_healthy_clusters_with_decoys_are_blamed_for_nothing(day: int) -> None:
    node_days = NODES * HOURS / 24
    told = list(quiet_days(node_days, seed=SEED, first_day=day, hours=HOURS, jobs_count=1))
    document = summary(told)
    assert document["node_days"] >= node_days
    assert sum(document["decoys"].values()) >= 20
    assert [alarm for each in told for alarm in each.alarms if alarm.is_false] == []


def test_days_differ_in_nodes_fabrics_jobs_and_noise_and_come_again_from_their_seed() -> None:
    days = [draw_day(1, number) for number in range(1, 13)]
    clusters = [shift.cluster for day in days for shift in day.shifts]
    assert {len(each.node_names) for each in clusters} == {NODES}
    assert len({each.node for each in clusters}) == 6
    assert len({(each.fabric.kind, each.fabric.transport) for each in clusters}) >= 4
    assert {job.save_ms > 0 for each in clusters for job in each.jobs} == {True, False}
    assert len({(job.tp, job.pp, job.ep) for each in clusters for job in each.jobs}) >= 4
    assert len({shift.params.sha256 for day in days for shift in day.shifts}) == 2
    assert all(each.spares for each in clusters)
    assert draw_day(1, 5) == days[4]
    assert draw_day(2, 5) != days[4]


def test_every_kind_that_is_nobodys_fault_comes_at_a_rate() -> None:
    decoys = {
        str(kind.__struct_config__.tag)
        for kind in get_args(FaultPlanned)
        if kind.__module__ == planned_decoys.__name__
    }
    assert {kind for kind, *_ in PER_NODE_DAY} == decoys


@pytest.mark.parametrize(("count", "upper"), [(0, 2.9957), (1, 4.7439), (5, 10.5130)])
def test_the_bound_is_that_of_a_poisson_count(count: int, upper: float) -> None:
    assert upper_per_1000(count, 1_000.0) == pytest.approx(upper, abs=1e-3)
