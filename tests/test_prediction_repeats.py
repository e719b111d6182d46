"""Promises of the hazard rule on real faults: 584 of 400 servers (stepfun-ai/InfiniteHBD-Trace)."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nemesis.cli.app import app
from nemesis.sim.prediction.repeats import (
    DAYS,
    WINDOWS_DAYS,
    BadTraceError,
    double_bit_errors,
    intervals,
    repeats,
)

TRACE = Path(__file__).parent.parent / "data" / "infinitehbd_trace" / "fault_trace.json"
ERRORS = double_bit_errors(TRACE)


@pytest.mark.parametrize(
    ("window_days", "right", "alarms", "foreseen"),
    [(7, 12, 59, 12), (30, 16, 50, 22), (60, 20, 46, 27)],
)
def test_after_a_double_bit_error_the_same_node_has_another_so_often(
    window_days: int, right: int, alarms: int, foreseen: int
) -> None:
    found = repeats(ERRORS, window_days)
    assert (found.right_count, found.alarms_count) == (right, alarms)
    assert (found.foreseen_count, found.errors_count) == (foreseen, 60)
    assert found.precision == right / alarms


@pytest.mark.parametrize("half", [(0.0, DAYS / 2), (DAYS / 2, DAYS)])
def test_in_either_half_of_the_time_it_is_several_times_as_likely_as_for_any_node(
    half: tuple[float, float],
) -> None:
    since, until = half
    low, high = intervals(ERRORS, 30, since=since, until=until)["lift"]
    assert 5 < low < repeats(ERRORS, 30, since=since, until=until).lift < high


def test_errors_that_fall_on_nodes_by_chance_show_no_lift() -> None:
    times = sorted(time for own in ERRORS.values() for time in own)
    by_chance = {str(at * 7919 % 400): [time] for at, time in enumerate(times)}
    assert repeats(by_chance, 30).lift == 0.0
    evenly = {"a": [float(day) for day in range(0, 340, 10)]}
    assert repeats(evenly, 30, nodes_count=1).lift == pytest.approx(1.0, abs=0.05)


def test_the_base_is_the_share_of_moments_that_look_ahead_at_an_error() -> None:
    found = repeats({"a": [50.0, 60.0]}, 20, until=100.0, nodes_count=2)
    assert found.base == pytest.approx(30 / 160)  # from day 30 to 60 of node a, of 80 days each
    assert (found.right_count, found.alarms_count, found.foreseen_count) == (1, 2, 1)


def test_the_command_prints_every_window_with_its_interval() -> None:
    ran = CliRunner().invoke(app, ["ecc", "repeats", str(TRACE), "--json"])
    assert ran.exit_code == 0
    rows = json.loads(ran.stdout)
    assert [row["window_days"] for row in rows] == list(WINDOWS_DAYS)
    assert rows[1]["precision"] == 0.32
    assert rows[1]["precision_interval"][0] < 0.32 < rows[1]["precision_interval"][1]


def test_a_file_that_is_not_the_trace_is_told_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for path in (other, tmp_path / "none.json"):
        with pytest.raises(BadTraceError, match=str(path)):
            double_bit_errors(path)
