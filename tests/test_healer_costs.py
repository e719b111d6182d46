"""Promises of moves that only their costs speak for: they pay, they are few, they make way."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.operated import (
    DecisionApproved,
    DecisionVetoed,
    NodeProtected,
    PauseSet,
)
from nemesis.schemas.policy import MODES, Policy, decode_policy
from tests.healer_cell import Cell
from tests.log_cell import SECOND_NS
from tests.test_healer_properties import JOBS, STEP, WIDE, play

HOUR_NS = 3600 * SECOND_NS
CHEAP = {"mode": "act", "forecast_mode": "act", "forecast_test_ns": 40 * SECOND_NS}
"""A move of the four nodes' job is worth it from a chance of 7.9 % on: 60 of 760 node-seconds."""


def made(policy: dict[str, Any] | None = None, **job: Any) -> Cell:
    cell = Cell(policy=CHEAP | (policy or {}))
    cell.submit(**({"spares": ("s0", "s1")} | job))
    return cell


def doubt(cell: Cell, rank: int = 3, percent: float = 10, **fields: Any) -> None:
    """A model gives the GPU of a rank a chance within two hours."""
    base = {"probability_ppm": round(percent * 10_000), "horizon_ns": 2 * HOUR_NS}
    cell.predict(
        "record", rank, node=f"n{rank // 2}", **(base | {"incident": f"p-{rank}"} | fields)
    )


@given(st.integers(1, 100_000), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_move_is_worth_it_exactly_from_where_it_is_expected_to_save(
    nodes: int, more_s: int, foreseen_s: int, test_s: int
) -> None:
    policy = Policy(
        forecast_missed_ns=(foreseen_s + more_s) * SECOND_NS,
        forecast_foreseen_ns=foreseen_s * SECOND_NS,
        forecast_test_ns=test_s * SECOND_NS,
    )

    def saves(ppm: int) -> Fraction:
        chance = Fraction(ppm, 1_000_000)
        moved = nodes * foreseen_s + (1 - chance) * test_s
        return chance * nodes * (foreseen_s + more_s) - moved

    worth = policy.worth_ppm(nodes)
    assert 0 <= worth <= 1_000_000
    assert saves(worth) >= 0
    assert worth == 0 or saves(worth - 1) < 0
    assert policy.worth_ppm(nodes + 1) <= worth


def test_a_rank_leaves_for_a_spare_where_a_failure_would_cost_more_than_needless_moves() -> None:
    cell = made()
    doubt(cell, percent=7.8)
    assert cell.said == []
    doubt(cell, percent=7.9)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.mode, decided.by_cost) == ("swap_node", "act", True)
    assert (decided.joined_nodes, decided.started, decided.removed_ranks) == (("s0",), "2-3", ())
    assert decided.reason == (
        "Because a failure of gpu/n1/0000:1b:00.0 is unlikely, but 7.9 % are enough where 7.9 %"
        " outweigh the costs of a needless move, where rank 3 of llama runs: swap_node, 8 of 8"
        " ranks go on, on s0 instead of n1, 2 started anew from peer."
    )
    cell.carry_out()
    cell.tick(100)
    doubt(cell, percent=40)
    assert cell.kinds == ["RecoveryDecided"]


def test_a_small_job_whose_stop_costs_less_than_the_test_of_a_node_stays() -> None:
    cell = Cell(policy={"mode": "act", "forecast_mode": "act"})
    cell.submit(spares=("s0",))
    doubt(cell, percent=50)
    assert cell.said == []
    cell.predict("watch", 3, incident="p-3", probability_ppm=900_000, horizon_ns=2 * HOUR_NS)
    assert cell.last(RecoveryDecided).action == "watch"


def test_by_default_it_is_only_recorded_however_far_everything_else_may_go() -> None:
    cell = made({"forecast_mode": "shadow"})
    doubt(cell)
    assert (cell.last(RecoveryDecided).action, cell.last(RecoveryDecided).mode) == (
        "swap_node",
        "shadow",
    )
    cell.exit(3)
    assert cell.kinds[-1] == "QuiesceDecided"


@pytest.mark.parametrize(
    ("policy", "job", "refused"),
    [
        ({}, {"spares": ()}, "swap_node: 1 spare nodes are needed, 0 are there"),
        ({"forecast_moves_max": 0}, {}, "swap_node: it would exceed forecast_moves_max"),
        ({"recoveries_max": 0}, {}, "swap_node: it would exceed recoveries_max"),
        ({"nodes_out_max": 0}, {}, "swap_node: it would exceed nodes_out_max"),
        ({"protected_nodes": ("n1",)}, {}, "swap_node: node n1 is protected"),
    ],
)
def test_where_anything_stands_in_its_way_it_is_advice_and_trips_nothing(
    policy: dict[str, Any], job: dict[str, Any], refused: str
) -> None:
    cell = made(policy, **job)
    doubt(cell)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.mode, decided.rungs_refused) == ("watch", "shadow", (refused,))
    ready = "no spare node could take over" if "spares" in job else "s0 is free to take over"
    assert decided.reason == (
        "a failure of gpu/n1/0000:1b:00.0 is unlikely, but 10.0 % are enough where 7.9 % outweigh"
        f" the costs of a needless move: watch for now, {ready}."
    )
    cell.tick(100)
    assert cell.all(RecoveryWithheld) == []


def test_a_paused_job_is_left_alone_and_advice_is_said_once() -> None:
    cell = made()
    cell.operate(PauseSet, "p", scope="ALL", paused=True)
    doubt(cell)
    cell.operate(PauseSet, "p", scope="ALL", paused=False)
    cell.tick(100)
    assert [each.action for each in cell.all(RecoveryDecided)] == ["watch"]
    assert cell.last(RecoveryDecided).rungs_refused == ("swap_node: it is paused",)


def test_so_many_moves_by_cost_are_made_in_a_window_and_what_has_failed_is_not_counted() -> None:
    cell = made(WIDE | {"forecast_moves_max": 1, "forecast_window_ns": HOUR_NS})
    doubt(cell, 3)
    cell.carry_out()
    doubt(cell, 5)
    cell.blame("gpu.off_bus", 1, node="n0")
    cell.tick(2)
    cell.carry_out()
    cell.tick(2)
    cell.carry_out()
    assert [each.action for each in cell.all(RecoveryDecided)] == [
        "swap_node",
        "watch",
        "swap_node",
    ]
    cell.leap(4000)
    doubt(cell, 7)
    assert cell.last(RecoveryDecided).action == "shrink" or cell.last(RecoveryDecided).by_cost


def test_what_comes_in_weeks_is_no_reason_to_move_and_its_node_is_the_last_spare() -> None:
    cell = made()
    weeks = {"probability_ppm": 98_000, "horizon_ns": 720 * HOUR_NS}
    doubt(cell, 3, **weeks)
    assert cell.said == []
    cell.predict("record", node="s0", incident="p-s", jobs=(), **weeks)
    cell.exit(1, node="n0")
    cell.blame("gpu.off_bus", 1, node="n0")
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).joined_nodes == ("s1",)


def test_a_move_waits_for_a_person_and_makes_way_for_whatever_is_more() -> None:
    cell = made({"forecast_mode": "approve"})
    doubt(cell, 3)
    first = cell.last(RecoveryDecided)
    assert first.mode == "approve"
    cell.tick(10)
    cell.predict("act", 5, node="n2", incident="p-5")
    sure = cell.last(RecoveryDecided)
    assert (sure.action, sure.incident, sure.mode) == ("shrink", "p-5", "act")
    cell.carry_out()
    cell.tick()
    again = cell.last(RecoveryDecided)
    assert (again.by_cost, again.incident) == (True, "p-3")
    cell.operate(DecisionApproved, again.decision, decision=again.decision)
    cell.exit(7, node="n3")
    held = cell.last(QuiesceDecided)
    assert (held.dead_ranks, held.incident.startswith("p-")) == ((7,), False)


def test_a_veto_is_final_and_a_move_that_failed_is_not_tried_twice() -> None:
    cell = made({"forecast_mode": "approve"})
    doubt(cell)
    name = cell.last(RecoveryDecided).decision
    cell.operate(DecisionVetoed, name, decision=name)
    cell.tick(100)
    assert [each.action for each in cell.all(RecoveryDecided)] == ["swap_node", "watch"]
    assert cell.all(RecoveryWithheld) == []


def test_a_protected_spare_does_not_join() -> None:
    cell = made()
    cell.operate(NodeProtected, "s0", node="s0", protected=True)
    doubt(cell)
    assert cell.last(RecoveryDecided).joined_nodes == ("s1",)


def test_costs_that_make_no_move_worth_it_are_refused() -> None:
    with pytest.raises(MalformedFactError, match="forecast_foreseen_ns must be below"):
        decode_policy(b'{"forecast_foreseen_ns": 180000000000}')


FORECAST = st.tuples(st.integers(0, 7), st.sampled_from([3, 8, 30]))


@given(
    JOBS,
    st.lists(st.one_of(STEP.filter(lambda step: step[0] != "policy"), FORECAST), max_size=20),
    st.sampled_from(MODES),
)
def test_what_only_costs_speak_for_is_bounded_and_never_louder_than_advice(
    job: dict[str, Any], steps: list[tuple[Any, ...]], mode: str
) -> None:
    cell = Cell(policy=CHEAP | WIDE | {"forecast_mode": mode, "forecast_moves_max": 2})
    cell.submit(**job)
    for step in steps:
        if isinstance(step[0], int):
            doubt(cell, step[0], step[1])
        else:
            play(cell, step)
    by_cost = [each for each in cell.all(RecoveryDecided) if each.by_cost]
    assert {each.mode for each in by_cost if each.members} <= {mode}
    assert {each.action for each in by_cost} <= {"swap_node", "watch"}
    assert all(not each.removed_ranks for each in by_cost)
    assert sum(bool(each.members) and each.mode != "shadow" for each in by_cost) <= 2
    names = {each.decision for each in by_cost}
    for each in cell.all(RecoveryWithheld):
        assert each.decision not in names or each.limit in ("expired", "unanswered", "protected")
        assert each.limit != "forecast_moves_max"


def says_something(step: tuple[Any, ...]) -> bool:
    """A verdict that names nothing begins a wait, which ends with any answer."""
    return step[0] != "refute" and "unknown" not in step[1:]


@given(JOBS, st.lists(st.one_of(STEP.filter(says_something), FORECAST), max_size=20))
def test_what_is_not_to_be_done_changes_nothing_of_what_is(
    job: dict[str, Any], steps: list[tuple[Any, ...]]
) -> None:
    """In shadow, what fails or is likely to is answered as if nobody had counted costs."""

    def answers(*, forecasts: bool) -> list[tuple[Any, ...]]:
        cell = Cell(policy=CHEAP | WIDE | {"forecast_mode": "shadow"})
        cell.submit(**job)
        for step in steps:
            if not isinstance(step[0], int):
                play(cell, step)
            elif forecasts:
                doubt(cell, step[0], step[1], incident=f"q-{step[0]}")
        return [
            (type(each).__name__, getattr(each, "action", ""), getattr(each, "members", ""))
            for each in cell.said
            if not getattr(each, "by_cost", False)
        ]

    assert answers(forecasts=True) == answers(forecasts=False)
