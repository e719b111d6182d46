"""Promises about several faults of one job: none hides behind another, and none is made up."""

import pytest

from nemesis.schemas.observed import LogLineWritten
from tests.attribution_log import SECOND_NS, xid
from tests.test_attribution import recovered
from tests.test_cascades import HEALTH, NODES, Job, digest

DOUBLE_BIT = "pid=7, name=python3, An uncorrectable double bit error (DBE) has been detected"


def test_a_rank_that_calls_another_collective_is_named_beside_a_link_that_is_down() -> None:
    job = Job()
    job.run(20)
    job.rows["n6"] = [{}, {"port_up": 0, "link_downed_count": 1}, {}]
    job.run(12, stands_still=True)
    for rank in range(12):
        digest(job.log, rank, "all_gather" if rank == 7 else "all_reduce")
    job.run(6, stands_still=True)
    assert set(job.named) == {"link/n6/mlx5_1", "rank/llama/7"}
    by_class = {each.fault_class: each.incident for each in job.log.verdicts}
    assert len(set(by_class.values())) == len(by_class) == 2


def test_a_rank_that_gives_up_within_a_poll_after_the_job_stopped_is_not_named() -> None:
    job = Job(period_s=5)
    job.run(20)
    for rank in range(12):
        if rank != 2:
            digest(job.log, rank)
    job.log.now_ns += SECOND_NS // 2
    job.abort(2)
    job.run(10, stands_still=True)
    assert not job.named


def test_a_rank_that_aborts_before_its_peers_wait_for_long_is_suspected() -> None:
    job = Job()
    job.run(20)
    job.log.exited(2, node="n2", pid=40_002, signal=6)
    job.log.now_ns += SECOND_NS // 2
    for rank in range(12):
        if rank != 2:
            digest(job.log, rank)
    job.run(8, stands_still=True)
    assert not job.named
    assert "rank/llama/2" in job.log.last.reason


def test_a_gpu_that_fails_below_a_link_that_is_down_is_a_fault_of_its_own() -> None:
    hung = "pid=7, name=python3, Timeout after 6s of waiting for RPC response"
    for line in (xid(119, rest=hung), xid(48, rest=DOUBLE_BIT), xid(94, rest="pid=7, Contained")):
        job = Job()
        job.run(20)
        job.rows["n6"] = [{}, {"port_up": 0, "link_downed_count": 1}, {}]
        job.run(12, stands_still=True)
        job.log.kernel(line, "n6")
        job.run(5, stands_still=True)
        assert set(job.named) == {"link/n6/mlx5_1", "gpu/n6/0000:1b:00.0"}
        assert len({each.incident for each in job.log.verdicts}) == 2


def test_what_ended_processes_print_below_a_link_that_is_down_follows_from_it() -> None:
    job = Job()
    job.run(20)
    job.rows["n6"] = [{}, {"port_up": 0, "link_downed_count": 1}, {}]
    job.run(12, stands_still=True)
    job.log.kernel(xid(43, rest="pid=99, name=python3, Ch 00000008"), "n6")
    job.run(5, stands_still=True)
    assert set(job.named) == {"link/n6/mlx5_1"}


def test_a_gpu_that_loses_memory_is_named_beside_one_that_left_the_bus_on_its_node() -> None:
    for after_recovery in (False, True):
        job = Job()
        job.run(20)
        job.log.kernel(xid(79), "n6")
        if after_recovery:
            recovered(job.log, job.log.last.incident, 10)
        job.log.kernel(xid(48, "0000:1c:00", DOUBLE_BIT), "n6")
        job.run(4, stands_still=True)
        assert set(job.named) == {"gpu/n6/0000:1b:00.0", "gpu/n6/0000:1c:00.0"}


def test_a_nic_that_fails_on_a_node_whose_gpu_was_recovered_from_is_named_too() -> None:
    for after_recovery in (False, True):
        job = Job()
        job.run(20)
        job.log.kernel(xid(79), "n6")
        if after_recovery:
            recovered(job.log, job.log.last.incident, 10)
        job.log.kernel(HEALTH, "n6")
        job.run(4, stands_still=True)
        assert set(job.named) == {"gpu/n6/0000:1b:00.0", "nic/n6/mlx5_0"}


def test_gpus_that_leave_the_bus_together_stay_one_incident() -> None:
    job = Job()
    job.run(20)
    job.log.kernel(xid(79), "n6")
    job.log.kernel(xid(79, "0000:1c:00"), "n6")
    job.run(4, stands_still=True)
    assert len(job.log.last.culprits) == 2


def test_a_second_gpu_that_leaves_the_bus_is_named_at_once_too_before_a_recovery_is_planned() -> (
    None
):
    job = Job()
    job.run(20)
    assert job.log.kernel(xid(79), "n6")
    (second,) = job.log.kernel(xid(79, "0000:1c:00"), "n6")
    assert second.urgent
    assert len(job.log.last.culprits) == 2
    assert not job.log.kernel(xid(79, "0000:1c:00", "again"), "n6")


def test_a_gpu_on_which_a_rank_gave_up_and_that_later_breaks_is_named() -> None:
    job = Job()
    job.run(20)
    job.run(8, stands_still=True)
    job.abort(2)
    job.run(5, stands_still=True)
    recovered(job.log, job.log.last.incident, 2)
    job.run(5)
    job.log.kernel(xid(48, rest=DOUBLE_BIT), "n2")
    job.run(4)
    assert job.named[-1] == "gpu/n2/0000:1b:00.0"


def test_a_node_that_a_recovery_left_behind_unheard_is_named_all_the_same() -> None:
    job = Job()
    job.run(20)
    job.run(1, stands_still=True, silent="n6")
    job.log.exited(2, node="n2", signal=9)
    recovered(job.log, job.log.last.incident, 2, 10, 11)
    job.run(10, silent="n6")
    assert job.named == ["rank/llama/2", "node/n6"]


def test_a_node_that_was_heard_after_a_recovery_left_it_may_be_switched_off() -> None:
    job = Job()
    job.run(20)
    job.log.exited(2, node="n2", signal=9)
    recovered(job.log, job.log.last.incident, 2, 10, 11)
    job.run(3)
    job.run(20, silent="n6")
    assert job.named == ["rank/llama/2"]


def test_a_link_that_flaps_on_after_a_recovery_is_another_incident() -> None:
    job = Job()
    job.run(20)
    for downs in range(1, 7):
        job.rows["n6"] = [{}, {"link_downed_count": downs}, {}]
        job.run(2, stands_still=True)
        if downs == 2:
            recovered(job.log, job.log.last.incident)
    assert len(NODES) == 6
    incidents = {each.incident for each in job.log.verdicts if each.culprits}
    assert len(incidents) == 2
    assert set(job.named) == {"link/n6/mlx5_1"}


def test_a_link_that_goes_down_where_a_rank_gave_up_makes_the_program_no_culprit() -> None:
    job = Job()
    job.run(20)
    job.run(8, stands_still=True)
    job.abort(10)
    job.run(4, stands_still=True)
    job.log.kernel("mlx5_core 0000:41:00.0 enp65s0np0: Link down", "n6")
    job.run(12, stands_still=True)
    assert "program/llama" not in job.named


def printed(job: Job, node: str, rank: int, text: str) -> None:
    fields = {"job": "llama", "rank": rank, "source": "program", "text": text}
    job.log.told("log", LogLineWritten, node, **fields)


ABORTED = "pid=40011, name=pt_main_thread, Ch 00000011"


def test_an_abort_on_a_node_where_memory_ran_out_before_blames_no_program() -> None:
    job = Job()
    job.run(20)
    job.log.kernel("Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB", "n6")
    job.run(4)
    for code in (43, 45):
        job.log.kernel(xid(code, rest=ABORTED), "n6")
    job.log.exited(11, node="n6", pid=40_011, signal=6)
    job.run(30, stands_still=True)
    assert not any(each.fault_class == "app.program" for each in job.log.verdicts)
    assert job.named == ["process/n6/77"]


def test_processes_of_others_that_end_beside_a_rank_that_aborted_blame_no_program() -> None:
    job = Job()
    job.run(20)
    for code in (43, 45):
        job.log.kernel(xid(code, rest=ABORTED), "n6")
    job.log.exited(11, node="n6", pid=40_011, signal=6)
    job.run(4, stands_still=True)
    job.log.kernel(xid(45, rest="pid=281691, name=python3, Ch 00000002"), "n6")
    job.run(40, stands_still=True)
    assert not job.named


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
    ],
)
def test_what_a_program_does_wrong_while_a_link_elsewhere_is_down_is_a_fault_of_its_own(
    text: str,
) -> None:
    job = Job()
    job.run(20)
    job.rows["n6"] = [{}, {"port_up": 0, "link_downed_count": 1}, {}]
    job.run(12, stands_still=True)
    printed(job, "n2", 3, text)
    job.run(6, stands_still=True)
    assert set(job.named) == {"link/n6/mlx5_1", "program/llama"}
    assert len({each.incident for each in job.log.verdicts}) == 2


def test_what_ranks_said_before_a_recovery_says_nothing_of_what_comes_after_it() -> None:
    job = Job()
    job.run(20)
    printed(job, "n2", 3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    job.run(6, stands_still=True)
    (incident,) = {each.incident for each in job.log.verdicts}
    recovered(job.log, incident)
    job.run(20)
    printed(job, "n5", 9, "RuntimeError: something else")
    job.run(6)
    assert [each.fault_class for each in job.log.verdicts if each.incident != incident] == [
        "unknown"
    ]
