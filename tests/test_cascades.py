"""Promises about faults whose loudest symptom is elsewhere: nobody innocent is named, ever."""

from typing import Any

from nemesis.schemas.observed import GroupDigest, LogLineWritten, OperationSeen, PortSeen
from tests.attribution_log import SECOND_NS, Log, nic_block, step_block, wired, xid
from tests.test_attribution import recovered

NODES = [f"n{number}" for number in range(1, 7)]
HEALTH = "mlx5_core 0000:40:00.0: device's health compromised - reached miss count"
ABORT = 6


class Job:
    """Twelve ranks on six nodes, a step and a poll a second."""

    def __init__(self, period_s: int = 1) -> None:
        self.log = wired(*NODES)
        self.step = 0
        self.period_s = period_s
        self.seconds = 0
        self.rows: dict[str, list[dict[str, int]]] = {}

    def run(self, seconds: int, *, stands_still: bool = False, silent: str = "") -> None:
        for _ in range(seconds):
            self.seconds += 1
            self.step += not stands_still
            if self.seconds % self.period_s == 0:
                for at, node in enumerate(NODES):
                    if node != silent:
                        self.log.sample(node, **self._sample(at, node))
            self.log.tick(1)

    def _sample(self, at: int, node: str) -> dict[str, Any]:
        times = {"step": self.step, "step_ns": SECOND_NS, "own_ns": SECOND_NS * 9 // 10}
        up: dict[str, int] = {}
        return {
            "job": "llama",
            "step_count": 2,
            "steps": step_block({"rank": 2 * at, **times}, {"rank": 2 * at + 1, **times}),
            "nic_count": 3,
            "nic": nic_block(*self.rows.get(node, [up, up, up])),
            "period_ns": self.period_s * SECOND_NS,
        }

    def abort(self, rank: int, **fields: Any) -> None:
        node, pid = NODES[rank // 2], 40_000 + rank
        pci = ("0000:1b:00", "0000:1c:00")[rank % 2]
        self.log.kernel(xid(43, pci, f"pid={pid}, name=python3, Ch 00000008"), node)
        self.log.kernel(xid(45, pci, f"pid={pid}, name=python3, Ch 00000008"), node)
        self.log.exited(rank, node=node, pid=pid, signal=ABORT, **fields)

    @property
    def named(self) -> list[str]:
        return [each.id for verdict in self.log.verdicts for each in verdict.culprits]


def test_ranks_that_give_up_before_a_quiet_nic_says_a_word_are_never_named() -> None:
    for period_s in (1, 5):
        job = Job(period_s)
        job.run(20)
        job.run(8, stands_still=True)
        for rank in (2, 7, 8):
            job.abort(rank)
        job.run(15, stands_still=True)
        assert not job.named
        assert job.log.last.verdict == "insufficient"
        job.log.kernel(HEALTH, "n6")
        job.run(5, stands_still=True)
        assert set(job.named) == {"nic/n6/mlx5_0"}
        assert job.log.last.revision > 0
        assert {"rank/llama/2", "rank/llama/7", "rank/llama/8"} >= set(job.log.last.victims)


def test_a_link_that_is_down_explains_who_gave_up_meanwhile() -> None:
    job = Job()
    job.run(20)
    job.rows["n6"] = [{}, {"port_up": 0, "link_downed_count": 1}, {}]
    job.run(3, stands_still=True)
    job.abort(2)
    job.run(12, stands_still=True)
    assert set(job.named) == {"link/n6/mlx5_1"}
    assert "rank/llama/2" in job.log.last.victims


def test_a_rank_that_aborts_in_the_midst_of_work_is_suspected_once_everybody_was_heard() -> None:
    for period_s in (1, 5):
        job = Job(period_s)
        job.run(20)
        job.log.exited(2, node="n2", pid=40_002, signal=ABORT)
        job.run(8, stands_still=True)
        assert not job.named
        assert "rank/llama/2" in job.log.last.reason


def test_a_rank_that_was_killed_is_named_at_once_all_the_same() -> None:
    job = Job()
    job.run(20)
    assert job.log.exited(2, node="n2", signal=9)
    assert job.named == ["rank/llama/2"]


def test_who_aborts_when_a_node_loses_power_is_not_named() -> None:
    job = Job()
    job.run(20)
    job.run(3, stands_still=True, silent="n6")
    job.abort(2)
    job.run(20, stands_still=True, silent="n6")
    assert set(job.named) == {"node/n6"}


def test_of_ranks_that_abort_one_after_the_other_none_is_the_first() -> None:
    job = Job()
    job.run(20)
    for rank in (2, 7, 8):
        job.log.exited(rank, node=NODES[rank // 2], signal=ABORT)
        job.log.now_ns += SECOND_NS // 4
    job.run(10, stands_still=True)
    assert not job.named


def test_a_rank_that_aborted_long_before_the_others_is_named_once_they_did() -> None:
    job = Job()
    job.run(20)
    job.log.exited(2, node="n2", signal=ABORT)
    job.run(12, stands_still=True)
    assert not job.named
    job.log.exited(7, node="n4", signal=ABORT)
    job.run(5, stands_still=True)
    assert [each.id for each in job.log.last.culprits] == ["rank/llama/2"]


def test_that_a_job_stood_still_is_remembered_over_another_recovery() -> None:
    job = Job()
    job.run(20)
    job.run(8, stands_still=True)
    job.log.kernel(xid(79), "n6")
    recovered(job.log, job.log.last.incident, 10)
    job.abort(2)
    job.run(8, stands_still=True)
    assert set(job.named) == {"gpu/n6/0000:1b:00.0"}


def test_a_node_that_dies_after_a_rank_did_is_a_fault_of_its_own() -> None:
    job = Job()
    job.run(20)
    job.log.exited(2, node="n2", signal=9)
    job.run(10, stands_still=True)
    job.run(20, stands_still=True, silent="n6")
    assert job.named == ["rank/llama/2", "node/n6"]
    assert len({each.incident for each in job.log.verdicts}) == 2


def test_a_stopped_channel_names_the_program_only_with_the_end_of_its_rank_at_work() -> None:
    for seconds, code, named in ((0, 1, {"program/llama"}), (0, 0, set()), (8, 0, set[str]())):
        job = Job()
        job.run(20)
        job.run(seconds, stands_still=True)
        job.log.kernel(xid(43, rest="pid=99, name=python3, Ch 00000008"), "n2")
        if code:
            job.log.exited(2, node="n2", pid=99, exit_code=code)
        job.run(10, stands_still=True)
        assert set(job.named) == named


def test_who_aborts_on_a_node_with_trouble_of_its_own_follows_what_is_known_to_have_broken() -> (
    None
):
    for signal, named in ((ABORT, set[str]()), (9, {"rank/llama/4"})):
        job = Job()
        job.run(20)
        job.log.kernel("mlx5_core 0000:41:00.0 ens3np0: Link down", "n3")
        job.run(3, stands_still=True)
        job.log.kernel(HEALTH, "n6")
        job.run(5, stands_still=True)
        job.log.exited(4, node="n3", pid=40_004, signal=signal)
        job.run(30, stands_still=True)
        assert set(job.named) == {"nic/n6/mlx5_0"} | named


def digest(log: Log, rank: int, op: str = "all_reduce", *, seconds_ago: int = 1) -> None:
    created_ns = log.now_ns - seconds_ago * SECOND_NS
    pending = OperationSeen(seq=9, op=op, created_ns=created_ns, started=True)
    group = GroupDigest(
        name="0", ranks="0-11", last_enqueued=9, last_completed=8, first_unfinished=pending
    )
    log.digest(rank, group, node=NODES[rank // 2], entry_count=9)


def behind(log: Log, rank: int) -> None:
    """A rank that never called what the others wait in."""
    group = GroupDigest(name="0", ranks="0-11", last_enqueued=8, last_completed=8)
    log.digest(rank, group, node=NODES[rank // 2], entry_count=8)


def test_a_rank_that_calls_another_collective_is_named_within_seconds() -> None:
    job = Job()
    job.run(20)
    job.run(3, stands_still=True)
    for rank in range(12):
        digest(job.log, rank, "all_gather" if rank == 7 else "all_reduce")
    job.run(4, stands_still=True)
    assert (job.named, job.log.last.fault_class) == (["rank/llama/7"], "desync")


def test_recorders_of_a_job_that_went_on_accuse_nobody() -> None:
    job = Job()
    job.run(20)
    for rank in range(12):
        if rank != 7:
            digest(job.log, rank)
    behind(job.log, 7)
    job.run(90)
    assert not job.log.verdicts


def test_a_link_on_a_switch_nobody_knows_and_a_new_port_are_no_events() -> None:
    job = Job()
    job.run(5)
    job.log.fabric("spine1", PortSeen(port="1", peer="port/leaf1/64", up=True))
    job.log.fabric("leaf9", PortSeen(port="1", peer="nic/n1/mlx5_0"))
    for _ in range(20):
        job.log.fabric("spine1", PortSeen(port="1", peer="port/leaf1/64", up=False))
        job.log.fabric("leaf9", PortSeen(port="1"), PortSeen(port="2", up=False))
        job.run(1)
    assert not job.log.verdicts


def test_a_rank_that_is_behind_and_whose_driver_tells_of_its_program_is_named_early() -> None:
    for rank, named in ((2, {"rank/llama/2"}), (4, set[str]())):
        job = Job()
        job.run(20)
        job.log.kernel(xid(43, rest="pid=99, name=python3, Ch 00000008"), "n2")
        job.run(15, stands_still=True)
        for each in range(12):
            if each == rank:
                behind(job.log, each)
            else:
                digest(job.log, each, seconds_ago=15)
        job.run(6, stands_still=True)
        assert set(job.named) == named


def test_words_of_the_rank_that_ended_say_why_it_did() -> None:
    says = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 34.81 GiB."
    job = Job()
    job.run(20)
    line = {"job": "llama", "rank": 2, "source": "program", "text": says}
    job.log.told("log", LogLineWritten, "n2", **line)
    job.log.exited(2, node="n2", exit_code=1)
    job.run(8, stands_still=True)
    assert (job.named, job.log.last.fault_class) == (["program/llama"], "app.oom")


def test_an_assertion_in_a_kernel_is_the_programs_own() -> None:
    says = "torch.AcceleratorError: CUDA error: device-side assert triggered"
    job = Job()
    job.run(20)
    job.log.told("log", LogLineWritten, "n2", job="llama", rank=2, source="program", text=says)
    job.run(8, stands_still=True)
    assert (job.named, job.log.last.fault_class) == (["program/llama"], "app.program")
