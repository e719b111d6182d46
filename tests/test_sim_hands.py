"""Promises of the simulator's job actor: what it waits for is what the real one waits for."""

from pathlib import Path

from msgspec.structs import replace

from nemesis.schemas.done import AttemptCompleted, AttemptFailed, AttemptStarted
from nemesis.sim.faults.scenario import ANYTHING, Scenario
from nemesis.sim.offline import run_offline
from tests.kind_runs import CLUSTER, planned_of

START_MS = 70_000


def test_ranks_that_start_for_longer_than_a_claim_are_waited_for(tmp_path: Path) -> None:
    # none may be missing, so a spare takes over and its ranks start
    job = replace(CLUSTER.job, world_min=8, start_ms=START_MS)
    scenario = Scenario(
        name="slow-start",
        title="a GPU is lost, and its ranks take long to start",
        faults=(planned_of("xid79"),),
        expect=ANYTHING,
        duration_s=100.0,
    )
    run = run_offline(
        replace(CLUSTER, jobs=(job,)),
        scenario,
        seed=7,
        folder=tmp_path,
        quantum_ns=500_000_000,
    )
    told = [each.data for each in run.facts]
    assert not [each for each in told if isinstance(each, AttemptFailed)]
    done = [each for each in told if isinstance(each, AttemptCompleted)]
    assert done[-1].duration_ns >= START_MS * 1_000_000
    claims = [
        each
        for each in told
        if isinstance(each, AttemptStarted) and each.decision == done[-1].decision
    ]
    assert len({each.deadline_ns for each in claims}) > 1
    assert {each.attempt for each in claims} == {1}
