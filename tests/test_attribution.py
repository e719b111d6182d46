"""Promises of attribution: who is blamed, who is spared, when, and how often it is said."""

from typing import Any

import pytest

from nemesis.processors.attribution.attribution import Attribution
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.operated import JobEnded
from tests.attribution_log import SECOND_NS, Log, cluster, gpu_block, xid

LOST = "GPU has fallen off the bus."


def culprits(verdict: FaultAttributed) -> list[str]:
    return [each.id for each in verdict.culprits]


def recovered(log: Log, incident: str, *removed: int, decision: str = "llama/1") -> None:
    log.event(
        "recovery_decided",
        RecoveryDecided(
            at_ns=log.now_ns,
            reason="r",
            decision=decision,
            incident=incident,
            mode="act",
            deadline_ns=log.now_ns,
            job="llama",
            action="shrink",
            target="job/llama",
            removed_ranks=removed,
        ),
    )
    log.event(
        "attempt_completed",
        AttemptCompleted(at_ns=log.now_ns, reason="r", decision=decision, actor="a", job="llama"),
    )


def test_a_gpu_off_the_bus_is_named_at_once() -> None:
    log = cluster("n1", "n2")
    (conclusion,) = log.kernel(xid(79, "0000:1c:00", LOST), "n2")
    verdict = conclusion.data
    assert isinstance(verdict, FaultAttributed)
    assert conclusion.urgent
    assert culprits(verdict) == ["gpu/n2/0000:1c:00.0"]
    assert (verdict.verdict, verdict.fault_class) == ("attributed", "gpu.off_bus")
    assert (verdict.jobs, verdict.ranks) == (("llama",), (3,))
    assert conclusion.cause == (log.facts[-1].seq,)
    assert verdict.evidence[0].fact == log.facts[-1].id
    assert verdict.evidence[0].text == log.facts[-1].data.text


def test_the_incident_is_named_after_the_fact_that_opened_it() -> None:
    names = set()
    for node in ("n1", "n1", "n2"):
        log = Log()
        log.kernel(xid(79), node)
        names.add(log.last.incident)
    assert len(names) == 2
    assert all(name.startswith("i-") and len(name) == 12 for name in names)


def test_what_the_lost_gpu_causes_on_its_node_is_the_same_incident() -> None:
    log = cluster("n1")
    log.kernel(xid(79), "n1")
    log.kernel("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
    log.kernel(xid(74, "0000:1c:00", "NVLink: fatal error detected on link 1(0x1)"))
    log.kernel(xid(119))
    log.kernel(xid(154, rest="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot)"))
    log.tick(3)
    assert culprits(log.last) == ["gpu/n1/0000:1b:00.0"]
    assert log.last.fault_class == "gpu.off_bus"
    assert log.last.victims == ("gpu/n1/0000:1c:00.0",)
    assert log.last.driver_action == "node_reboot"
    assert len(log.last.evidence) == 5
    assert [each.revision for each in log.verdicts] == [0, 1]


def test_equal_evidence_is_said_once() -> None:
    log = Log()
    for _ in range(5):
        log.kernel(xid(79, rest=LOST))
        log.tick(3)
    assert len(log.verdicts) == 1


def test_an_error_that_repeats_for_an_hour_stays_one_incident() -> None:
    log = Log()
    for _ in range(20):
        log.kernel(xid(119, rest="Timeout after 6s of waiting for RPC response from GPU4 GSP!"))
        log.tick(180)
    assert log.last.fault_class == "gpu.driver"
    assert len(log.verdicts) == 1


def test_a_quiet_incident_is_closed_and_a_later_fault_is_a_new_one() -> None:
    log = Log()
    log.kernel(xid(79))
    log.tick(700)
    log.kernel(xid(79))
    assert len({each.incident for each in log.verdicts}) == 2


def test_another_gpu_minutes_later_is_another_incident() -> None:
    log = Log()
    log.kernel(xid(79))
    log.tick(130)
    log.kernel(xid(79, "0000:1c:00"))
    assert [culprits(each) for each in log.verdicts] == [
        ["gpu/n1/0000:1b:00.0"],
        ["gpu/n1/0000:1c:00.0"],
    ]


def test_a_graver_fault_of_the_same_gpu_is_said_at_once() -> None:
    log = Log()
    log.kernel(xid(63, rest="Row Remapper: New row marked for remapping"))
    log.tick(3)
    assert log.last.signature == "row_remap_pending"
    (conclusion,) = log.kernel(xid(79))
    assert conclusion.urgent
    assert log.last.fault_class == "gpu.off_bus"
    assert log.last.revision == 1


def test_48_is_uncontained_without_94_and_contained_with_it() -> None:
    log = Log()
    log.kernel(xid(48))
    log.tick(1)
    assert log.last.signature == "ecc_uncontained"
    log = Log()
    log.kernel(xid(48))
    log.kernel(xid(94))
    log.tick(2)
    assert log.last.signature == "ecc_contained"
    log = Log()
    log.kernel(xid(48))
    log.kernel(xid(94))
    log.kernel(xid(95))
    log.tick(2)
    assert log.last.signature == "ecc_uncontained"


def test_a_chain_of_memory_errors_is_one_incident_with_the_drivers_word() -> None:
    log = Log()
    log.kernel(xid(48, rest="An uncorrectable double bit error (DBE) has been detected"))
    log.kernel(xid(171, rest="HBM, Uncorrectable DRAM error in FBPA 3"))
    log.kernel(xid(63, rest="Row Remapper: New row marked for remapping"))
    log.kernel(xid(154, rest="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)"))
    log.tick(3)
    assert (log.last.fault_class, log.last.signature) == ("gpu.memory", "ecc_uncontained")
    assert log.last.driver_action == "gpu_reset"
    assert len(log.last.evidence) == 4


def test_154_alone_and_45_alone_blame_nobody() -> None:
    log = Log()
    log.kernel(xid(154, rest="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)"))
    log.kernel(xid(45, rest="Ch 00000006"))
    log.tick(900)
    assert (log.last.verdict, log.last.culprits) == ("insufficient", ())


def test_a_message_in_two_lines_names_the_gpu_of_the_first() -> None:
    log = Log()
    log.kernel("NVRM: The NVIDIA GPU 0000:18:00.0")
    log.kernel("NVRM: (PCI ID: 10de:2330) installed in this system has fallen off the bus and is")
    assert culprits(log.last) == ["gpu/n1/0000:18:00.0"]


def test_counters_that_rise_with_an_xid_are_evidence_and_alone_they_are_not() -> None:
    log = cluster("n1")
    log.sample("n1", gpu_count=2, gpu=gpu_block({}, {"remapped_rows_count": 1}))
    log.sample("n1", gpu_count=2, gpu=gpu_block({}, {"remapped_rows_count": 1, "dram_ue_count": 4}))
    log.tick(3)
    assert not log.verdicts
    log.kernel(xid(48, "0000:1c:00"))
    log.tick(3)
    assert "DRAM: 0 before, 4 now" in log.last.evidence[1].says
    log.sample("n1", gpu_count=2, gpu=gpu_block({}, {"remap_pending": 1, "dram_ue_count": 4}))
    log.tick(3)
    assert len(log.last.evidence) == 3


def test_the_program_is_at_fault_when_gpus_of_several_nodes_report_it() -> None:
    log = cluster("n1", "n2", "n3")
    for node in ("n1", "n2", "n3"):
        log.kernel(xid(31, rest="pid=1942, name=python3, MMU Fault: ENGINE GRAPHICS"), node)
        log.tick(1)
    log.tick(3)
    assert culprits(log.last) == ["program/llama"]
    assert log.last.fault_class == "app.program"
    assert len(log.last.evidence) == 3


def test_a_rank_that_was_killed_is_named_at_once() -> None:
    log = cluster("n1", "n2")
    (conclusion,) = log.exited(1, signal=9)
    assert conclusion.urgent
    assert culprits(log.last) == ["rank/llama/1"]
    assert (log.last.fault_class, log.last.ranks) == ("unknown", (1,))


@pytest.mark.parametrize("fields", [{"exit_code": -9}, {"exit_code": 137}, {"signal": 9}])
def test_a_signal_is_read_however_it_is_told(fields: dict[str, Any]) -> None:
    log = cluster("n1")
    assert log.exited(1, **fields)
    assert "signal 9" in log.last.reason


def test_a_rank_that_left_alone_with_an_error_is_told_of_after_the_hold_back_and_not_named() -> (
    None
):
    log = cluster("n1", "n2")
    assert not log.exited(1, exit_code=1)
    log.tick(2)
    assert (log.last.verdict, culprits(log.last)) == ("class-only", [])
    assert "rank/llama/1" in log.last.reason


def test_a_rank_that_ended_well_is_no_symptom() -> None:
    log = cluster("n1")
    log.exited(0, exit_code=0)
    log.tick(5)
    assert not log.verdicts


def test_who_aborts_after_a_killed_rank_is_a_victim() -> None:
    log = cluster("n1", "n2")
    log.exited(2, node="n2", signal=11)
    for rank, node in ((0, "n1"), (1, "n1"), (3, "n2")):
        log.exited(rank, node=node, signal=6)
    log.tick(3)
    assert culprits(log.last) == ["rank/llama/2"]
    assert log.last.victims == ("rank/llama/0", "rank/llama/1", "rank/llama/3")


def test_of_ranks_that_left_with_errors_only_a_certain_first_one_is_blamed() -> None:
    log = cluster("n1", "n2")
    first_ns = log.now_ns
    log.exited(2, node="n2", exit_code=1, at_ns=first_ns)
    for rank in (0, 1):
        log.exited(rank, node="n1", signal=6, at_ns=first_ns + 300_000_000)
    log.tick(3)
    assert culprits(log.last) == ["rank/llama/2"]
    log = cluster("n1", "n2")
    log.exited(2, node="n2", exit_code=1, at_ns=first_ns, clock_error_ns=500_000_000)
    log.exited(0, node="n1", exit_code=1, at_ns=first_ns + 300_000_000)
    log.tick(3)
    assert (log.last.verdict, culprits(log.last)) == ("insufficient", [])
    assert log.last.missing


def test_a_job_whose_ranks_all_leave_with_one_error_has_a_program_at_fault() -> None:
    log = cluster("n1", "n2")
    for rank in range(4):
        log.exited(rank, node=f"n{1 + rank // 2}", exit_code=2)
    log.tick(3)
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "app.program")


def test_a_job_whose_ranks_are_killed_together_blames_none_of_them() -> None:
    log = cluster("n1", "n2")
    for rank in range(4):
        log.exited(rank, node=f"n{1 + rank // 2}", signal=9)
    log.tick(3)
    assert log.last.verdict == "insufficient"


def test_a_rank_on_a_lost_gpu_is_one_incident_with_it() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79), "n1")
    log.exited(0, node="n1", signal=6)
    log.tick(3)
    assert culprits(log.last) == ["gpu/n1/0000:1b:00.0"]
    assert len(log.last.evidence) == 2
    assert not log.last.victims


def test_an_exit_before_its_cause_is_corrected_by_it() -> None:
    log = cluster("n1", "n2")
    log.exited(0, node="n1", signal=9)
    assert culprits(log.last) == ["rank/llama/0"]
    log.tick(1)
    log.kernel(xid(79), "n1")
    assert culprits(log.last) == ["gpu/n1/0000:1b:00.0"]
    assert log.last.revision == 1


def test_a_process_that_the_kernel_killed_for_memory_explains_its_ranks_exit() -> None:
    log = cluster("n1", "n2")
    log.exited(0, node="n1", signal=9, pid=4711)
    log.kernel("Out of memory: Killed process 4711 (python3) total-vm:1kB", "n1")
    log.tick(3)
    assert culprits(log.last) == ["process/n1/4711"]
    assert log.last.fault_class == "host.oom"
    log = cluster("n1", "n2")
    log.exited(0, node="n1", signal=9, pid=4711)
    log.kernel("Out of memory: Killed process 99 (pingmesh) total-vm:1kB", "n1")
    log.tick(3)
    assert culprits(log.last) == ["rank/llama/0"]


def test_two_ranks_killed_a_minute_apart_are_two_incidents() -> None:
    log = cluster("n1", "n2")
    log.exited(0, node="n1", signal=9)
    log.tick(60)
    log.exited(3, node="n2", signal=9)
    assert [culprits(each) for each in log.verdicts] == [["rank/llama/0"], ["rank/llama/3"]]
    assert len({each.incident for each in log.verdicts}) == 2


def test_the_end_of_a_removed_rank_is_no_symptom() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79), "n1")
    log.exited(0, node="n1", signal=6)
    recovered(log, log.last.incident, 0)
    log.exited(0, node="n1", signal=9)
    log.tick(5)
    assert {each.incident for each in log.verdicts} == {log.verdicts[0].incident}
    assert len(log.verdicts) == 1


def test_what_a_recovered_gpu_still_prints_is_no_new_incident() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79), "n1")
    recovered(log, log.last.incident, 0)
    log.tick(1)
    log.kernel(xid(79, rest=LOST), "n1")
    log.kernel("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
    log.tick(5)
    assert len(log.verdicts) == 1


def test_another_gpu_of_a_recovered_node_is_a_new_incident() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79), "n1")
    recovered(log, log.last.incident, 0)
    log.tick(1)
    log.kernel(xid(79, "0000:1c:00"), "n1")
    assert len({each.incident for each in log.verdicts}) == 2
    assert log.verdicts[-1].ranks == (1,)


def test_a_rank_that_was_started_anew_and_dies_again_is_a_new_incident() -> None:
    log = cluster("n1", "n2")
    log.exited(0, node="n1", signal=9)
    recovered(log, log.last.incident)
    log.tick(20)
    log.exited(0, node="n1", signal=9)
    assert len({each.incident for each in log.verdicts}) == 2


def test_late_evidence_says_that_no_decision_may_follow() -> None:
    log = cluster("n1")
    log.kernel(xid(79), "n1", at_ns=log.now_ns - 60 * SECOND_NS)
    assert log.last.late
    log.kernel(xid(79, rest=LOST), "n1")
    log.tick(3)
    assert not log.last.late


def test_a_job_that_ended_concerns_nobody() -> None:
    log = cluster("n1")
    log.exited(0, node="n1", exit_code=1)
    log.event("job_ended", JobEnded(at_ns=log.now_ns, by="alice", reason="done", job="llama"))
    log.tick(3)
    log.exited(1, node="n1", signal=9)
    assert not log.verdicts
    log.kernel(xid(79), "n1")
    assert (log.last.jobs, log.last.ranks) == ((), ())


def test_settings_are_checked() -> None:
    Attribution().configure(b'{"stall_ns": 5}')
    with pytest.raises(MalformedFactError, match="stall"):
        Attribution().configure(b'{"stall": 5}')
