"""Promises about processes that fault: whose they are decides whether anybody is concerned."""

from typing import Any

from nemesis.schemas.observed import LogLineWritten
from nemesis.schemas.operated import JobEnded
from tests.attribution_log import xid
from tests.test_cascades import NODES, Job

FAULT = "pid=99, name=cuda_test, MMU Fault: ENGINE GRAPHICS"
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


def test_a_process_that_faults_while_the_job_goes_on_was_somebody_elses() -> None:
    for code in (13, 31, 43, 45):
        job = Job(period_s=5)
        job.run(20)
        job.log.kernel(xid(code, rest=FAULT), "n2")
        job.run(40)
        assert not job.log.verdicts


def test_a_test_that_faults_on_two_nodes_while_the_job_goes_on_was_somebody_elses() -> None:
    for code in (13, 31):
        job = Job(period_s=5)
        job.run(20)
        job.log.kernel(xid(code, rest=FAULT), "n2")
        job.run(7)
        job.log.kernel(xid(code, rest=FAULT), "n3")
        job.run(40)
        assert not job.log.verdicts


def test_a_test_that_faults_just_before_its_nodes_job_ends_concerns_nobody() -> None:
    job = Job(period_s=5)
    job.log.submitted("m1", "m2", ranks_per_node=1, job="other")
    job.run(20)
    job.log.kernel(xid(13, rest=FAULT), "n2")
    ended = JobEnded(at_ns=job.log.now_ns, by="alice", reason="done", job="llama")
    job.log.event("job_ended", ended)
    job.log.tick(30)
    assert not job.log.verdicts


def test_faults_alike_on_two_nodes_of_a_job_that_stands_are_its_programs() -> None:
    job = Job(period_s=5)
    job.run(20)
    for node in ("n2", "n3"):
        job.log.kernel(xid(31, rest=FAULT), node)
    job.run(60, stands_still=True)
    assert set(job.named) == {"program/llama"}


def test_a_process_that_faults_and_is_a_rank_that_ended_is_the_programs() -> None:
    job = Job(period_s=5)
    job.run(20)
    job.log.kernel(xid(31, rest=FAULT), "n2")
    job.log.exited(2, node="n2", pid=99, signal=6)
    job.run(30, stands_still=True)
    assert set(job.named) == {"program/llama"}


def test_what_stops_the_job_later_is_not_what_somebody_elses_process_did() -> None:
    job = Job(period_s=5)
    job.run(20)
    job.log.kernel(xid(31, rest=FAULT), "n2")
    job.run(12)
    job.run(60, stands_still=True)
    assert not job.named


def test_a_fault_on_gpus_of_two_nodes_is_the_programs_and_on_one_may_be_the_gpus() -> None:
    for ranks, named in (((2,), set[str]()), ((2, 5), {"program/llama"})):
        job = Job()
        job.run(20)
        for rank in ranks:
            fields: dict[str, Any] = {"job": "llama", "rank": rank, "text": ILLEGAL}
            job.log.told("log", LogLineWritten, NODES[rank // 2], source="program", **fields)
        job.run(10, stands_still=True)
        assert set(job.named) == named
        assert job.log.last.fault_class == "app.program"


def test_what_ranks_print_when_they_end_makes_nobody_elses_fault_theirs() -> None:
    job = Job(period_s=5)
    job.run(20)
    job.log.kernel(xid(13, rest=FAULT), "n2")
    job.run(15, stands_still=True)
    for node, rank in (("n2", 2), ("n3", 4)):
        job.log.kernel(xid(43, rest=f"pid={rank}, name=python3, Ch 00000008"), node)
        job.log.exited(rank, node=node, pid=rank, signal=6)
    job.run(60, stands_still=True)
    assert not job.named
