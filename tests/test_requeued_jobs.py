"""Promises for a job that gives its nodes back and is placed again under its name."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from nemesis.actors.agent.leftovers import LIFE, forget_earlier
from nemesis.actors.agent.roster import PLAN, ROSTER, KeptPlan, Life, Roster
from nemesis.actors.claims import Claims
from nemesis.actors.following import Accepted, judge
from nemesis.actors.planning import plan_of
from nemesis.processors.fold import Input
from nemesis.processors.goodput.goodput import Goodput
from nemesis.processors.healer.healer import Healer
from nemesis.schemas.decided import QuiesceDecided
from nemesis.schemas.inferred import GoodputAccounted
from nemesis.schemas.observed import GroupBroken, ProcessExited
from nemesis.schemas.operated import PolicyApplied, ProcessorActivated
from nemesis.schemas.plans import Plan
from nemesis.schemas.scheduled import JobQueued, JobRejected
from tests.healer_cell import ACT
from tests.scheduler_cell import Cell


def looked_after() -> Cell:
    """A job that the scheduler placed on n001 and n002, a healer that may act, and accounts."""
    cell = Cell((2, 2), beside=(Healer, Goodput))
    for name in ("healer", "goodput"):
        cell.operate(ProcessorActivated, name, name=name, version=1)
    cell.operate(PolicyApplied, "policy", policy=msgspec.Raw(msgspec.json.encode(ACT)))
    cell.submit("llama", "TP8_NVL18+DP2")
    assert cell.nodes_of("llama") == ("n001", "n002")
    return cell


def die(cell: Cell, rank: int, node: str, epoch: int = 0) -> None:
    stamp = cell.stamp(node, "process")
    exited = ProcessExited(**stamp, job="llama", rank=rank, exit_code=1, epoch=epoch)
    cell.observe("process", exited)


def newest_plan(cell: Cell) -> Plan:
    """What agents are sent for the newest decision."""
    claims = Claims("job-1")
    for record in cell.records:
        claims.take(Input(record))
    return plan_of(cell.told(QuiesceDecided)[-1], claims.jobs["llama"], {})


def outcome(plan: Plan, last: Plan) -> str:
    return judge(plan, node="n001", boot_id="b1", last=last)[0]


def test_an_agent_takes_plans_of_the_second_life_and_none_of_the_first_any_more() -> None:
    cell = looked_after()
    die(cell, 3, "n001")
    first = newest_plan(cell)
    cell.end("llama", requeued=True)
    assert cell.nodes_of("llama") == ("n001", "n002")
    die(cell, 3, "n001")
    second = newest_plan(cell)
    assert (first.epoch, first.kind, first.members) == (second.epoch, second.kind, second.members)
    assert first.life < second.life
    assert outcome(second, first) == "accepted"
    assert outcome(second, second) == "repeated"
    assert outcome(first, second) == "stale"
    # nor is a later epoch of the first life later than the second one
    grown = msgspec.structs.replace(first, epoch=7, kind="membership")
    assert (outcome(second, grown), outcome(grown, second)) == ("accepted", "stale")
    # a plan of a release that says no life is compared by its epoch alone
    plain = msgspec.structs.replace(first, life=0)
    assert (outcome(second, plain), outcome(grown, plain)) == ("repeated", "accepted")


def test_what_ends_on_the_nodes_that_it_left_is_no_failure_of_its_second_life() -> None:
    cell = looked_after()
    cell.blame("gpu/n001/0000:00:00.0")
    cell.tick()
    decided = len(cell.told(QuiesceDecided))
    cell.end("llama", requeued=True)
    assert cell.nodes_of("llama") == ("n003", "n004")
    die(cell, 3, "n001")
    die(cell, 9, "n002")
    broken = GroupBroken(**cell.stamp("n002", "group_broken"), job="llama", epoch=0, why="lost")
    cell.observe("group_broken", broken)
    cell.tick()
    assert len(cell.told(QuiesceDecided)) == decided
    die(cell, 9, "n004")
    assert cell.told(QuiesceDecided)[-1].dead_ranks == (9,)


def test_a_release_ends_the_accounts_of_a_life_and_what_the_healer_has_to_do_with_it() -> None:
    cell = looked_after()
    cell.tick(30)
    cell.end("llama", requeued=True)
    (first,) = cell.told(GoodputAccounted)
    assert (first.ended, first.until_ns - first.since_ns) == (True, 30_000_000_000)
    cell.tick(20)
    cell.end("llama")
    die(cell, 3, "n001")
    cell.tick()
    assert not cell.told(QuiesceDecided)
    second = cell.told(GoodputAccounted)[-1]
    assert (second.ended, second.until_ns - second.since_ns) == (True, 20_000_000_000)


@pytest.mark.parametrize("present", [0, 7, 9])
def test_an_agent_that_begins_for_another_life_forgets_the_plan_and_ends_the_ranks_of_before(
    tmp_path: Path, present: int
) -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    said: list[str] = []
    forget_earlier(tmp_path, 7, said.append)
    KeptPlan(tmp_path / PLAN).keep(Accepted(plan=Plan(job="llama", epoch=3, kind="membership")))
    Roster(tmp_path / ROSTER).begin(Life(rank=3, pid=child.pid, epoch=0))
    forget_earlier(tmp_path, present, said.append)
    again = present == 9
    assert KeptPlan(tmp_path / PLAN).accepted is None if again else not said
    assert [life.rank for life in Roster(tmp_path / ROSTER).lives] == ([] if again else [3])
    assert (child.poll() is None) is not again
    if again:
        assert said == ["the job has begun again since, the plan of before is forgotten; rank 3 of "
                        "it lived on here, and was ended"]  # fmt: skip
    (tmp_path / LIFE).write_text("no number")
    forget_earlier(tmp_path, 11, said.append)
    assert (tmp_path / LIFE).read_text() == "11"
    child.kill()
    child.wait()


def test_a_name_is_refused_while_its_job_has_nodes_and_taken_over_while_it_waits() -> None:
    cell = Cell((2, 2))
    cell.submit("llama", "TP8_NVL18+DP3")
    cell.submit("llama", "TP8_NVL18")
    (rejected,) = cell.told(JobRejected)
    assert rejected.reason == "NAME: a job of the name llama has nodes"
    assert len(cell.nodes_of("llama")) == 3
    cell.submit("next", "TP8_NVL18+DP4")
    cell.submit("next", "TP8_NVL18+DP2")
    assert [each.job for each in cell.told(JobQueued)] == ["next", "next"]
    cell.end("llama")
    assert len(cell.nodes_of("next")) == 2
    assert len(cell.told(JobRejected)) == 1
