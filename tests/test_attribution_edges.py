"""Promises of attribution where two stories meet: what joins, what stays apart, what is ignored."""

from typing import Any

from nemesis.schemas.channels import STEP_CHANNELS
from tests.attribution_log import SECOND_NS, Log, cluster, xid
from tests.test_attribution import recovered
from tests.test_collectives import QUIET_S, blamed, group
from tests.test_slowness import HOT, NODES, WORKING, Job, slowed

FAULT = "pid=1942, name=python3, MMU Fault: ENGINE GRAPHICS"
NOISE = "nvidia-modeset: ERROR: GPU:0: something that nobody ever wrote down failed"


def incidents(log: Log) -> set[str]:
    return {verdict.incident for verdict in log.verdicts}


def test_ranks_that_gave_up_and_left_no_dump_are_not_named() -> None:
    log = cluster("n1", "n2")
    log.tick(20)
    for rank in range(4):
        log.exited(rank, node=f"n{1 + rank // 2}", signal=6)
    for rank in (0, 1):
        log.digest(rank, group("0", "0-3", 4, enqueued=5), entry_count=5)
    for rank in (2, 3):
        log.digest(rank, node="n2", dump_missing=True)
    log.tick(QUIET_S)
    assert (log.last.verdict, log.last.culprits) == ("insufficient", ())


def test_a_program_that_faults_where_no_job_runs_concerns_nobody() -> None:
    log = cluster("n1", "n2")
    log.inventory("n9", "0000:1b:00.0")
    for line in (xid(31, rest=FAULT), xid(45, rest="pid=7, name=python3, Ch 00000008")):
        log.kernel(line, "n9")
        log.tick(30)
    assert not log.verdicts
    log.kernel(xid(63), "n9")
    log.tick(3)
    assert log.last.fault_class == "gpu.memory"


def test_a_program_that_faults_elsewhere_minutes_later_is_another_incident() -> None:
    log = cluster("n1", "n2")
    for node in ("n1", "n2"):
        log.kernel(xid(31, rest=FAULT), node)
        for _ in range(125):
            log.sample("n1")
            log.sample("n2")
            log.tick(1)
    assert [[each.id for each in verdict.culprits] for verdict in log.verdicts] == [
        ["program/llama"],
        ["program/llama"],
    ]
    assert len(incidents(log)) == 2


def test_ranks_of_two_jobs_that_are_killed_together_are_two_incidents() -> None:
    log = Log()
    for node, job in (("n1", "llama"), ("n2", "other")):
        log.inventory(node, "0000:1b:00.0", "0000:1c:00.0")
        log.submitted(node, job=job)
    log.exited(0, node="n1", job="llama", signal=9)
    log.exited(0, node="n2", job="other", signal=9)
    log.tick(3)
    assert {each.jobs for each in log.verdicts} == {("llama",), ("other",)}
    assert len(incidents(log)) == 2


def test_lines_that_nobody_understands_after_a_recovery_are_an_incident_of_their_own() -> None:
    log = cluster("n1", "n2")
    log.kernel(NOISE, "n1", priority=3)
    log.tick(3)
    before = incidents(log)
    assert len(before) == 1
    recovered(log, log.last.incident, 0)
    log.kernel(NOISE + " again", "n1", priority=3)
    log.tick(3)
    assert len(incidents(log)) == 2


def test_a_job_with_a_straggler_that_hangs_is_an_incident_of_its_own() -> None:
    job = slowed()
    job.gpus["n3"] = [WORKING, HOT]
    job.run(30)
    assert job.named == ["gpu/n3/0000:1c:00.0"]
    log = job.log
    for rank in range(16):
        enqueued = -1 if rank == 2 else 5
        stuck = group("0", "0-15", 4, enqueued=enqueued, created_ns=log.now_ns)
        log.digest(rank, stuck, node=NODES[rank // 2], entry_count=5)
    log.tick(QUIET_S)
    assert len(incidents(log)) == 2
    assert blamed(log.verdicts[-1]) == [2]


def test_a_late_digest_of_a_job_that_nobody_spoke_of_proves_nothing() -> None:
    log = Log()
    log.tick(100)
    for rank in range(4):
        enqueued = -1 if rank == 2 else 5
        stuck = group("0", "0-3", 4, enqueued=enqueued)
        log.digest(rank, stuck, entry_count=5, at_ns=log.now_ns - 40 * SECOND_NS)
    log.tick(QUIET_S)
    assert not log.verdicts


def test_two_nodes_that_speak_for_one_rank_make_nobody_slow() -> None:
    """A rank that moved: the node that it left sends one more sample."""
    job = Job()
    for _ in range(40):
        job.step += 1
        for at, node in enumerate(NODES):
            job.log.sample(node, **job.sample(at, node))
        job.log.sample("n9", **job.sample(2, "n9"))
        job.log.tick(1)
    assert not job.verdicts


def test_a_producer_that_sends_channels_nobody_knows_yet_is_read_as_far_as_they_are_known() -> None:
    def widened(sample: dict[str, Any]) -> dict[str, Any]:
        width = 8 * len(STEP_CHANNELS)
        block = sample["steps"]
        rows = [block[at : at + width] + bytes(8) for at in range(0, len(block), width)]
        return sample | {"steps": b"".join(rows)}

    job = Job()
    for second in range(70):
        job.step += 1
        job.slow = {5: 250} if second >= 10 else {}
        job.gpus["n3"] = [WORKING, HOT if second >= 10 else WORKING]
        for at, node in enumerate(NODES):
            sample = job.sample(at, node)
            job.log.sample(node, **(widened(sample) if at % 2 else sample))
        job.log.tick(1)
    assert job.named == ["gpu/n3/0000:1c:00.0"]
