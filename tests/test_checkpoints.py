"""How often to save, against published values and against dice."""

import csv
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.goodput.checkpoints import (
    Plan,
    availability_period_s,
    best_interval_s,
    daly_first_s,
    daly_s,
    ettr,
    ettr_linear,
    improvements,
    longest_save_s,
    mtbf_s,
    young_s,
)

GOLDEN = Path(__file__).parent.parent / "data" / "goodput" / "golden.csv"
LLAMA = Plan(mtbf_s=54 * 86_400 / 419, save_s=20, restart_s=300)
plans = st.builds(
    Plan,
    mtbf_s=st.floats(60, 1e7),
    save_s=st.floats(0.01, 3600),
    restart_s=st.floats(0, 7200),
    write_s=st.floats(0, 3600),
)


def test_every_golden_row_is_met() -> None:
    with GOLDEN.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 96
    for row in rows:
        value = {key: float(cell) for key, cell in row.items() if key != "case"}
        plan = Plan(mtbf_s=value["M_s"], save_s=value["save_s"], restart_s=value["restart_s"])
        best = best_interval_s(plan)
        for made, key in (
            (best, "opt_interval_s"),
            (young_s(plan), "young_s"),
            (daly_first_s(plan), "daly1_s"),
            (daly_s(plan), "daly_ho_s"),
            (availability_period_s(plan), "avail_opt_s"),
        ):
            assert made == pytest.approx(value[key], abs=0.06, rel=2e-5), (row["case"], key)
        assert ettr(plan, best) == pytest.approx(value["ettr_at_opt"], abs=6e-5)
        assert ettr_linear(plan, young_s(plan)) == pytest.approx(
            value["ettr_meta_formula"], abs=6e-5
        )


@pytest.mark.parametrize(
    ("mtbf", "daly", "exact"), [(24.0, 116.69, 116.69), (6.0, 56.71, 56.71), (0.25, 9.14, 9.17)]
)
def test_daly_2006_figures_3_to_5(mtbf: float, daly: float, exact: float) -> None:
    plan = Plan(mtbf_s=mtbf * 3600, save_s=300, restart_s=600)
    assert daly_s(plan) / 60 == pytest.approx(daly, abs=0.006)
    assert best_interval_s(plan) / 60 == pytest.approx(exact, abs=0.006)


@pytest.mark.parametrize(("restart_s", "save_s"), [(300, 33), (600, 14.5), (900, 3.3)])
def test_more_than_90_per_cent_at_16384_gpus_needs_short_saves(
    restart_s: float, save_s: float
) -> None:
    plan = replace(LLAMA, restart_s=restart_s)
    assert longest_save_s(plan, 0.9) == pytest.approx(save_s, rel=0.03)


def test_no_save_is_short_enough_where_restarts_alone_cost_more() -> None:
    assert longest_save_s(replace(LLAMA, restart_s=1800), 0.9) == 0


def test_rates_of_nodes_make_the_published_times_between_failures() -> None:
    assert mtbf_s(16_384, 8, 6.50) == pytest.approx(1.803 * 3600, rel=0.001)
    assert mtbf_s(131_072, 8, 6.50) == pytest.approx(0.225 * 3600, rel=0.002)
    assert mtbf_s(16_384, 8, 0) == float("inf")


@given(plans, st.floats(0.05, 20))
def test_no_interval_beats_the_best_one(plan: Plan, factor: float) -> None:
    best = best_interval_s(plan)
    other = max(plan.shortest_s, best * factor)
    assert 0 <= ettr(plan, other) <= ettr(plan, best) * (1 + 1e-9)
    assert ettr(plan, best) < 1


@given(plans)
def test_every_improvement_is_one(plan: Plan) -> None:
    now = ettr(plan, best_interval_s(plan))
    assert all(each.ettr >= now * (1 - 1e-9) for each in improvements(plan))


def test_dice_agree_with_the_exact_form() -> None:
    """Segments with failures at exponential moments, also while restarting: within 3 errors."""
    dice, plan = Random(7), LLAMA
    interval = best_interval_s(plan)
    taken = [_segment(dice, plan, interval) for _ in range(20_000)]
    mean = sum(taken) / len(taken)
    error = (sum((each - mean) ** 2 for each in taken) / len(taken) ** 2) ** 0.5
    assert abs(interval / ettr(plan, interval) - mean) < 3 * error


def _segment(dice: Random, plan: Plan, interval_s: float) -> float:
    passed, need = 0.0, interval_s + plan.save_s
    while (fails := dice.expovariate(1 / plan.mtbf_s)) < need:
        passed += fails
        need = plan.restart_s + interval_s + plan.save_s
    return passed + need


def test_a_background_write_bounds_the_interval_and_is_lost_with_a_failure() -> None:
    plan = replace(LLAMA, save_s=2, write_s=600)
    assert best_interval_s(plan) == 598
    assert ettr(plan, 598) < ettr(replace(plan, write_s=0), 598)
