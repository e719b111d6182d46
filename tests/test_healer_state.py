"""Promises of what the healer remembers: a leap is no waiting, and an old exit is history."""

import pytest

from nemesis.processors.healer.forecasts import suspect
from nemesis.processors.healer.state import (
    PARTS_MAX,
    HealerState,
    JobState,
    is_history,
    submitted_state,
)
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FailurePredicted
from nemesis.schemas.observed import ProcessExited
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.policy import Policy
from nemesis.schemas.rank_ranges import RANKS_MAX

SECOND_NS = 1_000_000_000
SUBMITTED_NS = 100 * SECOND_NS


def submitted(ranks_per_node: int = 2, node_count: int = 1) -> JobSubmitted:
    nodes = tuple(f"n{at}" for at in range(node_count))
    return JobSubmitted(
        at_ns=SUBMITTED_NS,
        by="ann",
        reason="",
        job="llama",
        nodes=nodes,
        ranks_per_node=ranks_per_node,
    )


def job() -> JobState:
    return submitted_state(submitted(), 0, 1)


@pytest.mark.parametrize(
    ("node_count", "ranks_per_node", "jobs"), [(1000, 1000, ["llama"]), (9901, 101, [])]
)
def test_a_job_of_a_million_ranks_is_taken_up_and_one_of_a_rank_more_is_not(
    node_count: int, ranks_per_node: int, jobs: list[str]
) -> None:
    assert node_count * ranks_per_node == RANKS_MAX + (not jobs)
    state = HealerState(policy=Policy())
    state.take_job(submitted(ranks_per_node, node_count), 7)
    assert list(state.jobs) == jobs


@pytest.mark.parametrize(("tick_s", "opened_s"), [(0, 5), (110, 5), (100, 5 + 12)])
def test_a_leap_of_the_clock_is_no_waiting_and_its_first_tick_is_no_leap(
    tick_s: int, opened_s: int
) -> None:
    opened = job()
    opened.opened_ns = 5 * SECOND_NS
    state = HealerState(policy=Policy(), jobs={"llama": opened}, tick_ns=tick_s * SECOND_NS)
    state.bear_leap(113 * SECOND_NS)
    assert (opened.opened_ns, state.tick_ns) == (opened_s * SECOND_NS, 113 * SECOND_NS)


@pytest.mark.parametrize(
    ("late", "epoch", "at_ns", "history"),
    [
        (True, 0, SUBMITTED_NS, False),
        (True, 0, SUBMITTED_NS - 1, True),
        (True, -1, SUBMITTED_NS, True),
        (False, -1, SUBMITTED_NS - 1, False),
    ],
)
def test_a_late_exit_is_history_unless_it_is_known_to_be_of_the_job_as_it_is(
    late: bool, epoch: int, at_ns: int, history: bool
) -> None:
    exited = ProcessExited(
        node="n0", start_ns=1, n=1, at_ns=at_ns, job="llama", rank=0, epoch=epoch
    )
    fact = Fact(
        seq=9,
        kind="process",
        key="n0",
        id="n0/1/1",
        at_ns=at_ns,
        log_time_ns=200 * SECOND_NS,
        late=late,
        data=exited,
    )
    assert is_history(job(), fact, exited) is history


def test_of_very_many_parts_that_are_likely_to_fail_the_latest_are_remembered() -> None:
    state = HealerState(policy=Policy())
    for at in range(PARTS_MAX + 1):
        component = f"gpu/n{at}/0000:1b:00.0"
        predicted = FailurePredicted(
            at_ns=0,
            reason="",
            incident=f"p-{at}",
            component=component,
            fault_class="gpu.memory",
            band="watch",
        )
        suspect(state, predicted)
    assert list(state.suspects) == [f"p-{at}" for at in range(1, PARTS_MAX + 1)]
