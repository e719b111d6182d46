"""Promises of the limits: each counts what it names, and one that tripped holds until a reset."""

from typing import Any

import pytest

from nemesis.processors.healer.ladder import Choice
from nemesis.processors.healer.limits import exceeded, reset, trip
from nemesis.processors.healer.state import HealerState, JobState, submitted_state
from nemesis.schemas.codes import Action
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.policy import CELL_LIMITS, JOB_LIMITS, LIMITS, Policy

LATER_NS = 10**18
"""Every window is over."""


def job(name: str) -> JobState:
    submitted = JobSubmitted(
        at_ns=0, by="ann", reason="", job=name, nodes=("n0", "n1", "n2"), ranks_per_node=2
    )
    return submitted_state(submitted, 0, 1)


def cell(**fields: Any) -> HealerState:
    """Two jobs on nodes that all work."""
    jobs = {name: job(name) for name in ("llama", "qwen")}
    nodes: dict[str, bool] = dict.fromkeys(("n0", "n1", "n2"), False)
    return HealerState(policy=Policy(**fields), jobs=jobs, nodes=nodes)


def choice(action: Action = "shrink", *nodes_out: str) -> Choice:
    return Choice(action=action, target="node/n0", nodes_out=nodes_out)


@pytest.mark.parametrize("limit", JOB_LIMITS)
def test_a_limit_of_a_job_that_tripped_holds_for_this_job_when_its_window_is_over(
    limit: str,
) -> None:
    state = cell()
    trip(state, state.jobs["llama"], limit)
    assert exceeded(state, state.jobs["llama"], choice(), LATER_NS) == limit
    assert exceeded(state, state.jobs["qwen"], choice(), LATER_NS) == ""


@pytest.mark.parametrize(("limit", "told"), [("shrinks_max", ""), ("recoveries_max",) * 2])
def test_too_many_shrinks_stop_no_other_recovery(limit: str, told: str) -> None:
    state = cell()
    trip(state, state.jobs["llama"], limit)
    assert exceeded(state, state.jobs["llama"], choice("restart_job"), LATER_NS) == told


@pytest.mark.parametrize("limit", CELL_LIMITS)
def test_a_limit_of_the_cell_that_tripped_holds_for_whatever_takes_a_node_out(limit: str) -> None:
    state = cell()
    trip(state, state.jobs["llama"], limit)
    for each in state.jobs.values():
        assert exceeded(state, each, choice("shrink", "n0"), LATER_NS) == limit
        assert exceeded(state, each, choice(), LATER_NS) == ""


def test_a_limit_trips_once_and_where_it_belongs() -> None:
    state = cell()
    mine = state.jobs["llama"]
    for limit in (*LIMITS, *LIMITS, "vetoed", "expired"):
        trip(state, mine, limit)
    assert (state.tripped, mine.tripped) == (CELL_LIMITS, JOB_LIMITS)
    assert state.jobs["qwen"].tripped == ()


@pytest.mark.parametrize("limit", LIMITS)
def test_a_reset_lets_one_limit_go_for_every_job(limit: str) -> None:
    state = cell()
    for each in state.jobs.values():
        for other in LIMITS:
            trip(state, each, other)
    reset(state, limit)
    assert state.tripped == tuple(each for each in CELL_LIMITS if each != limit)
    for each in state.jobs.values():
        assert each.tripped == tuple(other for other in JOB_LIMITS if other != limit)


def test_only_a_reset_of_vetoes_lets_be_decided_again_what_a_person_forbade() -> None:
    state = cell()
    state.jobs["llama"].vetoed = ("shrink",)
    for limit in LIMITS:
        reset(state, limit)
    assert state.jobs["llama"].vetoed == ("shrink",)
    reset(state, "vetoed")
    assert not state.jobs["llama"].vetoed
