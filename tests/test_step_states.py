"""Promises about what ranks tell of their own numbers: parameters, gradients, waiting for data."""

from typing import Any

import pytest

from nemesis.processors.attribution.attribution import Attribution
from nemesis.schemas.observed import DeviceStateRead
from tests.attribution_log import SECOND_NS, Log, cluster, gpu_state_block, step_block

NODES = [f"n{number}" for number in range(1, 5)]
CHECKSUM = 77
OWN_NS = 900_000_000


class Job:
    """Eight ranks on four nodes that step once a second and tell what they hold."""

    def __init__(self) -> None:
        self.log: Log = cluster(*NODES)
        self.step = 0
        self.reads: dict[int, dict[str, int]] = {}
        """What a rank tells instead."""

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step += 1
            for at, node in enumerate(NODES):
                rows = [self.row(rank) for rank in (2 * at, 2 * at + 1)]
                self.log.sample(
                    node,
                    job="llama",
                    step_count=2,
                    steps=step_block(*rows),
                    period_ns=SECOND_NS,
                )
            self.log.tick(1)

    def row(self, rank: int) -> dict[str, int]:
        told = {
            "rank": rank,
            "step": self.step,
            "step_ns": SECOND_NS,
            "own_ns": OWN_NS + (rank * 7 + self.step * 5) % 30 * 1_000_000,
            "state_checksum": CHECKSUM + self.step,
        }
        return told | self.reads.get(rank, {})

    @property
    def named(self) -> list[str]:
        return [each.id for each in self.log.last.culprits]


def test_a_replica_whose_parameters_differ_is_named_once() -> None:
    job = Job()
    job.run(5)
    job.reads[5] = {"state_checksum": 1}
    job.run(20)
    assert job.named == ["rank/llama/5"]
    last = job.log.last
    assert (last.fault_class, last.verdict) == ("silent_corruption", "attributed")
    assert len(job.log.verdicts) == 1
    assert last.evidence
    assert [each.says for each in last.ruled_out] == ["the other replicas"]


@pytest.mark.parametrize(
    "reads",
    [
        {},
        {5: {"state_checksum": 0}},  # not told
        {1: {"state_checksum": 1}, 5: {"state_checksum": 1}},  # two that agree
        {1: {"state_checksum": 1}, 5: {"state_checksum": 2}},  # all over the place
    ],
)
def test_without_one_odd_replica_nobody_is_named(reads: dict[int, dict[str, int]]) -> None:
    job = Job()
    job.reads = reads
    job.run(20)
    assert not job.log.verdicts


def test_one_torn_reading_of_a_checksum_is_nothing() -> None:
    job = Job()
    job.run(5)
    job.reads[5] = {"state_checksum": 1}
    job.run(1)
    job.reads.clear()
    job.run(20)
    assert not job.log.verdicts


def test_the_rank_whose_gradients_were_first_not_finite_is_named() -> None:
    job = Job()
    job.run(5)
    job.reads[3] = {"nonfinite_count": 12}
    job.run(1)
    job.reads = {rank: {"nonfinite_count": 9} for rank in range(8)}
    job.run(10)
    assert job.named == ["rank/llama/3"]
    assert "at step 6" in job.log.last.reason
    assert len(job.log.verdicts) == 1


@pytest.mark.parametrize(
    ("timer", "fault_class"), [("data_wait_ns", "dataloader"), ("save_ns", "storage")]
)
def test_a_rank_that_is_late_for_its_data_or_its_save_is_no_slow_host(
    timer: str, fault_class: str
) -> None:
    job = Job()
    job.run(10)
    job.reads[4] = {"own_ns": 2 * OWN_NS, timer: OWN_NS}
    job.run(30)
    assert (job.named, job.log.last.fault_class) == (["rank/llama/4"], fault_class)
    assert job.log.last.evidence


@pytest.mark.parametrize(("timed", "named"), [(True, ["rank/llama/4"]), (False, [])])
def test_what_a_rank_timed_itself_as_waiting_is_no_chance_however_much_all_scatter(
    timed: bool, named: list[str]
) -> None:
    job = Job()
    for step in range(50):
        late_ns = 80_000_000 if step >= 10 else 0
        for rank in range(8):
            scatter_ns = (rank * 5 + step * 3) % 8 * 15_000_000
            job.reads[rank] = {"own_ns": OWN_NS + scatter_ns}
        job.reads[4]["own_ns"] = OWN_NS + 60_000_000 + late_ns
        if timed:
            job.reads[4]["data_wait_ns"] = late_ns
        job.run(1)
    assert [each.id for verdict in job.log.verdicts for each in verdict.culprits] == named


@pytest.mark.parametrize(
    ("timer", "named"), [("data_wait_ns", ["rank/llama/4"]), ("save_ns", []), ("own_ns", [])]
)
def test_a_small_wait_is_worth_a_name_where_the_rank_times_it_as_one_for_data(
    timer: str, named: list[str]
) -> None:
    job = Job()
    job.run(10)
    for step in range(40):
        late_ns = OWN_NS * (30 + step % 2 * 10) // 1000
        job.reads[4] = {timer: late_ns, "own_ns": OWN_NS + 15_000_000 + late_ns}
        job.run(1)
    assert [each.id for verdict in job.log.verdicts for each in verdict.culprits] == named


def test_a_slow_rank_whose_link_has_fewer_lanes_is_slowed_by_its_gpu() -> None:
    job = Job()
    job.run(10)
    block = gpu_state_block({"pcie_width": 4}, {"pcie_width": 16})
    job.log.told("device_state", DeviceStateRead, "n3", gpu_count=2, gpu=block)
    job.reads[4] = {"own_ns": 2 * OWN_NS}
    job.run(40)
    assert (job.named, job.log.last.fault_class) == (["gpu/n3/0000:1b:00.0"], "straggler.gpu")
    assert "4 lanes" in job.log.last.evidence[0].says


def test_a_narrow_link_that_keeps_nobody_waiting_is_nothing() -> None:
    job = Job()
    block = gpu_state_block({"pcie_width": 4}, {"pcie_width": 16})
    job.log.told("device_state", DeviceStateRead, "n3", gpu_count=2, gpu=block)
    job.run(40)
    assert not job.log.verdicts


def test_a_node_that_is_not_read_while_its_job_goes_on_is_not_silent() -> None:
    job = Job()
    job.run(10)
    for _ in range(40):
        job.step += 1
        for at, node in enumerate(NODES[:3]):
            rows: list[Any] = [job.row(rank) for rank in (2 * at, 2 * at + 1)]
            block = step_block(*rows)
            job.log.sample(node, job="llama", step_count=2, steps=block, period_ns=SECOND_NS)
        job.log.tick(1)
    assert not job.log.verdicts


def test_a_snapshot_in_between_changes_nothing() -> None:
    whole, parted = Job(), Job()
    for job in (whole, parted):
        job.run(5)
        job.reads[5] = {"state_checksum": 1}
        job.run(1)
        if job is parted:
            kept, job.log.processor = job.log.processor.snapshot(), Attribution()
            job.log.processor.restore(kept)
        job.run(10)
    assert whole.log.verdicts == parted.log.verdicts
    assert whole.log.processor.snapshot() == parted.log.processor.snapshot()


def test_checksums_are_compared_by_the_step_that_they_are_of() -> None:
    job = Job()
    job.run(5)
    # the odd one's checksum is of an earlier step than what it tells of its progress
    for at in range(1, 21):
        odd = {"state_step": 100 * at}
        job.reads = {
            rank: odd | {"step": 100 * at + rank, "state_checksum": at + rank // 7}
            for rank in range(8)
        }
        job.run(1)
    assert job.named == ["rank/llama/7"]


def test_replicas_are_compared_though_nodes_tell_of_different_steps() -> None:
    job = Job()
    job.log = cluster(*NODES, *(f"n{number}" for number in range(5, 9)))
    for second in range(40):
        for at in range(8):
            if second % 4 != at % 4:
                continue  # two nodes are polled each second, and a step takes half of one
            rows = []
            for rank in (2 * at, 2 * at + 1):
                odd = 1 if rank == 5 and second > 8 else 0
                told = {"rank": rank, "step": 2 * second, "step_ns": SECOND_NS // 2}
                rows.append(told | {"own_ns": OWN_NS, "state_checksum": CHECKSUM + second + odd})
            block = step_block(*rows)
            job.log.sample(f"n{at + 1}", job="llama", step_count=2, steps=block)
        job.log.tick(1)
    assert job.named == ["rank/llama/5"]
