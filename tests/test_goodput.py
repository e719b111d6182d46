"""Promises of goodput: every second of a job is in one part, and an incident has its price."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.goodput.goodput import NAMES_MAX, Goodput
from nemesis.schemas.channels import ABSENT, STEP_CHANNELS
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, MembershipReported
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import (
    FaultAttributed,
    GoodputAccounted,
    IncidentClosed,
    IncidentCosted,
    IncidentGrouped,
    IncidentOpened,
    JobResumed,
    TimeParts,
)
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed, JobEnded
from tests.attribution_log import SECOND_NS, Log

INCIDENT = "i-1"


def steps_block(step: int, step_ns: int, ranks: int = 2) -> bytes:
    row = {"step": step, "step_ns": step_ns}
    values = [row.get(name, ABSENT) for _ in range(ranks) for name in STEP_CHANNELS]
    return np.array(values, "<i8").tobytes()


class Run:
    """A job of four ranks that is sampled every second, and what is said of its time."""

    def __init__(self) -> None:
        self.log = Log(Goodput())
        self.log.submitted("n1", "n2")
        self.submitted_ns = self.log.now_ns

    def sampled(self, step: int, *, step_s: float = 1.0, job: str = "llama", **fields: Any) -> None:
        block = steps_block(step, round(step_s * SECOND_NS))
        fields = {"period_ns": SECOND_NS, "job": job, "step_count": 2, "steps": block} | fields
        self.log.sample("n1", **fields)

    def train(self, first: int, last: int, *, step_s: float = 1.0) -> None:
        """A step a tick."""
        for step in range(first, last + 1):
            self.log.tick(step_s)
            self.sampled(step, step_s=step_s)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.log.tick(1)

    def verdict(self, fault_class: Any = "gpu.off_bus", *, verdict: Any = "attributed") -> None:
        data = FaultAttributed(
            at_ns=self.log.now_ns, reason="r", incident=INCIDENT, revision=0, verdict=verdict,
            fault_class=fault_class, jobs=("llama",),
        )  # fmt: skip
        self.log.event("fault_attributed", data)

    def held(self) -> None:
        data = QuiesceDecided(
            at_ns=self.log.now_ns, reason="r", decision="llama/1", incident=INCIDENT, mode="act",
            deadline_ns=self.log.now_ns, job="llama", epoch=0,
        )  # fmt: skip
        self.log.event("quiesce_decided", data)

    def decided(self, members: str = "0-2", mode: Any = "act") -> None:
        data = RecoveryDecided(
            at_ns=self.log.now_ns, reason="r", decision="llama/2", incident=INCIDENT, mode=mode,
            deadline_ns=self.log.now_ns, job="llama", action="shrink", target="job/llama",
            members=members,
        )  # fmt: skip
        self.log.event("recovery_decided", data)

    def completed(self, step: int) -> None:
        data = AttemptCompleted(
            at_ns=self.log.now_ns, reason="r", decision="llama/2", actor="a", job="llama", step=step
        )
        self.log.event("attempt_completed", data)

    def closed(self, outcome: Any = "recovered") -> None:
        data = IncidentClosed(
            at_ns=self.log.now_ns, reason="r", incident=INCIDENT, outcome=outcome, jobs=("llama",)
        )
        self.log.event("incident_closed", data)

    def end(self) -> GoodputAccounted:
        data = JobEnded(at_ns=self.log.now_ns, by="alice", reason="r", job="llama")
        self.log.event("job_ended", data)
        return self.accounts[-1]

    @property
    def accounts(self) -> list[GoodputAccounted]:
        return [e.data for e in self.log.conclusions if isinstance(e.data, GoodputAccounted)]

    @property
    def costs(self) -> list[IncidentCosted]:
        return [e.data for e in self.log.conclusions if isinstance(e.data, IncidentCosted)]

    @property
    def resumptions(self) -> list[JobResumed]:
        return [e.data for e in self.log.conclusions if isinstance(e.data, JobResumed)]


def seconds(parts: TimeParts) -> dict[str, int]:
    """Parts that are not zero, in whole seconds; asserts that they are whole."""
    found = {name.removesuffix("_ns"): getattr(parts, name) for name in parts.__struct_fields__}
    assert all(ns % SECOND_NS == 0 for ns in found.values()), found
    return {name: ns // SECOND_NS for name, ns in found.items() if ns}


def total_ns(parts: TimeParts) -> int:
    return sum(getattr(parts, name) for name in parts.__struct_fields__)


def test_a_healthy_job_starts_and_is_then_productive() -> None:
    run = Run()
    run.wait(20)
    run.sampled(0)
    run.train(1, 100)
    last = run.end()
    assert seconds(last.parts) == {"start": 21, "productive": 99}
    assert (last.since_ns, last.until_ns) == (run.submitted_ns, run.log.now_ns)
    assert (last.step, last.world, last.world_full, last.ended) == (100, 4, 4, True)
    assert last.step_ns == SECOND_NS


def test_an_account_is_told_once_a_minute_and_sums_to_the_time_since_the_submission() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 150)
    assert [each.until_ns - each.since_ns for each in run.accounts] == [
        60 * SECOND_NS, 120 * SECOND_NS,
    ]  # fmt: skip
    for each in run.accounts:
        assert total_ns(each.parts) == each.until_ns - each.since_ns


def shrunk() -> Run:
    """Step 10, 4 s of silence, a verdict, 2 s, a decision, 3 s, the first step of three ranks."""
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.wait(4)
    run.verdict()
    run.held()
    run.wait(2)
    run.decided()
    run.wait(2)
    run.completed(10)
    run.train(11, 11)
    return run


def test_a_recovery_is_detection_then_decision_then_recovery() -> None:
    run = shrunk()
    (resumed,) = run.resumptions
    assert (resumed.step, resumed.world, resumed.decision) == (11, 3, "llama/2")
    assert resumed.lost_ns == 9 * SECOND_NS
    run.closed()
    (cost,) = run.costs
    assert seconds(cost.parts) == {"detection": 4, "decision": 2, "recovery": 3}
    assert (cost.lost_ns, cost.lost_gpu_ms) == (9 * SECOND_NS, 36_000)
    assert not cost.final  # a rank is missing from here on


def test_steps_with_fewer_ranks_are_degraded_by_the_share_that_is_missing() -> None:
    run = shrunk()
    run.closed()
    run.train(12, 51)
    last = run.end()
    assert seconds(last.parts) == {
        "start": 1, "productive": 9 + 30, "degraded": 10, "detection": 4, "decision": 2,
        "recovery": 3,
    }  # fmt: skip
    final = run.costs[-1]
    assert final.final
    assert seconds(final.parts)["degraded"] == 10


def test_a_cost_that_still_grows_is_told_again_by_the_hour() -> None:
    run = shrunk()
    run.closed()
    run.train(12, 3700)
    assert [cost.final for cost in run.costs] == [False, False]
    assert run.costs[1].lost_ns > 800 * SECOND_NS


def test_a_job_that_recovers_before_its_first_step_resumes_too() -> None:
    run = Run()
    run.sampled(0)
    run.wait(5)
    run.verdict()
    run.decided()
    run.wait(5)
    run.completed(0)
    run.train(1, 2)
    (resumed,) = run.resumptions
    assert (resumed.step, resumed.decision, resumed.lost_ns) == (1, "llama/2", 0)
    assert run.end().parts.start_ns == 11 * SECOND_NS


def test_steps_that_are_done_twice_are_redone_and_charged_to_their_incident() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 60)
    run.verdict()
    run.decided(members="0-3")
    run.wait(30)
    run.completed(50)
    run.sampled(60)  # a sample taken before the job went back
    run.wait(2)
    run.train(51, 51)
    run.closed()
    assert not run.costs[-1].final
    run.train(52, 70)
    last = run.end()
    assert last.redone_count == 10
    assert last.step == 70
    parts = seconds(last.parts)
    assert (parts["redone"], parts["productive"], parts["recovery"]) == (9, 69, 33)
    assert run.costs[-1].final
    assert seconds(run.costs[-1].parts) == {"recovery": 33, "redone": 9}


def test_a_job_that_stands_still_and_goes_on_without_a_word_was_stalled() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.wait(29)
    run.train(41, 50)
    assert seconds(run.end().parts) == {"start": 1, "productive": 49, "stalled": 29}
    assert run.resumptions == []


def test_a_verdict_explains_the_stalls_since_its_incident_began() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.wait(14)
    run.train(41, 80)
    began_ns = run.log.now_ns
    run.wait(9)
    run.train(81, 100)
    opened = IncidentOpened(
        at_ns=run.log.now_ns, reason="r", incident=INCIDENT, trigger="verdict", began_ns=began_ns
    )
    run.log.event("incident_opened", opened)
    run.verdict("network.link")
    run.train(101, 120)
    run.closed()
    assert seconds(run.costs[0].parts) == {"detection": 9}
    parts = seconds(run.end().parts)
    assert (parts["stalled"], parts["detection"]) == (14, 9)


def test_a_stall_that_passes_by_itself_after_a_verdict_costs_what_it_lasted() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.wait(10)
    run.verdict("network.link")
    run.wait(19)
    run.train(41, 50)
    run.closed("quiet")
    assert seconds(run.costs[0].parts) == {"detection": 10, "decision": 19}
    assert run.costs[0].final


@pytest.mark.parametrize("how", ["approve", "withheld", "vetoed", "shadow"])
def test_time_in_which_a_person_is_waited_for_is_waiting(how: str) -> None:
    run = Run()
    log = run.log
    run.sampled(0)
    run.train(1, 40)
    run.wait(5)
    run.verdict()
    if how == "withheld":
        data = RecoveryWithheld(
            at_ns=log.now_ns, reason="r", incident=INCIDENT, action="shrink", target="job/llama",
            job="llama",
        )  # fmt: skip
        log.event("recovery_withheld", data)
    else:
        run.decided(mode="shadow" if how == "shadow" else "approve")
    if how == "vetoed":
        log.event(
            "decision_vetoed",
            DecisionVetoed(at_ns=log.now_ns, by="a", reason="r", decision="llama/2"),
        )
    run.wait(50)
    expected = {"start": 1, "productive": 39, "open": 55}
    if how == "approve":
        data_ = DecisionApproved(at_ns=log.now_ns, by="a", reason="r", decision="llama/2")
        log.event("decision_approved", data_)
        run.wait(3)
        run.completed(40)
        run.train(41, 41)
        expected = {"start": 1, "productive": 39, "detection": 5, "waiting": 50, "recovery": 4}
    assert seconds(run.end().parts) == expected


def test_what_a_step_takes_longer_is_degraded_only_while_a_verdict_says_so() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.train(41, 50, step_s=2.0)  # not known to be slow
    run.verdict("straggler.gpu")
    run.train(51, 60, step_s=2.0)
    run.train(61, 100)  # thirty usual steps end it
    run.train(101, 110, step_s=2.0)
    last = run.end()
    assert seconds(last.parts) == {"start": 1, "productive": 39 + 20 + 10 + 40 + 20, "degraded": 10}
    assert seconds(run.costs[-1].parts) == {"degraded": 10}


def test_agents_that_regroup_alone_are_a_recovery_too() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.wait(20)
    data = MembershipReported(
        at_ns=run.log.now_ns, reason="r", job="llama", epoch=1, members="0-2", world=3, step=10
    )
    run.log.event("membership_reported", data)
    run.wait(4)
    run.train(11, 11)
    (resumed,) = run.resumptions
    assert (resumed.decision, resumed.world) == ("", 3)
    parts = seconds(run.end().parts)
    assert (parts["detection"], parts["recovery"]) == (20, 5)


def test_a_step_that_is_seen_only_after_the_hold_was_done_before_it() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.log.tick(1)
    run.held()
    run.wait(2)
    run.sampled(11)
    run.decided()
    run.wait(4)
    run.completed(11)
    run.train(12, 12)
    parts = seconds(run.end().parts)
    assert parts == {"start": 1, "productive": 10, "decision": 2, "recovery": 5}


def test_a_hold_that_did_not_come_about_holds_up_no_account() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.held()
    run.train(11, 60)
    parts = seconds(run.end().parts)
    assert parts["productive"] >= 57


def test_an_attempt_that_fails_goes_back_to_deciding() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.verdict()
    run.decided()
    run.wait(6)
    failed = AttemptFailed(
        at_ns=run.log.now_ns, reason="r", decision="llama/2", actor="a", job="llama"
    )
    run.log.event("attempt_failed", failed)
    run.wait(3)
    run.decided()
    run.wait(4)
    run.completed(10)
    run.train(11, 11)
    parts = seconds(run.end().parts)
    assert (parts["decision"], parts["recovery"]) == (3, 6 + 5)


def test_the_cost_of_a_grouped_incident_is_that_of_the_one_that_it_belongs_to() -> None:
    run = shrunk()
    grouped = IncidentGrouped(
        at_ns=run.log.now_ns, reason="r", incident="i-0", member=INCIDENT, rule="component"
    )
    run.log.event("incident_grouped", grouped)
    run.closed()
    assert [cost.incident for cost in run.costs] == ["i-0"]
    assert run.costs[0].lost_ns == 9 * SECOND_NS


def test_an_incident_that_took_no_time_costs_nothing_and_that_is_said() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.verdict("gpu.memory")
    run.train(41, 60)
    run.closed("no_action")
    (cost,) = run.costs
    assert (cost.lost_ns, cost.final) == (0, True)


def test_a_verdict_that_is_taken_back_leaves_no_time_to_it() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.verdict("straggler.host")
    run.verdict("none", verdict="no-fault")
    run.train(41, 60, step_s=2.0)
    assert seconds(run.end().parts) == {"start": 1, "productive": 79}


def test_a_job_of_the_same_name_begins_anew_with_an_account_of_its_own() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.log.submitted("n1")
    assert run.accounts[-1].ended
    run.sampled(0)
    run.train(1, 5)
    last = run.end()
    assert (last.world_full, last.step) == (2, 5)
    assert seconds(last.parts) == {"start": 1, "productive": 4}


def test_samples_that_make_no_sense_move_nothing() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 10)
    run.sampled(2**50)
    run.sampled(10_000)
    run.sampled(11, job="other")
    run.sampled(11, steps=b"short")
    run.sampled(11, at_ns=run.log.now_ns - 31 * SECOND_NS)
    last = run.end()
    assert last.step == 10
    with pytest.raises(MalformedFactError):
        Goodput().configure(b'{"x": 1}')


def test_a_rank_that_comes_back_ends_what_its_absence_costs() -> None:
    run = shrunk()
    run.closed()
    run.train(12, 51)
    run.decided(members="0-3")
    run.completed(51)
    run.train(52, 91)
    last = run.end()
    assert last.world == 4
    assert seconds(last.parts)["degraded"] == 10
    assert seconds(run.costs[-1].parts)["degraded"] == 10


def test_a_decision_is_charged_to_the_incident_that_its_own_was_grouped_with() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.verdict()
    run.decided(mode="approve")
    grouped = IncidentGrouped(
        at_ns=run.log.now_ns, reason="r", incident="i-0", member=INCIDENT, rule="component"
    )
    run.log.event("incident_grouped", grouped)
    approved = DecisionApproved(at_ns=run.log.now_ns, by="a", reason="r", decision="llama/2")
    run.log.event("decision_approved", approved)
    run.wait(4)
    run.completed(40)
    run.train(41, 41)
    run.end()
    assert {cost.incident: seconds(cost.parts) for cost in run.costs} == {"i-0": {"recovery": 5}}


def test_what_is_said_of_a_job_that_nobody_submitted_is_no_time_of_anybody() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.log.event("job_ended", JobEnded(at_ns=run.log.now_ns, by="a", reason="r", job="llama"))
    told = len(run.log.conclusions)
    membership = MembershipReported(
        at_ns=run.log.now_ns, reason="r", job="llama", epoch=1, members="0-2", world=3, step=10
    )
    run.verdict()
    run.held()
    run.decided()
    run.log.event("membership_reported", membership)
    run.completed(10)
    run.closed()
    run.train(41, 120)
    assert len(run.log.conclusions) == told


@pytest.mark.parametrize("ranks_per_node", [0, 2**30])
def test_a_job_of_no_ranks_or_of_more_than_can_be_named_has_no_account(ranks_per_node: int) -> None:
    log = Log(Goodput())
    log.submitted("n1", "n2", ranks_per_node=ranks_per_node)
    assert log.tick(61) == []


def test_a_verdict_from_old_evidence_makes_no_time_a_detection() -> None:
    run = Run()
    run.sampled(0)
    run.train(1, 40)
    run.wait(5)
    late = FaultAttributed(
        at_ns=run.log.now_ns, reason="r", incident=INCIDENT, revision=0, verdict="attributed",
        fault_class="gpu.off_bus", jobs=("llama",), late=True,
    )  # fmt: skip
    run.log.event("fault_attributed", late)
    run.train(41, 50)
    assert seconds(run.end().parts) == {"start": 1, "productive": 49, "stalled": 5}


def test_the_state_stays_small_however_many_names_and_decisions_there_were() -> None:
    run = Run()
    run.sampled(0)
    sizes = []
    for round_ in range(3):
        for number in range(NAMES_MAX):
            name = f"{round_}-{number:04d}"
            now_ns = run.log.now_ns
            run.log.event(
                "incident_opened",
                IncidentOpened(
                    at_ns=now_ns, reason="r", incident=f"i-{name}", trigger="verdict",
                    began_ns=now_ns, jobs=("llama",),
                ),
            )  # fmt: skip
            run.log.event(
                "incident_grouped",
                IncidentGrouped(
                    at_ns=now_ns, reason="r", incident=INCIDENT, member=f"i-{name}", rule="cited"
                ),
            )
            run.log.event(
                "recovery_decided",
                RecoveryDecided(
                    at_ns=now_ns, reason="r", decision=f"llama/{name}", incident=f"i-{name}",
                    mode="approve", deadline_ns=now_ns, job="llama", action="shrink",
                    target="job/llama", members="0-2",
                ),
            )  # fmt: skip
        sizes.append(len(run.log.processor.snapshot()))
    assert sizes[2] == sizes[1]


Act = Callable[[Run], Any]
acts: st.SearchStrategy[Act] = st.one_of(
    st.sampled_from((1, 2, 5, 61)).map(lambda s: lambda run: run.log.tick(s)),
    st.tuples(st.integers(0, 40), st.sampled_from((0.0, 0.5, 1.0, 90.0)), st.integers(-2, 40)).map(
        lambda drawn: (
            lambda run: run.sampled(
                drawn[0],
                step_s=drawn[1],
                at_ns=run.log.now_ns + drawn[2] * SECOND_NS // 10,
            )
        )
    ),
    st.sampled_from(("gpu.off_bus", "straggler.gpu")).map(
        lambda name: lambda run: run.verdict(name)
    ),
    st.just(lambda run: run.verdict("none", verdict="no-fault")),
    st.just(lambda run: run.held()),
    st.just(
        lambda run: run.log.event(
            "incident_opened",
            IncidentOpened(
                at_ns=run.log.now_ns,
                reason="r",
                incident=INCIDENT,
                trigger="verdict",
                began_ns=run.submitted_ns,
                jobs=("llama",),
            ),
        )
    ),
    st.tuples(st.sampled_from(("0-3", "0-2", "0", "")), st.sampled_from(("act", "approve"))).map(
        lambda drawn: lambda run: run.decided(*drawn)
    ),
    st.integers(0, 40).map(lambda step: lambda run: run.completed(step)),
    st.sampled_from(("recovered", "withheld")).map(lambda how: lambda run: run.closed(how)),
)


@settings(max_examples=150)
@given(st.lists(acts, max_size=40))
def test_whatever_happens_the_parts_sum_to_wall_time_and_costs_to_no_more(
    actions: list[Act],
) -> None:
    run = Run()
    for act in actions:
        act(run)
    last = run.end()
    for each in run.accounts:
        assert total_ns(each.parts) == each.until_ns - each.since_ns
        assert all(getattr(each.parts, name) >= 0 for name in each.parts.__struct_fields__)
    assert last.until_ns >= run.log.now_ns
    final = [cost for cost in run.costs if cost.final]
    assert all(total_ns(cost.parts) == cost.lost_ns for cost in run.costs)
    assert sum(cost.lost_ns for cost in final) <= last.until_ns - last.since_ns
