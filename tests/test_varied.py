"""Promises of scenarios that nobody wrote: nothing innocent is named, whatever a seed draws."""

import pytest

from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import scenarios
from tests.varied_runs import Told, VariedRow, findings, varied_run, varied_table
from tests.vary import vary

SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_seed_draws_nothing_innocent_is_ever_named(seed: int) -> None:
    row = varied_run(seed, small=True)
    assert not row.failed, findings(row)
    assert len(row.faults) <= 3


def test_a_seed_draws_the_same_for_ever_and_another_seed_something_else() -> None:
    assert vary(5) == vary(5)
    assert vary(5) != vary(6)


def test_seeds_reach_every_kind_and_every_size_and_all_that_they_draw_can_be_run() -> None:
    told = {fault.kind for each in scenarios() for fault in each.faults}
    drawn = [vary(seed) for seed in range(1, 701)]
    assert {fault.kind for each in drawn for fault in each.scenario.faults} == told
    assert {each.cluster.cluster.nodes for each in drawn} >= {4, 64}
    assert {each.cluster.cluster.sample_period_ms for each in drawn} == {1_000, 2_000, 5_000}
    counts = [sum(f.answer != "nothing" for f in each.scenario.faults) for each in drawn]
    assert set(counts) == {0, 1, 2, 3}
    for seed, each in enumerate(drawn, 1):
        assert len(plan_faults(each.cluster, each.scenario.faults, seed)) == len(each.faint)


def test_a_report_counts_by_kind_and_tells_the_seed_of_what_is_to_be_looked_at() -> None:
    def told(verdict: str, *, faint: bool = False) -> Told:
        return Told(
            kind="xid79", verdict=verdict, faint=faint, alone=True, action="shrink",
            action_right=True, says="what was said",
        )  # fmt: skip

    right = VariedRow(seed=3, about="a cluster", faults=[told("right"), told("silent", faint=True)])
    wrong = VariedRow(seed=4, about="a cluster", faults=[told("wrong blame")])
    crash = VariedRow(seed=5, about="a cluster", error="KeyError: 7")
    table = varied_table([right, wrong, crash])
    assert "3 runs, 2 failed" in table
    assert table.splitlines()[1].split()[:8] == ["xid79", "3", "1", "0", "0", "0", "1", "1"]
    assert findings(right) == []
    assert findings(wrong) == ["seed 4 (a cluster): WRONG BLAME what was said"]
    assert findings(crash) == ["seed 5 (a cluster): ERROR KeyError: 7"]
