"""Promises about stragglers: who is slow, why, and when nothing is said."""

from collections.abc import Callable
from typing import Any

import pytest

from nemesis.schemas.channels import ABSENT
from nemesis.schemas.inferred import FaultAttributed
from tests.attribution_log import (
    SECOND_NS,
    cluster,
    gpu_block,
    host_block,
    step_block,
)

NODES = [f"n{number}" for number in range(1, 9)]
OWN_NS = 900_000_000
WORKING = {"sm_clock_mhz": 1980, "temp_c": 60}
HOT = {"sm_clock_mhz": 1500, "temp_c": 89, "clock_event_reasons": 0x20}
BRAKED = {"sm_clock_mhz": 1200, "temp_c": 50, "clock_event_reasons": 0x80}
BUSY = {"cpu_pressure_ppm": 500_000, "run_queue_wait_ppm": 300_000}


class Job:
    """Sixteen ranks on eight nodes that step once a second and are polled as often."""

    def __init__(self) -> None:
        self.log = cluster(*NODES)
        self.step = 0
        self.slow: dict[int, int] = {}
        """Per mille that a rank takes longer."""
        self.gpus: dict[str, list[dict[str, int]]] = {}
        self.hosts: dict[str, dict[str, int]] = {}

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step += 1
            for at, node in enumerate(NODES):
                self.log.sample(node, **self.sample(at, node))
            self.log.tick(1)

    def sample(self, at: int, node: str) -> dict[str, Any]:
        rows = [
            {
                "rank": rank,
                "step": self.step,
                "step_ns": SECOND_NS,
                # healthy ranks scatter by 3 % from step to step
                "own_ns": OWN_NS
                * (1000 + (rank * 7 + self.step * 5) % 30 + self.slow.get(rank, 0))
                // 1000,
            }
            for rank in (2 * at, 2 * at + 1)
        ]
        return {
            "job": "llama",
            "step_count": 2,
            "steps": step_block(*rows),
            "gpu_count": 2,
            "gpu": gpu_block(*self.gpus.get(node, [WORKING, WORKING])),
            "host": host_block(cpu_pressure_ppm=8_000, **self.hosts.get(node, {}))
            if "cpu_pressure_ppm" not in self.hosts.get(node, {})
            else host_block(**self.hosts[node]),
            "period_ns": SECOND_NS,
        }

    @property
    def verdicts(self) -> list[FaultAttributed]:
        return self.log.verdicts

    @property
    def named(self) -> list[str]:
        return [each.id for each in self.log.last.culprits]


def slowed(rank: int = 5, per_mille: int = 250) -> Job:
    job = Job()
    job.run(10)
    job.slow[rank] = per_mille
    return job


@pytest.mark.parametrize("per_mille", [90, 250, 900])
def test_a_gpu_that_throttles_for_heat_is_named_once(per_mille: int) -> None:
    job = slowed(5, per_mille)
    job.gpus["n3"] = [WORKING, HOT]
    job.run(60)
    assert job.named == ["gpu/n3/0000:1c:00.0"]
    last = job.log.last
    assert (last.verdict, last.fault_class, last.ranks) == ("attributed", "gpu.thermal", (5,))
    assert "89 C" in last.evidence[0].says
    assert len(job.verdicts) == 1


def test_a_gpu_that_is_braked_or_clocked_low_is_a_straggler_of_its_own() -> None:
    for row in (BRAKED, {**WORKING, "sm_clock_mhz": 1400}):
        job = slowed()
        job.gpus["n3"] = [WORKING, row]
        job.run(20)
        assert (job.named, job.log.last.fault_class) == (["gpu/n3/0000:1c:00.0"], "straggler.gpu")


@pytest.mark.parametrize("reasons", [0x2, 0x4])
def test_a_power_cap_or_a_set_clock_counts_where_the_neighbours_have_none(reasons: int) -> None:
    held = {**WORKING, "clock_event_reasons": reasons}
    for rows, names in (([WORKING, held], ["gpu/n3/0000:1c:00.0"]), ([held, held], [])):
        job = slowed()
        job.gpus["n3"] = rows
        job.run(20)
        assert [each.id for verdict in job.verdicts for each in verdict.culprits] == names


def test_a_busy_host_is_named_and_its_gpus_are_spared() -> None:
    job = slowed(4)
    job.slow[5] = 300
    job.hosts["n3"] = BUSY
    job.run(60)
    assert (job.named, job.log.last.fault_class) == (["node/n3"], "straggler.host")
    assert job.log.last.ranks == (4, 5)
    assert "run queue" in job.log.last.reason
    assert len(job.verdicts) == 1


def test_pressure_that_all_hosts_have_is_no_cause() -> None:
    job = slowed(4)
    job.hosts = dict.fromkeys(NODES, BUSY)
    job.run(60)
    assert (job.log.last.verdict, job.named) == ("insufficient", [])


def test_a_rank_that_became_slow_without_a_cause_blames_nobody_and_says_what_to_collect() -> None:
    job = slowed()
    job.run(60)
    assert (job.log.last.verdict, job.named) == ("insufficient", [])
    assert "clock" in job.log.last.missing[0]
    assert len(job.verdicts) == 1


@pytest.mark.parametrize("steps", [1, 3])
def test_a_few_slow_steps_are_nothing(steps: int) -> None:
    job = slowed(5, 3000)
    job.gpus["n3"] = [WORKING, HOT]
    job.run(steps)
    job.slow.clear()
    job.run(60)
    assert not job.verdicts


def test_a_rank_that_was_always_slower_is_as_it_was_made() -> None:
    job = Job()
    job.slow = {0: 200, 1: 200}
    job.run(120)
    assert not job.verdicts


def test_a_hot_gpu_that_keeps_nobody_waiting_is_nothing() -> None:
    job = Job()
    job.gpus["n3"] = [WORKING, HOT]
    job.run(60)
    assert not job.verdicts


def test_ranks_that_are_slow_in_turn_are_nobodys_fault() -> None:
    job = Job()
    for second in range(60):
        job.slow = {(second * 5 + at) % 16: 400 for at in range(4)}
        job.run(1)
    assert not job.verdicts


def test_who_keeps_up_again_is_told_of_once_and_who_comes_and_goes_is_not() -> None:
    job = slowed()
    for _ in range(4):
        job.slow[5] = 250
        job.gpus["n3"] = [WORKING, HOT]
        job.run(20)
        job.slow.clear()
        job.gpus.clear()
        job.run(60)
    assert [each.signature for each in job.verdicts] == ["", "transient"]
    assert len({each.incident for each in job.verdicts}) == 1


def test_two_stragglers_with_different_causes_are_two_incidents() -> None:
    job = slowed(5)
    job.slow |= {12: 300, 13: 280}
    job.gpus["n3"] = [WORKING, HOT]
    job.hosts["n7"] = BUSY
    job.run(30)
    named = {each.id for verdict in job.verdicts for each in verdict.culprits}
    assert named == {"gpu/n3/0000:1c:00.0", "node/n7"}
    assert len({each.incident for each in job.verdicts}) == 2


def test_readings_that_cannot_be_taken_prove_nothing() -> None:
    job = slowed()
    absent = {"sm_clock_mhz": ABSENT, "clock_event_reasons": ABSENT, "temp_c": ABSENT}
    job.gpus["n3"] = [WORKING, absent]
    job.hosts["n3"] = dict.fromkeys(BUSY, ABSENT)
    job.run(60)
    assert job.log.last.verdict == "insufficient"


@pytest.mark.parametrize(
    "broken",
    [
        lambda sample: sample | {"steps": b"torn"},
        lambda sample: sample | {"step_count": 99},
        lambda sample: sample | {"job": "unheard of"},
        lambda sample: sample | {"steps": step_block({"rank": 2**31, "step": 1, "own_ns": 9})},
        lambda sample: sample | {"steps": step_block({"rank": -1, "step": -1, "own_ns": -9})},
    ],
)
def test_steps_that_make_no_sense_are_passed_over(
    broken: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    job = Job()
    for _ in range(20):
        job.step += 1
        for at, node in enumerate(NODES):
            job.log.sample(node, **broken(job.sample(at, node)))
        job.log.tick(1)
    assert not job.verdicts


def test_a_rank_that_dies_and_a_straggler_are_two_incidents() -> None:
    job = slowed()
    job.gpus["n3"] = [WORKING, HOT]
    job.run(20)
    job.log.exited(5, node="n3", signal=9)
    job.run(5)
    assert job.verdicts[-1].culprits[0].id == "rank/llama/5"
    assert len({each.incident for each in job.verdicts}) == 2


def test_a_host_whose_disk_fails_requests_is_why_its_ranks_are_slow() -> None:
    line = "blk_update_request: I/O error, dev nvme1n1, sector 2946147023 op 0x0:(READ) flags 0x0"
    for node, names in (("n3", {"node/n3"}), ("n2", set[str]())):
        job = slowed(4)
        job.log.kernel(line, node)
        job.run(60)
        assert {each.id for verdict in job.verdicts for each in verdict.culprits} == names
