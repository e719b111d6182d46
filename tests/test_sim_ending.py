"""Promises of the end of a run: it comes when all is answered, or will not be, or when told."""

import msgspec
import pytest

from nemesis.sim.cell import Options
from nemesis.sim.ending import PATIENCE_NS, SETTLE_NS, Ending
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario, scenario_named
from nemesis.sim.offline import START_NS
from nemesis.sim.run import for_a_person
from nemesis.sim.truth.ledger import MembershipFormed, Truth, injected
from tests.scenario_runs import CLUSTER, run_of

SECOND = 1_000_000_000
GPU_LOST = scenario_named("gpu-off-bus")


def ending(scenario: Scenario = GPU_LOST, speed: float = 1.0) -> Ending:
    return Ending(scenario, plan_faults(CLUSTER, scenario.faults, 7), speed=speed)


def unanswered(scenario: Scenario = GPU_LOST) -> list[Truth]:
    return [injected(each, START_NS) for each in plan_faults(CLUSTER, scenario.faults, 7)]


def test_a_run_is_over_some_steps_after_everything_was_answered() -> None:
    run = run_of("gpu-off-bus")
    standing = run.truths[-1]
    assert isinstance(standing, MembershipFormed)
    over = ending()
    known = (run.truths, run.facts, [standing])
    assert not over.is_over(11 * SECOND, *known)
    assert not over.is_over(11 * SECOND + SETTLE_NS - 1, *known)
    assert over.is_over(11 * SECOND + SETTLE_NS, *known)


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_run_that_nothing_answers_is_given_up_after_a_patience_in_real_time(speed: float) -> None:
    over = ending(speed=speed)
    last_ns = plan_faults(CLUSTER, GPU_LOST.faults, 7)[0].over_ns
    patience_ns = round(PATIENCE_NS * speed)
    assert not over.is_over(last_ns + patience_ns - 1, unanswered(), (), ())
    assert over.is_over(last_ns + patience_ns, unanswered(), (), ())


def test_no_run_is_over_before_its_last_symptom() -> None:
    flap = scenario_named("nic-flap")
    over_ns = plan_faults(CLUSTER, flap.faults, 7)[0].over_ns
    run = run_of("nic-flap")
    standing = run.truths[-1]
    assert isinstance(standing, MembershipFormed)
    over = ending(flap)
    assert not over.is_over(over_ns, run.truths, run.facts, [standing])


def test_a_run_of_a_given_length_takes_exactly_that() -> None:
    quiet = msgspec.structs.replace(GPU_LOST, duration_s=20.0)
    over = ending(quiet)
    assert not over.is_over(20 * SECOND - 1, unanswered(), (), ())
    assert over.is_over(20 * SECOND, unanswered(), (), ())


def test_of_a_run_that_waits_for_a_person_no_time_is_expected() -> None:
    options = Options(cluster=CLUSTER, scenario=GPU_LOST, mode="approve")
    asked = for_a_person(options).scenario.expect
    assert asked == msgspec.structs.replace(GPU_LOST.expect, resumed_within_s=0.0)
    assert GPU_LOST.expect.resumed_within_s > 0
    by_itself = Options(cluster=CLUSTER, scenario=GPU_LOST)
    assert for_a_person(by_itself) == by_itself
