"""Promises of the score: it knows the truth, and a wrong blame is never hidden by a right one."""

import msgspec
import pytest

from nemesis.schemas.codes import FaultClass, Verdict
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, FaultAttributed
from nemesis.sim.cluster import load_cluster
from nemesis.sim.faults import plan_faults
from nemesis.sim.ledger import (
    FaultInjected,
    MembershipFormed,
    decode_truth,
    encode_truth,
    injected,
)
from nemesis.sim.scenario import Expect
from nemesis.sim.score import Score, score
from tests.planned import planned

SECOND = 1_000_000_000
CLUSTER = load_cluster()
GPU = "gpu/n006/0000:9d:00.0"
EXPECT = Expect()


def fault(kind: str = "xid79") -> FaultInjected:
    plan = planned(kind, after_s=8.0, node="n006", gpu=4)
    return injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)


def verdict(
    at_s: int,
    *culprits: str,
    incident: str = "i-1",
    says: Verdict = "attributed",
    fault_class: FaultClass = "gpu.off_bus",
) -> Fact:
    named = tuple(Culprit(kind=each.split("/")[0], id=each) for each in culprits)  # type: ignore[arg-type]
    return wrap(
        "fault_attributed",
        FaultAttributed(
            at_ns=at_s * SECOND,
            reason="because",
            incident=incident,
            revision=0,
            verdict=says,
            fault_class=fault_class,
            culprits=named,
        ),
    )


def decision(at_s: int, action: str = "shrink", incident: str = "i-1") -> Fact:
    return wrap(
        "recovery_decided",
        RecoveryDecided(
            at_ns=at_s * SECOND,
            reason="because",
            decision="llama/1",
            incident=incident,
            mode="act",
            deadline_ns=200 * SECOND,
            action=action,  # type: ignore[arg-type]
            target=GPU,
            members="0-43,45-111",
        ),
    )


def wrap(kind: str, data: FaultAttributed | RecoveryDecided) -> Fact:
    return Fact(
        seq=1,
        kind=kind,
        key="x",
        id="x",
        at_ns=data.at_ns,
        log_time_ns=data.at_ns,
        late=False,
        data=data,
    )


def resumed(at_s: int, epoch: int = 1, world: int = 111) -> MembershipFormed:
    return MembershipFormed(
        at_ns=at_s * SECOND, epoch=epoch, step=9, world=world, redone_count=0, restarts_count=0
    )


def judge(*facts: Fact, memberships: list[MembershipFormed] | None = None) -> Score:
    return score([fault()], memberships or [], facts, expect=EXPECT)


def test_a_right_verdict_and_a_shrink_pass_with_their_times() -> None:
    result = judge(verdict(109, GPU), decision(110), memberships=[resumed(112)])
    (one,) = result.faults
    assert result.passed
    assert (one.to_verdict_ms, one.to_decision_ms, one.to_resume_ms) == (1000, 2000, 4000)
    assert one.culprit_right
    assert one.class_right
    assert (result.world, result.steps_redone_count, result.restarts_count) == (111, 0, 0)


def test_nothing_said_is_not_detected() -> None:
    result = judge()
    assert not result.passed
    assert not result.faults[0].detected
    assert result.faults[0].to_verdict_ms is None


def test_a_verdict_without_recovery_does_not_pass() -> None:
    result = judge(verdict(109, GPU), decision(110))
    assert not result.recovered
    assert not result.passed


@pytest.mark.parametrize("healthy", ["gpu/n007/0000:9d:00.0", "gpu/n006/0000:1b:00.0", "switch/l1"])
def test_a_healthy_part_that_was_ever_named_is_a_wrong_blame(healthy: str) -> None:
    result = judge(
        verdict(109, healthy), verdict(110, GPU), decision(111), memberships=[resumed(112)]
    )
    assert result.faults[0].wrong_blame == (healthy,)
    assert not result.passed


def test_the_rank_and_the_node_of_a_broken_gpu_are_no_wrong_blame_but_not_the_culprit() -> None:
    result = judge(verdict(109, "rank/llama/44", "node/n006"))
    assert result.faults[0].wrong_blame == ()
    assert not result.faults[0].culprit_right


def test_an_incident_before_the_fault_is_a_false_alarm() -> None:
    result = judge(
        verdict(103, GPU, incident="i-0"),
        verdict(109, GPU),
        decision(110),
        memberships=[resumed(112)],
    )
    assert result.false_alarms == ("i-0",)
    assert not result.passed


def test_a_recovery_that_does_not_fit_the_fault_does_not_pass() -> None:
    result = judge(verdict(109, GPU), decision(110, "raise_timeout"), memberships=[resumed(112)])
    assert not result.faults[0].action_right
    assert not result.passed


def test_a_decision_under_another_incident_counts_by_the_ranks_that_it_replaces() -> None:
    other = decision(110, incident="n006/process/1/1")
    apart = msgspec.structs.replace(other.data, removed_ranks=(3,))
    about = msgspec.structs.replace(other.data, removed_ranks=(44,))
    for data, counts in ((apart, False), (about, True)):
        made = wrap("recovery_decided", data)
        result = judge(verdict(109, GPU), made, memberships=[resumed(112)])
        assert result.faults[0].action_right == counts


def test_a_second_incident_that_names_nobody_does_not_replace_the_verdict() -> None:
    vague = verdict(111, incident="i-2", says="class-only", fault_class="nvlink")
    result = judge(verdict(109, GPU), decision(110), vague, memberships=[resumed(112)])
    assert result.passed
    assert result.faults[0].culprit_right


def test_two_faults_at_once_are_told_apart_by_what_is_named() -> None:
    plan = planned("xid48", after_s=8.0, node="n002", gpu=0)
    other = injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)
    facts = [
        verdict(109, other.culprit, incident="i-2", fault_class="gpu.memory"),
        verdict(109, GPU),
        decision(110),
        decision(111, incident="i-2"),
    ]
    result = score([fault(), other], [resumed(112)], facts, expect=EXPECT)
    assert [each.culprit_right for each in result.faults] == [True, True]
    assert result.passed


def test_the_first_membership_of_the_job_is_no_recovery() -> None:
    assert not judge(
        verdict(109, GPU), decision(110), memberships=[resumed(110, epoch=0)]
    ).recovered


@pytest.mark.parametrize("entry", [fault(), fault("node-lost"), resumed(5)])
def test_a_ledger_entry_comes_back_from_its_bytes(entry: FaultInjected | MembershipFormed) -> None:
    assert decode_truth(encode_truth(entry)) == entry


def test_what_is_no_ledger_entry_is_refused() -> None:
    with pytest.raises(MalformedFactError, match="ledger"):
        decode_truth(b"{}")
