"""Promises of defects of evidence: what happened stays the same, what arrives of it does not."""

import itertools
from pathlib import Path

import pytest

from nemesis.schemas.observed import (
    CollectiveRecorded,
    KernelLineLogged,
    Observation,
    SampleTaken,
    SpoolAnnounced,
)
from nemesis.sim.faults.symptoms import (
    ClockOff,
    Effect,
    Fault,
    KernelLine,
    MissedPolls,
    NoDump,
    NoKernelLog,
    RankStuck,
    SamplesDoubled,
    SamplesLate,
    SamplesLost,
    Symptom,
)
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster import SETTINGS
from nemesis.sim.topology.cluster_file import load_cluster

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
CLUSTER = load_cluster()
NODE = "n003"


def fault(*effects: tuple[float, Effect]) -> Fault:
    return Fault(
        kind="defect",
        began_ns=0,
        onset_ns=0,
        over_ns=0,
        node=NODE,
        culprit=f"node/{NODE}",
        components=(),
        harmless=(),
        classes=(),
        lost_ranks=(),
        actions=(),
        stalls=False,
        symptoms=tuple(Symptom(round(at_s * SECOND), NODE, effect) for at_s, effect in effects),
    )


def told(folder: Path, *effects: tuple[float, Effect], seconds: int = 20) -> list[Observation]:
    """What arrives of NODE in so many seconds."""
    simulation = Simulation(
        CLUSTER,
        [fault(*effects)] if effects else [],
        seed=7,
        folder=folder,
        start_ns=START,
    )
    seen: list[Observation] = []
    for at in range(1, seconds * 10 + 1):
        now_ns = START + at * SECOND // 10
        simulation.advance(now_ns, lambda node: True)
        seen += simulation.agents[NODE].witness.carried(now_ns)
    return seen


def samples(seen: list[Observation]) -> list[SampleTaken]:
    return [each for each in seen if isinstance(each, SampleTaken)]


def test_without_a_defect_every_sample_arrives_once_and_in_order(tmp_path: Path) -> None:
    numbers = [each.n for each in samples(told(tmp_path))]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 19


def test_lost_samples_leave_gaps_in_their_numbers(tmp_path: Path) -> None:
    numbers = [each.n for each in samples(told(tmp_path, (0, SamplesLost(500)), seconds=60))]
    assert 15 <= len(numbers) <= 45
    assert len(set(numbers)) == len(numbers) < max(numbers)


def test_missed_polls_leave_gaps_in_time_and_none_in_numbers(tmp_path: Path) -> None:
    seen = samples(told(tmp_path, (0, MissedPolls(500)), seconds=60))
    assert 15 <= len(seen) <= 45
    assert [each.n for each in seen] == list(range(1, len(seen) + 1))
    assert max(b.at_ns - a.at_ns for a, b in itertools.pairwise(seen)) >= 2 * SECOND


def test_one_snapshot_is_all_there_is(tmp_path: Path) -> None:
    assert len(samples(told(tmp_path, (1.5, MissedPolls(1_000))))) in (1, 2)


def test_doubled_samples_are_the_same_fact_twice(tmp_path: Path) -> None:
    seen = samples(told(tmp_path, (0, SamplesDoubled(1_000))))
    assert seen[::2] == seen[1::2]


def test_a_node_that_was_cut_off_says_so_and_delivers_what_it_saw(tmp_path: Path) -> None:
    seen = told(tmp_path, (5, SamplesLate(10 * SECOND)))
    (announced,) = (each for each in seen if isinstance(each, SpoolAnnounced))
    at = seen.index(announced)
    late = seen[at + 1 : at + 1 + announced.spooled_count]
    assert len(samples(late)) in (9, 10, 11)
    assert all(each.at_ns < announced.at_ns for each in late)
    assert announced.since_ns == START + 5 * SECOND
    numbers = [each.n for each in samples(seen)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_node_without_kernel_log_prints_and_nobody_reads_it(tmp_path: Path) -> None:
    line = (5.0, KernelLine("NVRM: Xid (PCI:0000:1b:00): 79", 3))
    heard = [each for each in told(tmp_path / "a", line) if isinstance(each, KernelLineLogged)]
    deaf = told(tmp_path / "b", (1, NoKernelLog()), line)
    assert len(heard) == 1
    assert not any(isinstance(each, KernelLineLogged) for each in deaf)


def test_a_dump_that_is_never_written_is_not_told_as_missing(tmp_path: Path) -> None:
    first = CLUSTER.ranks_of(NODE)[0]
    seen = told(tmp_path, (2, RankStuck(first)), (2, NoDump(first)))
    dumps = [each for each in seen if isinstance(each, CollectiveRecorded)]
    assert {each.rank for each in dumps} == set(CLUSTER.ranks_of(NODE)) - {first}


@pytest.mark.parametrize("offset_ns", [30 * SECOND, -30 * SECOND])
def test_a_wrong_clock_dates_everything_wrong_by_as_much(tmp_path: Path, offset_ns: int) -> None:
    stuck = RankStuck(CLUSTER.ranks_of(NODE)[0])
    right = told(tmp_path / "a", (2, stuck))
    wrong = told(tmp_path / "b", (0, ClockOff(offset_ns, SECOND)), (2, stuck))
    began = 2 + len(SETTINGS)  # what the node is made of and how it is set: told before that
    pairs = list(zip(right[began:], wrong[began:], strict=True))
    assert {b.at_ns - a.at_ns for a, b in pairs} == {offset_ns}
    assert {b.clock_error_ns for _, b in pairs} == {SECOND}
    arrivals = [
        (a.groups[0].arrivals, b.groups[0].arrivals)
        for a, b in pairs
        if isinstance(a, CollectiveRecorded) and isinstance(b, CollectiveRecorded)
    ]
    assert arrivals
    assert all(y - x == offset_ns for a, b in arrivals for (_, x), (_, y) in zip(a, b, strict=True))
