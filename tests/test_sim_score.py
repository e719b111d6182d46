"""Promises of the score: it knows the truth, and a wrong blame is never hidden by a right one."""

import msgspec
import pytest

from nemesis.schemas.codes import FaultClass, Verdict
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, FailurePredicted, FaultAttributed, RiskBand
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Expect
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import (
    FaultInjected,
    MembershipFormed,
    decode_truth,
    encode_truth,
    injected,
)
from nemesis.sim.truth.score import Score, score
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


def wrap(kind: str, data: FaultAttributed | RecoveryDecided | FailurePredicted) -> Fact:
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


def test_every_job_that_a_fault_concerns_must_go_on_and_all_are_counted() -> None:
    llama, qwen = (
        msgspec.structs.replace(resumed(at_s, world=8), job=job, restarts_count=1)
        for job, at_s in (("llama", 112), ("qwen", 90))
    )
    everywhere = msgspec.structs.replace(fault(), job="")
    stands = score([everywhere], [qwen, llama], [], expect=EXPECT)
    assert "the job did not go on" in stands.broken
    assert (stands.world, stands.restarts_count) == (16, 2)
    its_own = msgspec.structs.replace(fault(), job="llama")
    goes_on = score([its_own], [qwen, llama], [verdict(109, GPU), decision(110)], expect=EXPECT)
    assert goes_on.broken == ()


def test_nothing_said_is_not_detected() -> None:
    result = judge()
    assert not result.passed
    assert not result.faults[0].detected
    assert result.faults[0].to_verdict_ms is None


def test_a_verdict_without_recovery_does_not_pass() -> None:
    result = judge(verdict(109, GPU), decision(110))
    assert not result.recovered
    assert not result.passed


def test_a_recovery_after_which_no_step_comes_does_not_pass_though_nothing_was_expected() -> None:
    said = verdict(109, GPU), decision(110)
    in_vain = score([fault()], [], said)
    assert in_vain.in_vain
    assert not in_vain.passed
    assert in_vain.broken == (), "a scenario that asserts is held to what it asserts"
    assert score([fault()], [resumed(112)], said).passed
    early = score([fault()], [], (decision(90), verdict(109, GPU)))
    assert not early.in_vain


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


def decoy() -> FaultInjected:
    plan = planned("corrected-errors", after_s=8.0, node="n006", gpu=4)
    return injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)


def prediction(at_s: int, component: str = GPU, band: RiskBand = "watch") -> Fact:
    return wrap(
        "failure_predicted",
        FailurePredicted(
            at_ns=at_s * SECOND,
            reason="because",
            component=component,
            fault_class="gpu.memory",
            band=band,
            incident="i-p",
        ),
    )


def quiet(*facts: Fact) -> Score:
    return score([decoy()], [resumed(101, 0), resumed(150, 0)], facts, expect=EXPECT)


def test_a_decoy_that_is_left_alone_passes_whatever_is_recorded_of_it() -> None:
    assert quiet().passed
    assert quiet(prediction(109, band="record")).passed
    assert quiet(verdict(109, says="no-fault", fault_class="none")).passed


@pytest.mark.parametrize(
    ("said", "alarm"),
    [
        (verdict(109, GPU), "i-1"),
        (verdict(109, says="insufficient", fault_class="unknown"), "i-1"),
        (prediction(109), f"predicted gpu.memory of {GPU}"),
        (decision(109), "shrink as llama/1"),
    ],
    ids=["blamed", "suspected", "predicted", "decided"],
)
def test_whatever_is_said_or_done_about_a_decoy_is_a_false_alarm(said: Fact, alarm: str) -> None:
    result = quiet(said)
    assert result.false_alarms == (alarm,)
    assert not result.passed


def test_a_decision_of_an_unattributed_incident_is_needless_only_where_nothing_is_wrong() -> None:
    unknown = decision(109, incident="i-x")
    assert judge(verdict(109, GPU), unknown, memberships=[resumed(112)]).false_alarms == ()


def flap() -> FaultInjected:
    plan = planned("nic-flap", after_s=8.0, node="n006", nic=2)
    return injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)


@pytest.mark.parametrize(
    ("named", "right"),
    [
        (("link/n006/mlx5_4",), True),
        (("nic/n006/mlx5_4",), True),
        (("link/n006/mlx5_4", "nic/n006/mlx5_4"), True),
        (("link/n006/mlx5_4", "node/n006"), False),
        (("node/n006",), False),
        (("nic/n006/mlx5_5",), False),
    ],
)
def test_any_of_the_components_that_a_scenario_accepts_is_the_culprit(
    named: tuple[str, ...], right: bool
) -> None:
    said = verdict(120, *named, fault_class="network.link")
    done = decision(121, "reinit_communicator")
    result = score([flap()], [resumed(140)], [said, done], expect=EXPECT)
    assert result.faults[0].culprit_right == right
    assert result.faults[0].wrong_blame == (("nic/n006/mlx5_5",) if "mlx5_5" in named[0] else ())


def test_hardware_that_is_named_for_a_fault_of_the_program_is_a_wrong_blame() -> None:
    plan = planned("desync", after_s=8.0, node="n006", gpu=4)
    stray = injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)
    said = verdict(120, "rank/llama/44", "node/n006", fault_class="desync")
    done = decision(121, "fix_program")
    result = score([stray], [], [said, done])
    assert result.faults[0].wrong_blame == ("node/n006",)
    innocent = verdict(120, "rank/llama/44", fault_class="desync")
    assert score([stray], [], [innocent, done]).passed


def ecc() -> FaultInjected:
    plan = planned("ecc-precursor", after_s=8.0, fails_after_s=40.0, node="n006", gpu=4)
    return injected(plan_faults(CLUSTER, [plan], 1)[0], 100 * SECOND)


def test_a_failure_that_is_predicted_before_it_comes_is_told_with_its_lead() -> None:
    foreseen = Expect(predicted=True)
    after = [verdict(149, GPU, fault_class="gpu.memory"), decision(149)]
    early = score([ecc()], [resumed(151)], [prediction(120), *after], expect=foreseen)
    assert early.faults[0].predicted_ms == 28_000
    assert early.passed
    late = score([ecc()], [resumed(151)], [*after, prediction(150)], expect=foreseen)
    assert late.broken == ("nothing was predicted before it failed",)


def test_a_job_that_left_before_the_failure_was_never_stopped_by_it() -> None:
    left = decision(121, incident="i-p")
    facts = [prediction(120), left, verdict(149, GPU, fault_class="gpu.memory")]
    result = score([ecc()], [resumed(123), resumed(160)], facts, expect=EXPECT)
    assert result.faults[0].to_resume_ms == 0
    assert result.passed


def test_a_prediction_for_a_healthy_part_is_a_wrong_blame() -> None:
    healthy = "gpu/n007/0000:9d:00.0"
    result = judge(
        prediction(109, healthy), verdict(109, GPU), decision(110), memberships=[resumed(112)]
    )
    assert result.faults[0].wrong_blame == (healthy,)


@pytest.mark.parametrize(
    ("expect", "broken"),
    [
        (Expect(verdict_within_s=0.5), "a verdict took longer than 0.5 s"),
        (Expect(resumed_within_s=3.0), "the job stood for longer than 3 s"),
        (Expect(world_min=112), "111 ranks at the end, expected at least 112"),
        (Expect(), ""),
    ],
)
def test_what_a_scenario_expects_of_its_run_is_held_against_it(expect: Expect, broken: str) -> None:
    facts = [verdict(109, GPU), decision(110)]
    result = score([fault()], [resumed(112)], facts, expect=expect)
    assert result.broken == ((broken,) if broken else ())
    assert result.passed == (not broken)


@pytest.mark.parametrize("entry", [fault(), fault("node-lost"), resumed(5)])
def test_a_ledger_entry_comes_back_from_its_bytes(entry: FaultInjected | MembershipFormed) -> None:
    assert decode_truth(encode_truth(entry)) == entry


def test_what_is_no_ledger_entry_is_refused() -> None:
    with pytest.raises(MalformedFactError, match="ledger"):
        decode_truth(b"{}")
